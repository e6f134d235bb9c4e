"""Threads that share the cores of hosts.

A host of C cores on which n threads have something to do gives each of them min(1, C / n) of a core, as a
fair scheduler does. A job of k threads, each with s CPU seconds before it, is then through when

    integral of min(1, C / n(t)) dt  =  s

All jobs of a host advance at one speed, so a clock of the host's own that runs at that speed says when each
ends: s after it began.

The threads are those that train, as many as a worker's device has cores, those that make mini-batches beside
them, and those of the transport.
"""

import heapq
import math
from collections.abc import Sequence

from harness.model.replay.program import Beside


class Cores:
    """The jobs under way at one moment, and when the next of them ends.

    cores   of each host; infinite where its threads share nothing
    """

    def __init__(self, cores: Sequence[float]):
        self.hosts = [_Host(each) for each in cores]
        # When the next job ends, its name, and its host; None: the jobs under way have changed.
        self._next: tuple[float, int, int] | None = None

    def add(self, host: int, name: int, seconds: float, threads: int, now: float) -> None:
        """Begin a job of so many threads, which needs `seconds` where each of them has a core."""
        self.hosts[host].add(name, seconds, threads, now)
        self._next = None

    def next_end(self) -> float:
        """The moment at which the next job ends; infinite where none is under way."""
        if self._next is None:
            busy = ((own.next_end(), own.jobs[0][1], n) for n, own in enumerate(self.hosts) if own.jobs)
            self._next = min(busy, default=(math.inf, -1, -1))
        return self._next[0]

    def end(self) -> int:
        """Go on to `next_end()` and give the name of the job that ends then: the least name where several
        do."""
        self.next_end()
        assert self._next is not None
        now, name, host = self._next
        self.hosts[host].end(now)
        self._next = None
        return name


class _Host:
    """The jobs of one host.

    clock   CPU seconds that each of its threads has had, from the beginning up to `now`
    """

    def __init__(self, cores: float):
        self.cores, self.now, self.clock, self.threads = cores, 0.0, 0.0, 0
        self.jobs: list[tuple[float, int, int]] = []  # a heap of (clock at its end, name, threads)

    def add(self, name: int, seconds: float, threads: int, now: float) -> None:
        if self.jobs:
            # Rounding must not carry the clock past a job that has not been asked for.
            self.clock = min(self.clock + (now - self.now) * self._speed(), self.jobs[0][0])
        self.now = now
        heapq.heappush(self.jobs, (self.clock + seconds, name, threads))
        self.threads += threads

    def next_end(self) -> float:
        return self.now + (self.jobs[0][0] - self.clock) / self._speed()

    def end(self, now: float) -> None:
        self.now = now
        self.clock, _, threads = heapq.heappop(self.jobs)
        self.threads -= threads

    def _speed(self) -> float:
        """Of one thread; 1 where each has a core."""
        return min(1.0, self.cores / self.threads)


class Making:
    """How far the threads beside a worker's training are with its batches.

    asked, begun, under_way   how many batches the training has asked for, how many are begun, and how many of
                              these are not made yet
    """

    def __init__(self, beside: Beside):
        self.beside = beside
        self.asked = self.begun = self.under_way = 0
        self.made: set[int] = set()

    def ask(self) -> int:
        """The training asks for its next batch; gives its number."""
        self.asked += 1
        return self.asked - 1

    def begin(self) -> list[int]:
        """Begin as many batches as threads are free and as `ahead` allows. Returns their numbers, in their
        order."""
        end = min(len(self.beside.batches), self.asked + self.beside.ahead)
        count = max(0, min(end - self.begun, self.beside.threads - self.under_way))
        self.begun, self.under_way = self.begun + count, self.under_way + count
        return list(range(self.begun - count, self.begun))

    def end(self, batch: int) -> None:
        """A batch is made."""
        self.made.add(batch)
        self.under_way -= 1
