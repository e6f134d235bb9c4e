"""What glibc does with memory that is freed: whether it keeps it for the next allocation, and how a dry run
models that."""

import bisect
import contextlib
import ctypes
import os
import sys
import threading

MAPPED = 1 << 30  # bytes from which on a block is mapped by itself, and unmapped when it is freed
TUNABLES, CACHE = "GLIBC_TUNABLES", "glibc.malloc.tcache_count"  # pieces of a size that a thread keeps
STARTED = "HALOBENCH_STARTED"  # in the environment of a process that was started anew, and of its children
PLANNED = threading.local()  # .heap: the `Heap` of the dry run in this thread


def keep_freed_memory() -> None:
    """Let glibc keep what is freed: handing large tensors back to the system after each use and faulting them
    in again costs more than the products that fill them. Small pieces join what is free beside them at once
    (no fast bins)."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        M_MXFAST, M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = 1, -1, -3
        libc.mallopt(M_MMAP_THRESHOLD, MAPPED)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)
        libc.mallopt(M_MXFAST, 0)


def start_without_cache() -> None:
    """Start this process anew, with the same words, where glibc would let threads keep small pieces that are
    freed (its tcache). It cuts such pieces off the memory of every tensor; one that is kept does not join the
    gap beside it when the tensor is freed, and the next tensor of this size does not fit. A worker's peak was
    6 to 22 % larger so.

    glibc reads this setting only when a process starts; processes that this one starts inherit it. To be
    called before anything else is done. A setting of the user's own stays, and so does a process that was not
    started with the words of `sys.argv`, in which a command is only called. It is started anew once at most:
    where an interpreter has privileges of its own, the loader takes the setting away.
    """
    given, words = os.environ.get(TUNABLES, ""), sys.argv[1:]
    called = sys.orig_argv[len(sys.orig_argv) - len(words) :] != words
    if CACHE not in given and STARTED not in os.environ and not called:
        os.environ[TUNABLES], os.environ[STARTED] = f"{given}:{CACHE}=0".lstrip(":"), "1"
        with contextlib.suppress(OSError):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


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

    A block goes into the smallest gap that it fits into, else to the end. To align a tensor, glibc asks for
    112 bytes more, begins the tensor where its alignment says, and frees what is left before and behind it.
    So a tensor may not fit into the gap of another one of its size, unless a gap beside it has joined that.
    """

    LEAST = 1 << 16  # bytes of the smallest block that is followed: smaller ones fit nearly everywhere
    ALIGNED, HEADER, SMALLEST = 64, 16, 32  # bytes: of an alignment, before a block's content, of a block

    def __init__(self) -> None:
        self.idle = 0  # bytes that nobody holds and that are still resident
        self._gaps: list[tuple[int, int, int]] = []  # (begin, size, resident bytes), in ascending order
        self._end = self._touched = 0  # where the last block ends; up to where memory is resident

    def take(self, size: int, tensor: bool) -> Block | None:
        """A new block of `size` bytes, for a tensor or not; None where its size is not modelled (smaller than
        LEAST, or mapped by itself)."""
        if not self.LEAST <= size < MAPPED:
            return None
        size = -(-(size + self.HEADER // 2) // self.HEADER) * self.HEADER
        asked = size + (self.ALIGNED + self.SMALLEST + self.HEADER if tensor else 0)
        gap = min((each for each in self._gaps if each[1] >= asked), key=lambda each: each[1], default=None)
        begin, room, resident = gap or (self._end, asked, self._touched - self._end)
        # Find where the block begins, and what is left behind it.
        before = -(begin + self.HEADER) % self.ALIGNED if tensor else 0
        if 0 < before < self.SMALLEST:
            before += self.ALIGNED
        behind = room - before - size
        if behind <= self.SMALLEST:  # too small to be a block
            size, behind = size + behind, 0
        # Take the memory, and free what is left on the two sides.
        if gap is None:
            self._end += before + size
            self._touched = max(self._touched, self._end)
            resident = min(resident, before + size)
            self.idle -= resident
        else:
            self._gaps.remove(gap)
            self.idle -= resident
            if behind:
                self._free(begin + before + size, behind, max(resident - before - size, 0))
        if before:
            self._free(begin, before, min(resident, before))
        return begin + before, size

    def give(self, block: Block | None) -> None:
        """Free a block, and join it with the gaps beside it."""
        if block is not None:
            self._free(*block, block[1])

    def _free(self, begin: int, size: int, resident: int) -> None:
        self.idle += resident
        place = bisect.bisect(self._gaps, (begin,))
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
