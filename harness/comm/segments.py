"""The memory that the workers of one host share: every worker makes two segments and maps those of all.

    inbox segment   a head (a byte that says that the owner has left), and for every worker two rings: its
                    messages to the owner, and its acknowledgements of the owner's
    data segment    the bytes that its owner sends, in regions that it chooses

Of an inbox only the head is written by its owner; the others put into its rings. A data segment is written by
its owner alone. The segments are files without a name (memfd): their maker tells the others its process, the
descriptors and a label, and they open them through the maker's descriptors in /proc, which only this user's
processes can. They are gone with the last process that has them mapped, however the processes end.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from dataclasses import dataclass
from pathlib import Path

from harness.base.errors import InputError
from harness.base.machine import LIMITS, LimitReached
from harness.comm.meeting import Meeting
from harness.comm.ring import Ring

RECORDS = 1024  # messages from one worker to another that may be unacknowledged
HEAD = LINE = 64  # bytes: a cache line, where regions begin
LEFT = 0  # where in the head of its inbox a worker writes that it has left
ADDRESSES = 1 << 46  # bytes of addresses that all data segments together may take of a process's 2^47
MESSAGES, ACKNOWLEDGEMENTS = 0, 1  # the two rings of each worker in an inbox


def make_memory(label: str, length: int) -> int:
    """The descriptor of `length` bytes of zeros, to be closed once everybody has them mapped: maps stay.
    OSError where there are none to be had.
    """
    descriptor = os.memfd_create(label)
    try:
        os.ftruncate(descriptor, length)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_memory(process: int, descriptor: int, label: str, length: int) -> mmap.mmap:
    """Map what another process, or this one, has made. FileNotFoundError where `process` has no such memory:
    in another container or on another host its number means another process.
    """
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if os.readlink(path) != f"/memfd:{label} (deleted)":
        raise FileNotFoundError(f"process {process} is another one here")
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


@dataclass
class Segments:
    """By worker: inbox segment, data segment, process."""

    inboxes: list[mmap.mmap]
    data: list[mmap.mmap]
    pids: list[int]


def ring(inbox: mmap.mmap, sender: int, kind: int, new: bool = False) -> Ring:
    """The ring in `inbox` that worker `sender` puts messages or acknowledgements (`kind`) into."""
    return Ring(inbox, HEAD + (2 * sender + kind) * Ring.nbytes(RECORDS), RECORDS, new=new)


def share(meeting: Meeting) -> Segments:
    """Make this worker's two segments and map all workers'. Collective.

    InputError, on all workers alike, where one of them cannot.
    """
    rank, size = meeting.rank, meeting.size
    # A data segment is twice as long as there is memory at all, and all of them fit into a process's
    # addresses: pages are taken only when they are written.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lengths = (
        HEAD + 2 * size * Ring.nbytes(RECORDS),
        min(2 * memory, ADDRESSES // size // mmap.PAGESIZE * mmap.PAGESIZE),
    )
    # Make the own segments. The random number in their label tells others that they opened the right ones: a
    # process id means another process in another container.
    label = f"halobench-exchange-{random.SystemRandom().getrandbits(62):016x}"
    opened: list[int] = []
    reason, maps = "", {}
    try:
        opened.extend(make_memory(label, length) for length in lengths)
        maps[rank] = [mmap.mmap(descriptor, length) for descriptor, length in zip(opened, lengths)]
        for p in range(size):
            for kind in (MESSAGES, ACKNOWLEDGEMENTS):
                ring(maps[rank][0], p, kind, new=True)
    except (OSError, ValueError) as error:
        reason = str(error)
    # Tell the others the process, the label and the two descriptors; no descriptors where there are none.
    own = (os.getpid(), label, *(opened if not reason else ()))
    told = meeting.tell("memory", own)
    # Map theirs. The rings in an inbox were made before its worker told of them.
    try:
        for p, (process, theirs, *descriptors) in enumerate(told):
            if not descriptors:
                reason = reason or f"worker {p} has none to give"
            elif p != rank and not reason:
                maps[p] = [
                    open_memory(process, descriptor, theirs, length)
                    for descriptor, length in zip(descriptors, lengths)
                ]
    except (OSError, ValueError) as error:
        reason = str(error)
    # All workers share memory, or none does. Once all have told of that, every worker has mapped everything,
    # so the descriptors are needed no more.
    reasons = meeting.tell("memory is lacking", reason)
    for descriptor in opened:
        os.close(descriptor)
    if any(os.strerror(errno.EMFILE) in each for each in reasons):  # sockets need more of them
        raise LimitReached(LIMITS[errno.EMFILE])
    if any(reasons):
        raise InputError(
            f"transport=memory: the workers cannot share memory{f' ({reason})' if reason else ''}; give"
            " transport=sockets"
        )
    return Segments(
        [maps[p][0] for p in range(size)],
        [maps[p][1] for p in range(size)],
        [process for process, *_ in told],
    )
