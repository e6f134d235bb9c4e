"""What the workers of one host share: memory, and names that nobody else guesses."""

from __future__ import annotations

import mmap
import os
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.check import InputError
from harness.comm.comm import Comm


def draw_token(comm: Comm) -> str:
    """Twelve random digits, the same on all workers. Collective, outside the train clock."""
    return f"{int(comm.total([random.SystemRandom().getrandbits(48) if comm.rank == 0 else 0])[0]):012x}"


def map_shared(comm: Comm, lengths: Sequence[int], instead: str) -> list[memoryview]:
    """The same pieces of memory on all workers: lengths[j] bytes made by worker j, which may be 0.

    Collective, outside the train clock. The memory has no name once everybody has it open, so nothing is left
    behind however the workers end. InputError where they are not on one host, or it has no room; the sentence
    ends with `instead`.
    """
    token = draw_token(comm)
    folder = Path("/dev/shm") if os.path.isdir("/dev/shm") else Path(tempfile.gettempdir())
    names = [folder / f"halobench-{token}-{rank}" for rank in range(comm.size)]
    own, length = names[comm.rank], lengths[comm.rank]
    refused: InputError | None = None
    maps: list[memoryview] = []
    try:
        try:
            if length:
                with open(own, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.truncate(length)
                    # else what does not fit is found out by a signal, when it is written
                    if hasattr(os, "posix_fallocate"):
                        os.posix_fallocate(file.fileno(), 0, length)
        except OSError as error:
            refused = InputError(
                f"{folder} gives no {length:,} bytes of shared memory ({error.strerror}); enlarge it or give"
                f" {instead}"
            )
        comm.barrier()
        try:
            maps = [_map(name, size) if size else memoryview(b"") for name, size in zip(names, lengths)]
        except OSError:
            refused = refused or InputError(
                f"memory is shared by the workers of one host only; give {instead}"
            )
        # All workers have it, or none: one that went on alone would wait for the others.
        (lacking,) = comm.total([refused is not None])
    finally:
        own.unlink(missing_ok=True)
    if refused is not None:
        raise refused
    if lacking:
        raise InputError(f"{int(lacking)} of {comm.size} workers cannot share memory; give {instead}")
    return maps


def _map(name: Path, length: int) -> memoryview:
    with open(name, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), length))
