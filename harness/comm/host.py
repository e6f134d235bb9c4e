"""Memory that the workers of one host share, and random names that nobody else guesses."""

import os
import random
from collections.abc import Collection, Sequence

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.segments import make_memory, open_memory


def draw_token(comm: Comm) -> str:
    """Twelve random hexadecimal digits, the same on all workers. Collective, outside the train clock."""
    return f"{int(comm.total([random.SystemRandom().getrandbits(48) if comm.rank == 0 else 0])[0]):012x}"


def map_shared(
    comm: Comm, lengths: Sequence[int], instead: str, among: Collection[int] | None = None
) -> list[memoryview]:
    """Pieces of memory, by worker, that all workers have mapped: worker j makes piece j, of lengths[j] bytes
    (which may be 0).

    instead  what a user should give where this fails, as "store=redis://HOST:PORT"; ends the error message
    among    the workers that share memory with this one, itself among them; None: all. The pieces of workers
             outside `among` are empty here

    Collective, outside the train clock. Nothing is left behind however the workers end
    (`harness.comm.segments`). Raises InputError on all workers where they are not on one host, or where the
    host has too little shared memory.
    """
    # 1. Every worker makes its own piece.
    token, own = draw_token(comm), lengths[comm.rank]
    labels = [f"halobench-rows-{token}-{rank}" for rank in range(comm.size)]
    descriptor: int | None = None
    refused: InputError | None = None
    maps: list[memoryview] = []
    try:
        try:
            if own:
                descriptor = make_memory(labels[comm.rank], own)
                # take the pages now: without this, too little memory would kill the process at a later write
                os.posix_fallocate(descriptor, 0, own)
        except OSError as error:
            refused = InputError(
                f"this host gives no {own:,} bytes of shared memory ({error.strerror}); free some or give"
                f" {instead}"
            )
        # 2. Every worker tells all others its process id and its descriptor, -1 where it got no memory: a sum
        # of vectors that are 0 in the places of others.
        told = [0.0] * (2 * comm.size)
        told[comm.rank] = os.getpid()
        told[comm.size + comm.rank] = -1 if refused is not None else descriptor or 0
        told = comm.total(told)
        # 3. Every worker maps the pieces of the others, if all were made.
        try:
            if min(told) >= 0:
                maps = [
                    memoryview(
                        open_memory(int(told[p]), int(told[comm.size + p]), labels[p], length)
                        if length and (among is None or p in among)
                        else b""
                    )
                    for p, length in enumerate(lengths)
                ]
        except OSError:
            refused = InputError(f"memory is shared by the workers of one host only; give {instead}")
        # 4. All workers raise an error if one of them must: the rest would wait for it for ever.
        (lacking,) = comm.total([refused is not None])
    finally:
        if descriptor is not None:
            os.close(descriptor)
    if refused is not None:
        raise refused
    if lacking:
        raise InputError(f"{int(lacking)} of {comm.size} workers cannot share memory; give {instead}")
    return maps
