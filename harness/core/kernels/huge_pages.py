"""Memory of huge pages for the rows that a sparse product gathers from.

With pages of 4 kB nearly every gathered row of a large source has its page looked up. Whether an allocator
gives memory that lies in huge pages depends on what was there before. So one piece of memory is asked of the
operating system itself and kept, and products take turns in it.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading

import numpy as np

PAGE = 2 << 20  # bytes of a huge page


class HugePages:
    """Memory that products take turns in; it grows to the largest that was asked for."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._turn = threading.Lock()

    def lent(self, shape: tuple[int, ...], dtype: np.dtype) -> _Lent:
        """A context with an array of undefined content: in the memory that is kept, or, where another thread
        has that, in memory of its own.
        """
        size = math.prod(shape) * dtype.itemsize
        turn = self._turn if self._turn.acquire(blocking=False) else None
        try:
            memory = self._of(size) if turn else allocate(size)
        except BaseException:
            if turn:
                turn.release()
            raise
        return _Lent(memory[:size].view(dtype).reshape(shape), turn)

    def _of(self, size: int) -> np.ndarray:
        if size > len(self._memory):
            self._memory = np.empty(0, np.uint8)  # the smaller one is given back first
            self._memory = allocate(size)
        return self._memory


class _Lent:
    """An array, and the lock that is released when its context ends. It is a class, since a generator would
    take longer than a product of few rows."""

    __slots__ = ("array", "turn")

    def __init__(self, array: np.ndarray, turn: threading.Lock | None):
        self.array, self.turn = array, turn

    def __enter__(self) -> np.ndarray:
        return self.array

    def __exit__(self, *error: object) -> None:
        if self.turn is not None:
            self.turn.release()


def allocate(size: int) -> np.ndarray:
    """`size` bytes, rounded up to whole pages, that begin where a huge page does and are in huge pages where
    the operating system has them.
    """
    size = -(-size // PAGE) * PAGE
    mapped = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system built without them
        mapped.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(mapped, np.uint8)
    begin = -memory.ctypes.data % PAGE
    return memory[begin : begin + size]
