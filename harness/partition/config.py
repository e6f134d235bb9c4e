"""The typed schema of the block `partition`; the values stand in `conf/partition/`."""

from __future__ import annotations

from dataclasses import dataclass

from harness.check import at_least, choice, more_than, within

METHODS = ("metis", "random", "block")  # edge-cuts: vertices have an owner
EDGE_METHODS = ("ebv", "hep", "dne")  # vertex-cuts: edges have an owner
MASTER_RULES = ("host", "hash")


@dataclass
class PartitionConfig:
    """method: "metis" (fewest cut edges), "random" or "block" (contiguous ids), the last two balanced to one
    vertex; these are edge-cuts. "ebv", "hep" and "dne" are vertex-cuts (`harness.partition.vertexcut`), and
    the keys after `seed` are theirs.

    seed     null takes the run's seed
    gamma    ebv: weight of replicas on new hosts against replicas on new workers
    hosts    hosts the workers are spread over, as many consecutive workers on each
    tau      hep: vertices of more than tau mean degrees are not expanded
    masters  which replica is the master: "host": by a hash of the id, one of those on the host that holds
             most of them; "hash": one of all. With one host both are the same
    """

    method: str = "metis"
    seed: int | None = None
    gamma: float = 0.1
    hosts: int = 1
    tau: float = 10.0
    masters: str = "host"

    def __post_init__(self) -> None:
        choice("method", self.method, (*METHODS, *EDGE_METHODS))
        if self.seed is not None:
            at_least("seed", self.seed, 0)
        within("gamma", self.gamma, 0, 1)
        at_least("hosts", self.hosts, 1)
        more_than("tau", self.tau, 0)
        choice("masters", self.masters, MASTER_RULES)

    @property
    def cut(self) -> str:
        """The kind of partition: "edge" or "vertex"."""
        return "vertex" if self.method in EDGE_METHODS else "edge"

    def decides(self, parts: int, seed: int) -> dict[str, object]:
        """The keys that determine a partition into `parts` under the run's `seed`, as plain values."""
        keys: dict[str, object] = {"method": self.method}
        if self.cut == "vertex":
            keys |= {"hosts": self.hosts, "masters": self.masters}
        if self.method == "ebv":
            keys["gamma"] = self.gamma
        if self.method == "hep":
            keys["tau"] = self.tau
        if self.method not in ("block", "ebv") and parts > 1:
            keys["seed"] = seed if self.seed is None else self.seed
        return keys
