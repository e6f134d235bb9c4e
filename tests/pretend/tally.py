"""What the host asks of a pretended device inside the train clock, by epoch and line of code."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.comm.recorder import Recorder

ROOT = Path(__file__).resolve().parent.parent.parent
OURS = tuple(f"{ROOT / package}/" for package in ("harness", "systems"))
# Helpers that act for whoever calls them.
ACTING = ("base/autograd.py", "base/splitmix.py", "comm/clock.py", "comm/recorder.py")
THROUGH = tuple(str(ROOT / "harness" / path) for path in ACTING)

SYNCHRONISATION = "synchronisation"  # the host waits for the device
DRAIN = "drain"  # one of those, of the whole device, while operations between workers are in flight
LAUNCH = "launch"  # an operation of PyTorch that writes memory of the device
COLLECTIVE = "collective"  # an operation between workers


class Note(NamedTuple):
    epoch: int
    kind: str
    what: str
    line: str  # "harness/core/trainer.py:150"


class Tally:
    """Counts of notes; nothing is counted outside the train clock of `recorder`."""

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.counts: Counter[Note] = Counter()

    def note(self, kind: str, what: str) -> None:
        if self.recorder.training:
            self.counts[Note(self.recorder.epoch.epoch, kind, what, line_of_code())] += 1

    def count(self, kind: str, epoch: int) -> int:
        return sum(n for note, n in self.counts.items() if (note.epoch, note.kind) == (epoch, kind))


_asked_by = ["elsewhere"]  # the line for which another thread is at work


@contextlib.contextmanager
def behalf(line: str) -> Iterator[None]:
    """What no line of this thread asks for is asked for by `line`, which waits for this thread."""
    _asked_by.append(line)
    try:
        yield
    finally:
        _asked_by.pop()


def line_of_code() -> str:
    """The innermost line of harness/ or systems/ that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(OURS) and path not in THROUGH:
            return f"{Path(path).relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return _asked_by[-1]
