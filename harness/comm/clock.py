"""When a CUDA device gets to what its host asks of it, in seconds of the host's clock.

A device works behind its host: a launched kernel waits in a queue, a stream. A moment of a stream is
therefore taken with a CUDA event: the event is recorded behind all work that the stream has been given so
far, and passes when that work is done. The host's own clock would only say when the host asked for it.
"""

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
        """When the event passed, in seconds of CLOCK_MONOTONIC: at + (event - base). Valid once it has."""
        return self.at + float(self.base.elapsed_time(self.event)) / 1e3


class DeviceClock:
    """The clock of one device, which makes marks of its streams. CUDA tells only the time between two events,
    so events are tied to the host's clock, once per epoch: over a longer time the two would drift apart.

    stream   on which this worker computes
    """

    def __init__(self, device: torch.device):
        self.device, self.stream = device, torch.cuda.current_stream(device)
        self.tied: tuple[torch.cuda.Event, float] | None = None

    def tie(self) -> None:
        """Wait until the worker's stream has nothing left to do, and base marks on this moment."""
        # Asked once per epoch: it takes torch longer to say which stream is the current one than to record.
        self.stream = torch.cuda.current_stream(self.device)
        self.wait()
        base = self._record(self.stream)
        self.wait()
        self.tied = base, time.monotonic()

    def mark(self, stream: torch.cuda.Stream | None = None) -> Mark | None:
        """A mark behind what `stream` (None: the worker's) was given so far; None before the first `tie`."""
        return None if self.tied is None else Mark(self._record(stream or self.stream), *self.tied)

    def wait(self) -> None:
        """Return once the worker's stream has done what it was given. The streams on which operations between
        workers are in flight are not waited for.
        """
        self.stream.synchronize()

    @staticmethod
    def _record(stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event


@functools.cache
def clock_of(device: torch.device) -> DeviceClock | None:
    """The device's clock, one object per device; None for the CPU, whose work is done when a call returns."""
    return DeviceClock(device) if device.type == "cuda" else None
