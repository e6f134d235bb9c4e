"""The memory that the workers of one host share: every worker makes a piece and maps those of the others.

A piece is a file without a name (memfd). Its maker tells the others its process id, the descriptor and a
random number, which is in the file's label; the others open it through the maker's descriptor in /proc, which
only processes of the same user may do. The kernel frees a piece with the last process that has it mapped,
however the processes end.

The pieces through which workers exchange (`share`) have two parts:

    inbox   a head (a byte that says that the owner has left), and for every worker two rings: its messages to
            the owner, and its acknowledgements of the owner's
    data    the bytes that the owner sends, in regions that it chooses

The owner of an inbox writes its head and takes from its rings; the other workers put into the rings. The data
are written by their owner alone.
"""

import errno
import mmap
import os
import random
from collections.abc import Callable, Collection, Sequence

from harness.base.errors import InputError
from harness.base.machine import LIMITS, LimitReached
from harness.comm.meeting import Meeting
from harness.comm.ring import Ring

RECORDS = 1024  # messages from one worker to another that may be unacknowledged
HEAD = LINE = 64  # bytes: a cache line, where regions begin
LEFT = 0  # the byte in the head of its inbox in which a worker writes that it has left
ADDRESSES = 1 << 46  # bytes of address space for all data together, of the 2^47 that a process has
MESSAGES, ACKNOWLEDGEMENTS = 0, 1  # the two rings of each worker in an inbox

# (what is told, this worker's numbers) -> every worker's numbers, by rank. Collective.
Tell = Callable[[str, list[int]], list[list[int]]]


class Unshared(Exception):
    """The workers cannot share memory; raised on all alike.

    worker   the first worker that failed
    made     whether all had made their pieces, so that it was mapping them that failed
    """

    def __init__(self, worker: int, number: int, made: bool):
        what = "cannot open the others' memory" if made else "gets no memory"
        foreign = number == errno.ESRCH
        why = "their process ids mean other processes here" if foreign else os.strerror(number)
        super().__init__(f"worker {worker} {what}: {why}")
        self.worker, self.made = worker, made


def map_pieces(
    kind: str,
    rank: int,
    lengths: Sequence[int],
    tell: Tell,
    *,
    taken: bool = False,
    begin: Callable[[mmap.mmap], None] = lambda own: None,
    among: Collection[int] | None = None,
) -> tuple[dict[int, mmap.mmap], list[int]]:
    """Every worker p makes a piece of lengths[p] zero bytes, or none where that is 0. Gives the pieces of the
    workers `among` (None: of all), by worker, and all workers' process ids. Collective. Raises Unshared, or
    LimitReached where a worker may open no more files, on all alike.

    kind    the first part of the pieces' labels
    taken   take the pages now: without this, too little memory would kill the process at a later write
    begin   is called with this worker's own piece before any other worker has it
    """
    token, descriptor, wrong = random.SystemRandom().getrandbits(62), -1, 0
    maps: dict[int, mmap.mmap] = {}
    try:
        try:
            if lengths[rank]:
                descriptor = os.memfd_create(_label(kind, token))
                if taken:
                    os.posix_fallocate(descriptor, 0, lengths[rank])
                else:
                    os.ftruncate(descriptor, lengths[rank])
                maps[rank] = mmap.mmap(descriptor, lengths[rank])
                begin(maps[rank])
        except (OSError, ValueError) as error:
            wrong = _number(error)
        told = tell("memory", [os.getpid(), descriptor, token, wrong])
        _check([number for *_, number in told], made=False)
        try:
            for p, (process, theirs, token, _) in enumerate(told):
                if lengths[p] and p != rank and (among is None or p in among):
                    maps[p] = _opened(f"/proc/{process}/fd/{theirs}", _label(kind, token), lengths[p])
        except (OSError, ValueError) as error:
            wrong = _number(error)
        _check([number for (number,) in tell("memory is mapped", [wrong])], made=True)
    finally:
        if descriptor >= 0:
            os.close(descriptor)  # all workers have mapped it, or none will
    return maps, [process for process, *_ in told]


def _label(kind: str, token: int) -> str:
    return f"halobench-{kind}-{token:016x}"


def _number(error: OSError | ValueError) -> int:
    number: int = getattr(error, "errno", None) or errno.EINVAL
    return number


def _check(numbers: list[int], made: bool) -> None:
    """Raise Unshared where one of the workers' errors has a number other than 0; LimitReached where that
    worker may open no more files, whose remedy is the limit itself."""
    for worker, number in enumerate(numbers):
        if number == errno.EMFILE:
            raise LimitReached(LIMITS[number])
        if number:
            raise Unshared(worker, number, made)


def _opened(path: str, label: str, length: int) -> mmap.mmap:
    """Map the memory at the path of a descriptor. Raises ProcessLookupError where other memory is there: in
    another container or on another host a process id means another process."""
    if os.readlink(path) != f"/memfd:{label} (deleted)":
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)


def ring(inbox: mmap.mmap, sender: int, kind: int, new: bool = False) -> Ring:
    """The ring in `inbox` that worker `sender` puts messages or acknowledgements (`kind`) into."""
    return Ring(inbox, HEAD + (2 * sender + kind) * Ring.nbytes(RECORDS), RECORDS, new=new)


def inbox_bytes(size: int) -> int:
    """Bytes of an inbox where there are `size` workers: where the data of a piece begin."""
    return pages(HEAD + 2 * size * Ring.nbytes(RECORDS))


def pages(nbytes: int) -> int:
    """`nbytes` rounded up to whole pages."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def share(meeting: Meeting) -> tuple[list[mmap.mmap], list[int]]:
    """Every worker's inbox and data, and process id, by worker. Collective.

    Raises InputError, on all workers alike, where one of them cannot share memory; LimitReached where one of
    them may open no more files.
    """
    size = meeting.size
    # Data are twice as long as this host's memory, or as long as the address space allows: pages are taken
    # only when they are written.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    length = inbox_bytes(size) + min(2 * memory, ADDRESSES // size // mmap.PAGESIZE * mmap.PAGESIZE)

    def make_rings(own: mmap.mmap) -> None:
        for p in range(size):
            for kind in (MESSAGES, ACKNOWLEDGEMENTS):
                ring(own, p, kind, new=True)

    try:
        maps, pids = map_pieces("exchange", meeting.rank, [length] * size, meeting.tell, begin=make_rings)
    except Unshared as error:
        raise InputError(
            f"transport=memory: the workers cannot share memory ({error}); give transport=sockets"
        ) from None
    return [maps[p] for p in range(size)], pids
