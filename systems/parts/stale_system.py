"""What DIGEST's two forms have in common: hidden rows that are pushed to a store and pulled from it every few
rounds, a loss of each worker's own, and knobs by which a worker is slowed down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from harness.base.bounds import ROUNDS, WAIT, number, word
from harness.base.errors import InputError
from harness.comm.backend import check_address
from harness.core.mixins import BesideClock, OwnLoss
from harness.core.straggler import Straggler
from harness.core.system import System
from harness.core.traits import Refuses, Traits
from systems.parts.representations import Representations

REFUSES = Refuses(
    wire="passes hidden rows through a store, which holds them as they are",
    needed_rows="keeps a representation of every boundary vertex",
)


@dataclass
class StaleSystem(OwnLoss, BesideClock, System):
    """interval  N, rounds from one push to the next
    store     where hidden rows are kept: "shared", the memory of one host, or the Redis server at
              redis://HOST:PORT
    start     what the store holds before round 1: "exact", the rows of an exact forward pass, or "zeros"
    loss      what a worker divides the sum of its losses by: "partition", its own training vertices, or
              "global", those of all workers
    features  "once": layer 0's halo rows are fetched once; "refetch": in every round
    straggler   rank of a worker that is slowed down on purpose; -1: none
    delay       seconds added to each epoch of the straggler
    delay_spread   up to so many seconds more, drawn for each epoch from the seed
    slowdown    how many times as long the straggler's epoch takes; 1: no longer
    """

    interval: int = number(10, 1, ROUNDS)
    store: str = "shared"
    start: str = word("exact", "zeros")
    loss: str = word("partition", "global")
    features: str = word("once", "refetch")
    straggler: int = number(-1, -1)
    delay: float = number(0.0, 0, WAIT)
    delay_spread: float = number(0.0, 0, WAIT)
    slowdown: float = number(1.0, 1, 10**6)

    slots: ClassVar = 2  # pushes that a slice of the store keeps

    def __post_init__(self):
        check_address(self.store)
        slow = Straggler(max(self.straggler, 0), self.delay, self.delay_spread, self.slowdown)
        self.slow = slow if self.straggler >= 0 else None
        if self.slow is None and slow != Straggler():
            raise InputError(
                "straggler=-1 names no worker to delay; give straggler=RANK, or delay=0 delay_spread=0"
                " slowdown=1"
            )

    def supports(self, run):
        said = self.slow.refusal(run.num_workers) if self.slow is not None else None
        return f"straggler{said}, or -1 for none" if said else super().supports(run)

    def traits(self):
        return Traits(overlaps=True, straggler=self.slow)

    def setup(self, context):
        super().setup(context)
        self.context, self.round = context, 0
        self.representations = Representations(context, self.store, self.slots)
        context.closing.callback(self.representations.close)

    def pushes(self) -> int | None:
        """The stamp of what this round pushes; None where it pushes nothing."""
        raise NotImplementedError

    def prefetch(self, layer: int) -> None:
        """PULL, lines 5-6 of Algorithm 1, while the layer before computes."""
        raise NotImplementedError

    def halo(self, layer, h):
        if layer == 0:
            return self.comm.exchange(self.plan, h, 0, "features")
        stamp = self.pushes()
        if stamp is not None:  # PUSH, lines 9-10: h is final as soon as it is computed
            self.representations.push(layer, h, stamp)
        self.prefetch(layer + 1)
        return self.representations.pending(layer)

    def loss_divisor(self, local, total):
        return total if self.loss == "global" else max(local, 1)
