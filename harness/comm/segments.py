"""The memory that the workers of one host share: every worker makes two segments and maps those of all.

    inbox segment   a head (a byte that says that the owner has left), and for every worker two rings: its
                    messages to the owner, and its acknowledgements of the owner's
    data segment    the bytes that its owner sends, in regions that it chooses

The owner of an inbox writes its head and takes from its rings; the other workers put into the rings. A data
segment is written by its owner alone. The segments are files without a name (memfd). Their maker tells the
others its process id, the descriptors and a label; the others open them through the maker's descriptors in
/proc, which only processes of the same user may do. The kernel frees a segment with the last process that has
it mapped, however the processes end.
"""

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
LEFT = 0  # the byte in the head of its inbox in which a worker writes that it has left
ADDRESSES = 1 << 46  # bytes of address space for all data segments together, of the 2^47 that a process has
MESSAGES, ACKNOWLEDGEMENTS = 0, 1  # the two rings of each worker in an inbox


def make_memory(label: str, length: int) -> int:
    """Make `length` bytes of zeros; returns their descriptor, to be closed once all workers have mapped them
    (the maps stay). Raises OSError where the system gives none.
    """
    descriptor = os.memfd_create(label)
    try:
        os.ftruncate(descriptor, length)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_memory(process: int, descriptor: int, label: str, length: int) -> mmap.mmap:
    """Map memory that `process` has made, which may be this one. Raises FileNotFoundError where that process
    has no such memory: in another container or on another host its id means another process.
    """
    path = Path(f"/proc/{process}/fd/{descriptor}")
    if os.readlink(path) != f"/memfd:{label} (deleted)":
        raise FileNotFoundError(f"process {process} is another one here")
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


@dataclass
class Segments:
    """Each worker's inbox segment, data segment and process id, by worker."""

    inboxes: list[mmap.mmap]
    data: list[mmap.mmap]
    pids: list[int]


def ring(inbox: mmap.mmap, sender: int, kind: int, new: bool = False) -> Ring:
    """The ring in `inbox` that worker `sender` puts messages or acknowledgements (`kind`) into."""
    return Ring(inbox, HEAD + (2 * sender + kind) * Ring.nbytes(RECORDS), RECORDS, new=new)


def share(meeting: Meeting) -> Segments:
    """Make this worker's two segments and map all workers'. Collective.

    Raises InputError, on all workers alike, where one of them cannot; LimitReached where one of them may open
    no more files.
    """
    rank, size = meeting.rank, meeting.size
    # Make a data segment twice as long as this host's memory, or as long as the address space allows: pages
    # are taken only when they are written.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lengths = (
        HEAD + 2 * size * Ring.nbytes(RECORDS),
        min(2 * memory, ADDRESSES // size // mmap.PAGESIZE * mmap.PAGESIZE),
    )
    # Make the own segments. By the random number in the label others see that they opened the right ones: in
    # another container the process id means another process.
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
    # Tell the others the process id, the label and the two descriptors, or no descriptors if making them
    # failed.
    own = (os.getpid(), label, *(opened if not reason else ()))
    told = meeting.tell("memory", own)
    # Map the others' segments. Every worker has made its rings before it told of them.
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
    # All workers share memory, or none does: each tells whether it could map everything. Once all have told,
    # nobody needs the descriptors any more.
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
