"""What glibc does with memory that is freed: whether it keeps it for the next allocation, and how a dry run
models that."""

import bisect
import contextlib
import ctypes
import threading

MAPPED = 1 << 30  # bytes from which on a block is mapped by itself, and unmapped when it is freed
PLANNED = threading.local()  # .heap: the `Heap` of the dry run in this thread


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: handing large tensors back to the system after each use and faulting them
    in again costs more than the products that fill them."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def give_back_freed_memory() -> None:
    """Hand all memory that is free now to the system, once. For use after something large that does not come
    again, and whose pieces may lie where nothing else fits."""
    if (heap := getattr(PLANNED, "heap", None)) is not None:
        heap.trim()
    else:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


Block = tuple[int, int]  # where it begins and its bytes


class Heap:
    """A model of glibc's heap with freed memory kept, as a dry run fills it: where blocks lie, and how much
    freed memory stays resident between them.

    A block goes into the smallest gap that it fits into, at the gap's beginning, else to the end. To align a
    tensor, glibc asks for SLACK bytes more and cuts them off again. Small objects, which live beside tensors,
    take the first PINNED of these pieces. Beside such an object, the gap of a freed tensor is too small for a
    new tensor of the same size, and does not join the next gap. PINNED is fitted to measured peaks
    (docs/howto/plan.md).
    """

    LEAST = 1 << 16  # bytes of the smallest block that is followed: smaller ones fit nearly everywhere
    SLACK = 96
    PINNED = 48

    def __init__(self) -> None:
        self.idle = 0  # bytes that nobody holds and that are still resident
        self._gaps: list[tuple[int, int, int]] = []  # (begin, size, resident bytes), in ascending order
        self._end = self._touched = 0  # where the last block ends; up to where memory is resident
        self._pinned = 0  # tensors so far

    def take(self, size: int, tensor: bool) -> Block | None:
        """A new block of `size` bytes, for a tensor or not; None where its size is not modelled (smaller than
        LEAST, or mapped by itself)."""
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
            place = self._gaps.index(gap)
            # A gap that is filled is none: left here, it would keep the gaps on its two sides apart.
            self._gaps[place : place + 1] = [(begin + size, room - size, left)] if room > size else []
            self.idle -= resident - left
        return begin, kept

    def give(self, block: Block | None) -> None:
        """Free a block, and join it with the gaps beside it."""
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
            self._end, self._touched = begin, self._touched - (size - resident)
        else:
            bisect.insort(self._gaps, (begin, size, resident))

    def trim(self) -> None:
        """Hand all that nobody holds back to the system."""
        self._gaps = [(begin, size, 0) for begin, size, _ in self._gaps]
        self.idle, self._touched = 0, self._end
