"""When the pretended device would get to what it is asked: a time of its own, in which nothing is measured.

The host takes HOST_S for each launch and the device KERNEL_S, so that a device that is kept busy falls behind
its host as a real one does. To wait for a stream, or for a value, moves the host's time to when that is
through. Operations between workers begin when the last of them has begun, and take as long as `rate` says
(`tests.pretend.collectives`). So every time follows from what was asked for in which order, and is the same
in every run, however busy the machine is.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol

HOST_S, KERNEL_S = 5e-6, 20e-6
EVENT_S = 1e-9  # in which a stream passes an event: never before the host has waited for it


class Flight(Protocol):
    """An operation between workers, as a stream sees it."""

    @property
    def known(self) -> bool:
        """Whether all workers have begun it."""

    @property
    def due(self) -> float:
        """When it is through; waits until all workers have begun it."""


class Timeline:
    """The times of one worker's host and of its device's streams, in seconds."""

    def __init__(self) -> None:
        self.host = time.monotonic()
        self.main = self.current = Stream(self)

    def monotonic(self) -> float:
        return self.host

    def launch(self, seconds: float = KERNEL_S) -> None:
        """A kernel on the current stream."""
        self.host += HOST_S
        self.current.ready = max(self.current.ready, self.host) + seconds

    def wait(self, until: float) -> None:
        self.host = max(self.host, until)

    @contextlib.contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before


class Stream:
    """A queue of the device: `ready` says when what it was given so far is through.

    flights   that it waits for, and that not all workers had begun when it was told to
    """

    def __init__(self, timeline: Timeline):
        self.timeline, self.begun, self.flights = timeline, timeline.host, list[Flight]()

    @property
    def ready(self) -> float:
        self.begun = max([self.begun, *(flight.due for flight in self.flights)])
        self.flights.clear()
        return self.begun

    @ready.setter
    def ready(self, seconds: float) -> None:
        self.begun = seconds


class Event:
    """A moment of a stream."""

    def __init__(self, timeline: Timeline):
        self.timeline = timeline

    def record(self, stream: Stream) -> None:
        stream.begun = max(self.timeline.host, stream.begun) + EVENT_S
        self.begun, self.flights = stream.begun, list(stream.flights)

    def query(self) -> bool:
        return all(flight.known for flight in self.flights) and self.at <= self.timeline.host

    @property
    def at(self) -> float:
        return max([self.begun, *(flight.due for flight in self.flights)])

    def elapsed_time(self, later: Event) -> float:
        """Milliseconds; an error where the device has not got to both."""
        if not (self.query() and later.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1e3 * (later.at - self.at)
