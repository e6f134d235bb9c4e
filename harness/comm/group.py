"""Joining the process group of a run, and choosing what carries its bytes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

import torch
import torch.distributed as dist

from harness.check import InputError
from harness.comm.meeting import Meeting
from harness.comm.memory_transport import MemoryTransport
from harness.comm.neighbours import let_nobody_in, listening
from harness.comm.transport import ALONE, PeerLost, TorchTransport, Transport, losing_peers


@contextlib.contextmanager
def process_group(
    rank: int, size: int, device: torch.device, meeting: str | None = None, transport: str = "auto"
) -> Iterator[Transport]:
    """Join the other workers for as long as this is open; gives what carries bytes between them.

    meeting     a file that all workers of one host meet in; None: as torchrun's environment says
    transport   "memory" or "sockets" where no GPU of its own does it; "auto": memory where all workers are on
                one Linux host

    Workers that share memory open no socket at all. Others of one host talk over the loopback interface only,
    unless GLOO_SOCKET_IFNAME names another. Raises PeerLost where one of the others went away before all had
    met, InputError where workers told to share memory cannot.
    """
    if size == 1:
        yield ALONE
        return
    local = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= local
    backend = "nccl" if own_gpu else "gloo"
    if local == size:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        if backend == "nccl":
            os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    store = dist.FileStore(meeting, size) if meeting else None
    carrier: Transport | None = None
    with contextlib.ExitStack() as stack:
        with losing_peers():
            if wants_memory(size, local, transport) and backend == "gloo":
                store = store or next(dist.rendezvous("env://", rank, size))[0]  # torchrun's own
                carrier = memory_of(Meeting(store, rank, size), transport)
        if carrier is None:
            _open_group(backend, rank, size, store)
            stack.callback(dist.destroy_process_group)
            carrier = TorchTransport()
        stack.callback(carrier.close)
        yield carrier


def _open_group(backend: str, rank: int, size: int, store: dist.Store | None) -> None:
    """Open torch.distributed's default group. PeerLost where one of the others is not reached."""
    before = listening()
    if backend == "gloo" and rank == 0:
        print(
            "note: workers meet over sockets; until they have met, whoever can connect to them (any user of"
            " this host) can disturb the run; transport=memory opens none",
            file=sys.stderr,
        )
    try:
        with losing_peers():
            dist.init_process_group(
                backend, store=store, rank=rank if store else -1, world_size=size if store else -1
            )
    except PeerLost as error:
        # torch names groups by their number and counts one that nobody joined. The next group would have
        # another name on this worker than on the others, and all would wait for each other.
        dist.distributed_c10d._world.group_count = 0
        raise PeerLost(f"worker {rank} could not reach the others: {error}") from error
    if backend == "gloo" and os.environ.get("TORCH_GLOO_LAZY_INIT", "0") in ("", "0"):
        let_nobody_in(kept=before)


def wants_memory(size: int, local: int, transport: str) -> bool:
    """Whether `size` workers, `local` of them on this host, are to share memory where it can be."""
    if transport == "memory" and local != size:
        raise InputError(
            f"transport=memory but {size - local} of {size} workers were started elsewhere; give"
            " transport=sockets"
        )
    return transport == "memory" or (transport == "auto" and local == size and sys.platform == "linux")


def memory_of(meeting: Meeting, transport: str) -> MemoryTransport | None:
    """The memory of workers that meet, without any socket; None where they cannot share it and need not."""
    try:
        return MemoryTransport(meeting)
    except InputError as error:  # on all workers alike
        if transport == "memory":
            raise
        if meeting.rank == 0:
            print(
                f"note: {str(error).removeprefix('transport=memory: ').rpartition(';')[0]}: sockets instead",
                file=sys.stderr,
            )
        return None
