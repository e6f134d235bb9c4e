"""What a partitioner is: the bases of edge-cuts and vertex-cuts; the values stand in `conf/partition/`."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from harness.base.bounds import SEED, number, word
from harness.base.code import code_of
from harness.data.graph import Graph

EDGE_METHODS = ("ebv", "hep", "dne", "metis/edges")  # vertex-cuts: edges have an owner
MASTER_RULES = ("host", "hash")


@dataclass
class Partitioner:
    """Base of every way to divide a graph among workers: derive from `EdgeCutPartitioner` or
    `VertexCutPartitioner`.

    A partitioner is a dataclass whose fields are its knobs. All of them are in the key of the shards that
    the cache keeps, so that another value is another partition.

    seed     null takes the run's seed
    """

    seed: int | None = number(None, 0, SEED)

    # A knob with the value that it has here is left out of the key, so that it can be added without making
    # every partition again.
    unkeyed: ClassVar[dict[str, Any]] = {}
    cut: ClassVar[str] = ""  # the kind of partition: "edge" or "vertex"
    drawn: ClassVar[bool] = True  # whether the seed decides anything; where not, the seed 0 is given

    @classmethod
    def _missing_method(cls) -> str | None:
        """The method that a partitioner must define and this one does not; None where it is complete."""
        return "vertex_owners of an EdgeCutPartitioner or edge_owners of a VertexCutPartitioner"

    @property
    def name(self) -> str:
        """What messages and statistics call it."""
        return type(self).__name__.lower()

    def seed_of(self, parts: int, seed: int) -> int | None:
        """The seed that a partition into `parts` is drawn by under the run's `seed`; None where none is."""
        return (seed if self.seed is None else self.seed) if self.drawn and parts > 1 else None

    def decides(self, parts: int, seed: int) -> dict[str, Any]:
        """All that determines a partition into `parts` under the run's `seed`, as plain values: every field,
        the seed where the partition is drawn, and the code of a class that is not of this package."""
        keys: dict[str, Any] = {"method": self.name, **dataclasses.asdict(self)}
        keys = {key: value for key, value in keys.items() if self.unkeyed.get(key, keys) != value}
        keys["seed"] = self.seed_of(parts, seed)
        if keys["seed"] is None:
            del keys["seed"]
        cls = type(self)
        if not cls.__module__.startswith("harness.data.partition."):
            keys["method"] = f"{cls.__module__}.{cls.__qualname__}"
            keys["code"] = code_of(cls.__module__)
        return keys


class EdgeCutPartitioner(Partitioner):
    """Base of partitioners that give every vertex an owner."""

    cut: ClassVar[str] = "edge"

    @classmethod
    def _missing_method(cls):
        return None if cls.vertex_owners is not EdgeCutPartitioner.vertex_owners else "vertex_owners"

    def vertex_owners(self, graph: Graph, parts: int, seed: int) -> np.ndarray:
        """[V] integers 0 to parts - 1: the worker that owns each vertex. `assign` calls this for 2 parts or
        more, and fills a part that is left empty from the largest."""
        raise NotImplementedError


@dataclass
class VertexCutPartitioner(Partitioner):
    """Base of partitioners that give every undirected edge an owner.

    hosts    the number of hosts; each has the same number of consecutive workers
    masters  the replicas of a vertex from which a hash of its id chooses the master: "host": those on
             the host that holds most of them; "hash": all of them. With one host both are the same
    """

    hosts: int = number(1, 1)
    masters: str = word(*MASTER_RULES)

    cut: ClassVar[str] = "vertex"

    @classmethod
    def _missing_method(cls):
        return None if cls.edge_owners is not VertexCutPartitioner.edge_owners else "edge_owners"

    def edge_owners(
        self, low: np.ndarray, high: np.ndarray, num_vertices: int, parts: int, seed: int
    ) -> np.ndarray:
        """[M] integers 0 to parts - 1: the worker that owns each undirected edge low[m] - high[m], with
        low < high, ascending by (low, high) and without self-loops."""
        raise NotImplementedError
