"""A worker that is slower than the others, on purpose (DIGEST, section 5.2: a random delay in every epoch of
one worker).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from harness.check import InputError, at_least
from harness.comm.comm import Comm
from harness.comm.recorder import synchronise


@dataclass
class Straggler:
    """rank      the slow worker; -1: none
    seconds   added to each of its epochs, and up to `spread` seconds more, drawn by (seed, epoch)
    factor    its epoch up to here takes this many times as long (1: no longer)
    """

    rank: int
    seconds: float
    spread: float
    factor: float

    def __post_init__(self):
        at_least("straggler", self.rank, -1)
        at_least("delay", self.seconds, 0)
        at_least("delay_spread", self.spread, 0)
        at_least("slowdown", self.factor, 1)
        if self.rank < 0 and (self.seconds or self.spread or self.factor > 1):
            raise InputError(
                "straggler=-1 names no worker to delay; give straggler=RANK, or delay=0 delay_spread=0"
                " slowdown=1"
            )

    def refusal(self, workers: int) -> str | None:
        """Why there is no such straggler among this many workers; None where there is."""
        if self.rank < workers:
            return None
        return f"straggler={self.rank} is not a worker of {workers}; give 0 to {workers - 1}, or -1 for none"

    def begin(self) -> None:
        self.started = time.monotonic()

    def hold(self, comm: Comm, seed: int, epoch: int) -> float:
        """Sleep what this worker owes in this epoch since `begin`, as a segment of the rest; returns the
        seconds.
        """
        if comm.rank != self.rank:
            return 0.0
        synchronise(comm.device)  # else `factor` would count only the time in which work was handed to a GPU
        owed = (self.factor - 1) * (time.monotonic() - self.started) + self.seconds
        owed += self.spread * float(np.random.default_rng((seed, epoch)).random())
        with comm.recorder.inside("rest", "straggle"):
            time.sleep(owed)
        return owed
