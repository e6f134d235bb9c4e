"""What becomes of memory that is freed: glibc keeps it for what comes next, until it is told not to."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import threading

MAPPED = 1 << 30  # bytes from which on a block is mapped by itself, and unmapped when it is freed
PLANNED = threading.local()  # .heap: the `Heap` of the dry run that this thread runs


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: handing large tensors back to the system after each use and faulting them
    in again costs more than the products that fill them."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def give_back_freed_memory() -> None:
    """Hand all that is free now to the system, for once: after something large that does not come again, and
    whose pieces may lie where nothing else fits."""
    if (heap := getattr(PLANNED, "heap", None)) is not None:
        heap.trim()
    else:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


Block = tuple[int, int]  # where it begins and its bytes


class Heap:
    """glibc's heap with freed memory kept, as a dry run fills it: where blocks lie, and what stays resident
    between them.

    A block goes into the smallest gap that it fits into, at the gap's beginning, else to the end. For the
    alignment of a tensor glibc asks for SLACK bytes more and cuts them off again. Small objects, which live
    beside tensors, take the first PINNED of these cuttings: there a block of the same size fits no more once
    this one is freed, and gaps do not join. PINNED is fitted to measured peaks (docs/howto/plan.md).
    """

    LEAST = 1 << 16  # bytes of the smallest block that is followed: smaller ones fit nearly everywhere
    SLACK = 96
    PINNED = 48

    def __init__(self) -> None:
        self.idle = 0  # bytes that nobody holds and that are still resident
        self._gaps: list[tuple[int, int, int]] = []  # begin, size, resident bytes; by where they begin
        self._end = self._touched = 0  # of the blocks; how far memory behind them is resident
        self._pinned = 0

    def take(self, size: int, tensor: bool) -> Block | None:
        """A new block; None where it is not followed."""
        if not self.LEAST <= size < MAPPED:
            return None
        kept = size
        if tensor:
            size += self.SLACK
            kept = kept if self._pinned < self.PINNED else size
            self._pinned += 1
        gap = min((each for each in self._gaps if each[1] >= size), key=lambda each: each[1], default=None)
        if gap is None:
            begin, self._end = self._end, self._end + size
            self.idle -= min(size, self._touched - begin)
            self._touched = max(self._touched, self._end)
        else:
            begin, room, resident = gap
            left = max(resident - size, 0)
            self._gaps[self._gaps.index(gap)] = begin + size, room - size, left
            self.idle -= resident - left
        return begin, kept

    def give(self, block: Block | None) -> None:
        """A block is freed, and joins the gaps beside it."""
        if block is None:
            return
        begin, size = block
        self.idle += size
        place, resident = bisect.bisect(self._gaps, (begin,)), size
        for near in (place, place - 1):
            if 0 <= near < len(self._gaps):
                start, room, more = self._gaps[near]
                if start == begin + size or start + room == begin:
                    begin, size, resident = min(start, begin), size + room, resident + more
                    del self._gaps[near]
        if begin + size == self._end:
            self._end = begin
        else:
            bisect.insort(self._gaps, (begin, size, resident))

    def trim(self) -> None:
        """All that nobody holds is handed back."""
        self._gaps = [(begin, size, 0) for begin, size, _ in self._gaps]
        self.idle, self._touched = 0, self._end
