"""Joining the process group of a run."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from harness.comm.comm import PeerLost


@contextlib.contextmanager
def process_group(rank: int, size: int, device: torch.device, meeting: str | None = None) -> Iterator[None]:
    """Join the other workers for as long as this is open.

    meeting   a file that all workers of one host meet in; None: as torchrun's environment says

    Workers of one host talk over the loopback interface only, unless GLOO_SOCKET_IFNAME names another. Raises PeerLost
    where one of the others went away before all had met.
    """
    if size == 1:
        yield
        return
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= local
    backend = "nccl" if own_gpu else "gloo"
    if local == size:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        if backend == "nccl":
            os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    store = dist.FileStore(meeting, size) if meeting else None
    try:
        dist.init_process_group(backend, store=store, rank=rank if store else -1, world_size=size if store else -1)
    except RuntimeError as error:
        raise PeerLost(f"worker {rank} could not reach the others: {error}") from error
    try:
        yield
    finally:
        dist.destroy_process_group()
