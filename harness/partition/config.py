"""The typed schema of the block `partition`; the values stand in `conf/partition/`."""

from __future__ import annotations

from dataclasses import dataclass

from harness.check import at_least, choice

METHODS = ("metis", "random", "block")


@dataclass
class PartitionConfig:
    """method: "metis" (fewest cut edges), "random" or "block" (contiguous ids), the last two balanced to one vertex.

    seed   null takes the run's seed
    """

    method: str = "metis"
    seed: int | None = None

    def __post_init__(self) -> None:
        choice("method", self.method, METHODS)
        if self.seed is not None:
            at_least("seed", self.seed, 0)
