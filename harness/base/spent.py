"""What a piece of work takes of this machine: seconds, and memory beside what was there before."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Spent:
    """Seconds by the wall clock; bytes resident beyond those before, None where not known (not on Linux)."""

    seconds: float = 0.0
    bytes: int | None = None


@contextlib.contextmanager
def spent() -> Iterator[Spent]:
    """What the body takes, there once it has ended. The kernel's largest resident set of this process, of
    which `getrusage` knows too, begins anew."""
    found, before, start = Spent(), _begin_anew(), time.perf_counter()
    yield found
    found.seconds = time.perf_counter() - start
    if before is not None:
        found.bytes = max(_resident("VmHWM") - before, 0)


def _begin_anew() -> int | None:
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the kernel's word for: the peak is what is there now
        return _resident("VmRSS")
    except (OSError, ValueError):
        return None


def _resident(field: str) -> int:
    """Bytes that the kernel says of this process; ValueError where it does not."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise ValueError(f"the kernel says no {field}")
