"""When a CUDA device gets to what its host asks of it, in seconds of the host's clock.

A device works behind its host: a kernel that has been launched stands in a queue, a stream. A moment of a
stream is an event: it is recorded behind what the stream has been given so far, and passes when that is
through. What the host's own clock says in between is when it asked, not when anything was done.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass

import torch


@dataclass
class Mark:
    """A moment of a stream, known once the stream has got there.

    event   recorded on the stream
    base    an event that passed when the host's clock said `at` seconds of CLOCK_MONOTONIC
    """

    event: torch.cuda.Event
    base: torch.cuda.Event
    at: float

    @property
    def passed(self) -> bool:
        return bool(self.event.query())

    @property
    def seconds(self) -> float:
        """Of CLOCK_MONOTONIC, once it has passed: at + (event - base)."""
        return self.at + float(self.base.elapsed_time(self.event)) / 1e3


class DeviceClock:
    """The clock of one device: marks of its streams. Events measure from one another, so they are tied to the
    host's clock once in every epoch; over a longer time the two would drift apart.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.tied: tuple[torch.cuda.Event, float] | None = None

    def tie(self) -> None:
        """Wait until the current stream has nothing left to do, and take this moment as the base of marks."""
        self.wait()
        base = self._record()
        self.wait()
        self.tied = base, time.monotonic()

    def mark(self) -> Mark | None:
        """The current stream's present end; None where nothing has been timed yet on this device."""
        return None if self.tied is None else Mark(self._record(), *self.tied)

    def wait(self) -> None:
        """Return once the current stream has done what it was given. Other streams, on which operations
        between workers are in flight, are not waited for.
        """
        torch.cuda.current_stream(self.device).synchronize()

    def _record(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event


@functools.cache
def clock_of(device: torch.device) -> DeviceClock | None:
    """The device's clock, always the same one; None for the host, whose work is done when it is asked for."""
    return DeviceClock(device) if device.type == "cuda" else None
