"""The memory that the workers of one host share: every worker makes two segments and maps those of all.

    inbox segment   a head (a random number, then a byte that says that the owner has left), and for every
                    worker two rings: its messages to the owner, and its acknowledgements of the owner's
    data segment    the bytes that its owner sends, in regions that it chooses

Of an inbox only the head is written by its owner; the others put into its rings. A data segment is written by
its owner alone. The segments have no names: a worker opens another's through that process's descriptors in
/proc, and they are gone with the last process that has them mapped.
"""

from __future__ import annotations

import mmap
import os
import random
from dataclasses import dataclass

import torch
import torch.distributed as dist

from harness.check import InputError
from harness.comm.ring import Ring

RECORDS = 1024  # messages from one worker to another that may be unacknowledged
HEAD = LINE = 64  # bytes: a cache line, where regions begin
LEFT = 8  # where in the head of its inbox a worker writes that it has left
ADDRESSES = 1 << 46  # bytes of addresses that all data segments together may take of a process's 2^47
MESSAGES, ACKNOWLEDGEMENTS = 0, 1  # the two rings of each worker in an inbox


@dataclass
class Segments:
    """By worker: inbox segment, data segment, process."""

    inboxes: list[mmap.mmap]
    data: list[mmap.mmap]
    pids: list[int]


def ring(inbox: mmap.mmap, sender: int, kind: int, new: bool = False) -> Ring:
    """The ring in `inbox` that worker `sender` puts messages or acknowledgements (`kind`) into."""
    return Ring(inbox, HEAD + (2 * sender + kind) * Ring.nbytes(RECORDS), RECORDS, new=new)


def share(rank: int, size: int) -> Segments:
    """Make this worker's two segments and map all workers'. Collective, in an open gloo group.

    InputError, on all workers alike, where one of them cannot.
    """
    # A data segment is twice as long as there is memory at all, and all of them fit into a process's
    # addresses: pages are taken only when they are written.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lengths = (
        HEAD + 2 * size * Ring.nbytes(RECORDS),
        min(2 * memory, ADDRESSES // size // mmap.PAGESIZE * mmap.PAGESIZE),
    )
    # Make the own segments. The random number in the inbox's head tells others that they opened the right
    # one: a process id means another process in another container.
    number = random.SystemRandom().getrandbits(62)
    opened: list[int] = []
    reason, maps = "", {}
    try:
        for length in lengths:
            opened.append(os.memfd_create("halobench"))
            os.ftruncate(opened[-1], length)
        maps[rank] = [mmap.mmap(descriptor, length) for descriptor, length in zip(opened, lengths)]
        maps[rank][0][:8] = number.to_bytes(8, "little")
        for p in range(size):
            for kind in (MESSAGES, ACKNOWLEDGEMENTS):
                ring(maps[rank][0], p, kind, new=True)
    except (AttributeError, OSError, ValueError) as error:
        reason = str(error)
    # Tell the others the process, the number and the two descriptors; -1 where there are none.
    told = [torch.zeros(4, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(told, torch.tensor([os.getpid(), number, *(opened if not reason else (-1, -1))]))
    # Map theirs. The rings in an inbox were made before its worker told of them.
    try:
        for p in range(size):
            pid, theirs, *descriptors = told[p].tolist()
            if -1 in descriptors:
                reason = reason or f"worker {p} has none to give"
            elif p != rank and not reason:
                maps[p] = [
                    _map(f"/proc/{pid}/fd/{descriptor}", length)
                    for descriptor, length in zip(descriptors, lengths)
                ]
                if maps[p][0][:8] != theirs.to_bytes(8, "little"):
                    raise OSError(f"process {pid} is another one here")
    except (OSError, ValueError) as error:
        reason = str(error)
    # All workers share memory, or none does. After this sum every worker has mapped everything, so the
    # descriptors are needed no more.
    failed = torch.tensor([int(bool(reason))])
    dist.all_reduce(failed)
    for descriptor in opened:
        os.close(descriptor)
    if failed:
        raise InputError(
            f"transport=memory: the workers cannot share memory{f' ({reason})' if reason else ''}; give"
            " transport=sockets"
        )
    return Segments(
        [maps[p][0] for p in range(size)],
        [maps[p][1] for p in range(size)],
        [int(each[0]) for each in told],
    )


def _map(path: str, length: int) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)
