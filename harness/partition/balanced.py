"""METIS with several constraints: parts that are alike not in vertices alone, but in training vertices and
their edges too, as DistDGL partitions.

pymetis passes one weight per vertex, so METIS is called as cmeel-metis brings it (METIS 5.2, 32-bit ids). It
is an option: `pip install halobench[balance]`.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.check import InputError, choice
from harness.graph.graph import Graph
from harness.partition.assign import balanced, pattern
from harness.partition.config import EdgeCut

# What each vertex weighs in a constraint.
WEIGHTS: dict[str, Callable[[Graph], np.ndarray]] = {
    "vertices": lambda graph: np.ones(graph.num_vertices),
    "edges": lambda graph: graph.in_degrees(),
    "train": lambda graph: graph.train,
    "val": lambda graph: graph.val,
    "test": lambda graph: graph.test,
    "rest": lambda graph: ~graph.train,
    "train_edges": lambda graph: graph.in_degrees() * graph.train,
    "rest_edges": lambda graph: graph.in_degrees() * ~graph.train,
}
DGLS = (
    "train",
    "rest",
    "train_edges",
    "rest_edges",
)  # the constraints of DGL's balance_ntypes, balance_edges
OPTIONS, SEED, OK = 40, 9, 1  # METIS 5.2's: how many options there are, which is the seed; what success is
MEND = "give partition=metis, or pip install cmeel-metis cmeel-gklib"


@dataclass
class Balanced(EdgeCut):
    """balance   what every part gets a like share of, to METIS's 3 %: vertices, edges (in-edges), train, val,
    test (vertices of a split), rest (vertices that do not train), train_edges, rest_edges (their in-edges)
    """

    balance: list[str] = field(default_factory=lambda: list(DGLS))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.balance:
            raise InputError("balance=[] is empty: give what parts are alike in, as balance=[vertices]")
        for each in self.balance:
            choice("balance", each, WEIGHTS)

    def vertex_owners(self, graph: Graph, parts: int, seed: int) -> np.ndarray:
        metis = library()
        starts, neighbours = pattern(graph, np.dtype(np.int32))
        if len(neighbours) == 0:
            return balanced(graph.num_vertices, parts)
        weights = self.constraints(graph)
        # METIS reads a seed in 31 bits; as for partition=metis, its seeds begin at 1.
        options = np.empty(OPTIONS, np.int32)
        metis.METIS_SetDefaultOptions(_pointer(options))
        options[SEED] = seed % (2**31 - 1) + 1
        owners, cut = np.empty(graph.num_vertices, np.int32), ctypes.c_int32()
        numbers = [ctypes.byref(ctypes.c_int32(n)) for n in (graph.num_vertices, weights.shape[1], parts)]
        code = metis.METIS_PartGraphKway(
            numbers[0], numbers[1], _pointer(starts), _pointer(neighbours), _pointer(weights), None, None,
            numbers[2], None, None, _pointer(options), ctypes.byref(cut), _pointer(owners),
        )  # fmt: skip
        if code != OK:
            raise InputError(
                f"partition.balance={self.balance} could not be computed: METIS gave the code {code}; give"
                " fewer constraints, or partition=metis"
            )
        return owners

    def constraints(self, graph: Graph) -> np.ndarray:
        """[V, c] int32 what each vertex weighs; a constraint in which nothing weighs is left out, and where
        none is left all vertices weigh alike."""
        columns = [WEIGHTS[each](graph).astype(np.int32) for each in self.balance]
        kept = [column for column in columns if column.any()]
        return np.stack(kept or [np.ones(graph.num_vertices, np.int32)], 1)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def library() -> ctypes.CDLL:
    """METIS, from the package cmeel-metis. InputError where it cannot be loaded."""
    try:
        # METIS takes GKlib's symbols from the process.
        ctypes.CDLL(str(_file("cmeel-gklib", "libGKlib")), mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(_file("cmeel-metis", "libmetis")))
    except (importlib.metadata.PackageNotFoundError, OSError) as error:
        raise InputError(f"partition.balance needs METIS of cmeel-metis ({error}); {MEND}") from None


def _file(package: str, name: str) -> Path:
    found = [path for path in importlib.metadata.files(package) or [] if path.name.startswith(name)]
    if not found:
        raise OSError(f"{package} has no {name}")
    return Path(str(found[0].locate()))
