"""What the workers of one host share: memory, and names that nobody else guesses."""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Sequence

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.segments import make_memory, open_memory


def draw_token(comm: Comm) -> str:
    """Twelve random digits, the same on all workers. Collective, outside the train clock."""
    return f"{int(comm.total([random.SystemRandom().getrandbits(48) if comm.rank == 0 else 0])[0]):012x}"


def map_shared(
    comm: Comm, lengths: Sequence[int], instead: str, among: Collection[int] | None = None
) -> list[memoryview]:
    """The same pieces of memory on all workers: lengths[j] bytes made by worker j, which may be 0.

    among    the workers that share memory with this one, itself among them; None: all. What others have made
             is an empty piece here

    Collective, outside the train clock. Nothing is left behind however the workers end
    (`harness.comm.segments`). InputError where they are not on one host, or it has no room; the
    sentence ends with `instead`.
    """
    token, own = draw_token(comm), lengths[comm.rank]
    labels = [f"halobench-rows-{token}-{rank}" for rank in range(comm.size)]
    descriptor: int | None = None
    refused: InputError | None = None
    maps: list[memoryview] = []
    try:
        try:
            if own:
                descriptor = make_memory(labels[comm.rank], own)
                # else what does not fit is found out by a signal, when it is written
                os.posix_fallocate(descriptor, 0, own)
        except OSError as error:
            refused = InputError(
                f"this host gives no {own:,} bytes of shared memory ({error.strerror}); free some or give"
                f" {instead}"
            )
        # Every worker's process and descriptor, -1 of one that has no memory: a sum to which each gives its
        # own.
        told = [0.0] * (2 * comm.size)
        told[comm.rank] = os.getpid()
        told[comm.size + comm.rank] = -1 if refused is not None else descriptor or 0
        told = comm.total(told)
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
        # All workers have it, or none: one that went on alone would wait for the others.
        (lacking,) = comm.total([refused is not None])
    finally:
        if descriptor is not None:
            os.close(descriptor)
    if refused is not None:
        raise refused
    if lacking:
        raise InputError(f"{int(lacking)} of {comm.size} workers cannot share memory; give {instead}")
    return maps
