"""A worker that is slower than the others, on purpose: a heterogeneous cluster, or a neighbour that takes its
cores. DIGEST, section 5.2, has one with a random delay in every epoch.
"""

import time
from dataclasses import dataclass

import numpy as np

from harness.base.bounds import WAIT, number
from harness.comm.comm import Comm
from harness.comm.names import STRAGGLE
from harness.comm.recorder import synchronise


@dataclass
class Straggler:
    """One slow worker. It sleeps in every epoch, in its `rest`, after its (last) backward pass and before the
    workers combine what they have: whoever waits for it there loses that time too.

    rank           of the slow worker
    delay          seconds added to each of its epochs
    delay_spread   up to so many seconds more, drawn for each epoch from the run's seed
    slowdown       how many times as long its own work of an epoch takes, without what it waited for others;
                   1: no longer
    """

    rank: int = number(0)
    delay: float = number(0.0, 0, WAIT)
    delay_spread: float = number(0.0, 0, WAIT)
    slowdown: float = number(1.0, 1, 10**6)

    def begin(self) -> None:
        """Called when the train clock of an epoch begins: `slowdown` goes by the time from here on."""
        self.started = time.monotonic()

    def hold(self, comm: Comm, seed: int, epoch: int) -> float:
        """Sleep the delay that the fields give this worker in this epoch, which began with `begin`; returns
        the seconds, 0 on other workers."""
        if comm.rank != self.rank:
            return 0.0
        owed = self.delay + self.delay_spread * float(np.random.default_rng((seed, epoch)).random())
        if self.slowdown > 1:
            synchronise(comm.device)  # else only the time in which work was handed to a GPU would count
            waited = sum(span.end - span.start for span in comm.recorder.epoch.spans if span.kind == "wait")
            owed += (self.slowdown - 1) * max(0.0, time.monotonic() - self.started - waited)
        with comm.recorder.inside("rest", STRAGGLE):
            time.sleep(owed)
        return owed
