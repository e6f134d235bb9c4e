"""METIS with several constraints: parts that are alike not in vertices alone, but in training vertices and
their edges too, as DistDGL partitions; the default constraints are DGL's."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from harness.base.errors import InputError, choice
from harness.data.graph import Graph
from harness.data.partition.assign import balanced, pattern
from harness.data.partition.config import EdgeCutPartitioner
from harness.data.partition.metis_library import kway


def _in_edges(graph: Graph) -> np.ndarray:
    """[V] how many in-edges each vertex has, whatever the edges weigh."""
    return graph.replace(weights=None).in_degrees()


# What each vertex weighs in a constraint.
WEIGHTS: dict[str, Callable[[Graph], np.ndarray]] = {
    "vertices": lambda graph: np.ones(graph.num_vertices),
    "edges": _in_edges,
    "train": lambda graph: graph.train,
    "val": lambda graph: graph.val,
    "test": lambda graph: graph.test,
    "rest": lambda graph: ~graph.train,
    "train_edges": lambda graph: _in_edges(graph) * graph.train,
    "rest_edges": lambda graph: _in_edges(graph) * ~graph.train,
}
# The constraints of DGL's balance_ntypes and balance_edges.
DGLS = ("train", "rest", "train_edges", "rest_edges")


@dataclass
class Balanced(EdgeCutPartitioner):
    """METIS with a like share for every part of what `balance` names, as DGL's partitioner has it.

    balance   what every part gets a like share of, to METIS's 3 %: vertices, edges (in-edges), train, val,
    test (vertices of a split), rest (vertices that do not train), train_edges, rest_edges (their in-edges)
    """

    balance: list[str] = field(default_factory=lambda: list(DGLS))

    def __post_init__(self) -> None:
        if not self.balance:
            raise InputError("balance=[] is empty: give what parts are alike in, as balance=[vertices]")
        for each in self.balance:
            choice("balance", each, WEIGHTS)

    def vertex_owners(self, graph: Graph, parts: int, seed: int) -> np.ndarray:
        starts, neighbours = pattern(graph, np.dtype(np.int32))
        if len(neighbours) == 0:
            return balanced(graph.num_vertices, parts)
        return self.answer(starts, neighbours, self.constraints(graph), parts, seed)

    def answer(self, starts, neighbours, weights, parts: int, seed: int) -> np.ndarray:
        """[V] int32: METIS's parts; the arguments are those of `kway`."""
        return kway(starts, neighbours, weights, parts, seed, f"partition.balance={self.balance}")

    def constraints(self, graph: Graph) -> np.ndarray:
        """[V, c] int32: what each vertex weighs in each constraint. A constraint in which all weigh 0 is left
        out; where none is left, there is one in which every vertex weighs 1."""
        columns = [WEIGHTS[each](graph).astype(np.int32) for each in self.balance]
        kept = [column for column in columns if column.any()]
        return np.stack(kept or [np.ones(graph.num_vertices, np.int32)], 1)
