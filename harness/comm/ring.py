"""A ring of records from one process to one other, in memory that both have mapped.

A ring is a semaphore (of POSIX, shared by processes) and `capacity` places for records, which are used in
turn: record k lies at place k mod capacity. One process puts and one takes, and each counts for itself how
many records it has put or taken, so the two share nothing but the places and the semaphore.
"""

import ctypes
import errno
import functools
import mmap
import os
import struct
import time

RECORD = struct.Struct("<qqqd")
Record = tuple[int, int, int, float]
SEMAPHORE_BYTES = 64  # a sem_t, and the rest of its cache line


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class Ring:
    """At most `capacity` records (int, int, int, float), taken in the order in which they were put.

    The semaphore's value is the number of records that lie here. It wakes the process that waits for one. It
    also orders memory: whatever was written before a `put`, anywhere in shared memory, is there for the
    process that has taken the record.

    memory, at   the ring lies in `memory` from byte `at` on
    new          make the ring; the owner of the memory does so once, before any other process uses the ring
    """

    def __init__(self, memory: mmap.mmap, at: int, capacity: int, new: bool = False):
        self.memory, self.records, self.capacity = memory, at + SEMAPHORE_BYTES, capacity
        self.libc = _libc()
        self.semaphore = ctypes.byref(ctypes.c_char.from_buffer(memory, at))
        self.count = 0  # records put by this process, or taken by it
        if new and self.libc.sem_init(self.semaphore, 1, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    @staticmethod
    def nbytes(capacity: int) -> int:
        """Bytes that a ring of this capacity takes, in whole cache lines."""
        return -(-(SEMAPHORE_BYTES + capacity * RECORD.size) // SEMAPHORE_BYTES) * SEMAPHORE_BYTES

    def put(self, first: int, second: int = 0, third: int = 0, fourth: float = 0.0) -> None:
        """Add a record. The caller must make sure that fewer than `capacity` records lie here, so that no
        place is written before its last record has been taken."""
        # The record first, the semaphore second: the other process never takes a place that is half written.
        RECORD.pack_into(
            self.memory, self.records + self.count % self.capacity * RECORD.size, first, second, third, fourth
        )
        self.count += 1
        self.libc.sem_post(self.semaphore)

    def take(self, patience: float = 0.0) -> Record | None:
        """Take the oldest record, waiting at most `patience` seconds; None where none has come by then, or a
        signal has interrupted the wait."""
        # Count one record down if there is one; otherwise sleep until one is put.
        if self.libc.sem_trywait(self.semaphore) != 0 and (patience <= 0 or not self._sleep(patience)):
            return None
        record = RECORD.unpack_from(self.memory, self.records + self.count % self.capacity * RECORD.size)
        self.count += 1
        return record

    def _sleep(self, patience: float) -> bool:
        # sem_timedwait goes by the wall clock; if that is set back, this only takes longer
        until = time.time() + patience
        if (
            self.libc.sem_timedwait(self.semaphore, ctypes.byref(_Timespec(int(until), int(until % 1 * 1e9))))
            == 0
        ):
            return True
        if (error := ctypes.get_errno()) in (errno.ETIMEDOUT, errno.EINTR):
            return False
        raise OSError(error, os.strerror(error))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)  # calls release the interpreter's lock
