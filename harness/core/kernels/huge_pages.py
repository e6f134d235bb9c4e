"""Memory of huge pages for the rows that a sparse product gathers from.

With pages of 4 kB nearly every gathered row of a large source has its page looked up. Whether an allocator
gives memory that lies in huge pages depends on what was there before. So every thread asks the operating
system itself for one piece of memory, and keeps it.
"""

import contextlib
import math
import mmap
import threading

import numpy as np

PAGE = 2 << 20  # bytes of a huge page


class HugePages(threading.local):
    """Memory that a thread's products use one after the other; it grows to the largest that was asked for.
    Every thread has its own."""

    def __init__(self) -> None:
        self.kept = np.empty(0, np.uint8)

    def array(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An array of undefined content, in the place of the one that this thread was given before."""
        size = math.prod(shape) * dtype.itemsize
        if size > len(self.kept):
            self.kept = np.empty(0, np.uint8)  # the smaller one is given back first
            self.kept = allocate(size)
        return self.kept[:size].view(dtype).reshape(shape)


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
