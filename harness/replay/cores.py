"""Threads that share the cores of hosts.

A host of C cores on which n threads have something to do gives each of them min(1, C / n) of a core, as a
fair scheduler does. A job of k threads, each with s CPU seconds before it, is then through when

    integral of min(1, C / n(t)) dt  =  s

All jobs of a host advance at one speed, so a clock of the host's own that runs at that speed says when each
ends: s after it began.

The threads are those that train, as many as a worker's device has cores, and those that make mini-batches
beside them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from harness.replay.program import Beside


class Cores:
    """The jobs under way at one moment, and when the next of them ends.

    cores   of each host; infinite where its threads share nothing
    """

    def __init__(self, cores: Sequence[float]):
        self.cores, self.now = list(cores), 0.0
        self.clocks = [0.0] * len(cores)  # by host, what a job of its has had since the beginning
        self.threads = [0] * len(cores)  # by host, those of the jobs under way
        self.jobs: list[list[tuple[float, int, int]]] = [[] for _ in cores]  # heaps: (end, name, threads)

    def add(self, host: int, name: int, seconds: float, threads: int, now: float) -> None:
        """Begin a job of so many threads, which needs `seconds` where each of them has a core."""
        self._pass_to(now)
        heapq.heappush(self.jobs[host], (self.clocks[host] + seconds, name, threads))
        self.threads[host] += threads

    def next_end(self) -> float:
        """The moment at which the next job ends; infinite where none is under way."""
        return min((self._end(host) for host in range(len(self.cores))), default=math.inf)

    def end(self) -> int:
        """Go on to `next_end()` and give the name of the job that ends then: of several the least."""
        moment = self.next_end()
        at = [host for host in range(len(self.cores)) if self._end(host) == moment]
        host = min(at, key=lambda each: self.jobs[each][0][1])
        self._pass_to(moment)
        end, name, threads = heapq.heappop(self.jobs[host])
        self.clocks[host] = end  # not what rounding made of it
        self.threads[host] -= threads
        return name

    def _end(self, host: int) -> float:
        jobs = self.jobs[host]
        return self.now + (jobs[0][0] - self.clocks[host]) / self._speed(host) if jobs else math.inf

    def _speed(self, host: int) -> float:
        """Of one thread; 1 where each has a core."""
        return min(1.0, self.cores[host] / max(1, self.threads[host]))

    def _pass_to(self, now: float) -> None:
        if now <= self.now:
            return
        for host, jobs in enumerate(self.jobs):
            if jobs:
                # Rounding must not carry a host past a job that has not been asked for.
                passed = self.clocks[host] + (now - self.now) * self._speed(host)
                self.clocks[host] = min(passed, jobs[0][0])
        self.now = now


class Making:
    """How far the threads beside a worker's training are with its batches."""

    def __init__(self, beside: Beside):
        self.beside = beside
        self.asked = self.begun = self.under_way = 0
        self.made: set[int] = set()

    def ask(self) -> int:
        """The training asks for its next batch; gives its number."""
        self.asked += 1
        return self.asked - 1

    def begin(self) -> list[int]:
        """The batches that are begun now: in their order, one per free thread, so many ahead."""
        end = min(len(self.beside.batches), self.asked + self.beside.ahead)
        count = max(0, min(end - self.begun, self.beside.threads - self.under_way))
        self.begun, self.under_way = self.begun + count, self.under_way + count
        return list(range(self.begun - count, self.begun))

    def end(self, batch: int) -> None:
        """A batch is made."""
        self.made.add(batch)
        self.under_way -= 1
