"""Memory that the workers of one host share, and random names that nobody else guesses."""

import random
from collections.abc import Collection, Sequence

import torch

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.segments import Unshared, map_pieces


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
    host has too little shared memory; LimitReached where one of them may open no more files.
    """
    assert not comm.recorder.training

    def tell(_: str, numbers: list[int]) -> list[list[int]]:
        return [each.tolist() for each in comm.all_gather(torch.tensor(numbers).to(comm.device), -1, "plan")]

    try:
        maps, _ = map_pieces("rows", comm.rank, lengths, tell, taken=True, among=among)
    except Unshared as error:
        if error.made:
            raise InputError(f"memory is shared by the workers of one host only; give {instead}") from None
        raise InputError(
            f"there are no {lengths[error.worker]:,} bytes of shared memory ({error}); free some or give"
            f" {instead}"
        ) from None
    return [memoryview(maps.get(p, b"")) for p in range(comm.size)]
