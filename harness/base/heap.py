"""What becomes of memory that is freed: glibc keeps it for what comes next, until it is told not to."""

from __future__ import annotations

import contextlib
import ctypes
import sys


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: handing large tensors back to the system after each use and faulting them
    in again costs more than the products that fill them."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL("libc.so.6")
            M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
            libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
            libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def give_back_freed_memory() -> None:
    """Hand all that is free now to the system, for once: after something large that does not come again, and
    whose pieces may lie where nothing else fits."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)
