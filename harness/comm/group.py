"""Joining the process group of a run, and choosing what carries its bytes."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import sys
import threading
from collections.abc import Iterator

import psutil
import torch.distributed as dist

from harness.check import InputError
from harness.comm.meeting import Meeting
from harness.comm.members import Seat
from harness.comm.memory_transport import MemoryTransport
from harness.comm.transport import ALONE, PeerLost, TorchTransport, Transport, losing_peers

# How long an operation may take: a straggler is no error, and `patience` ends a run in which nobody moves.
UNLIMITED = datetime.timedelta(days=365)
LEAVING = 30.0  # seconds that a group has to end, after which the process does so without it


@contextlib.contextmanager
def process_group(meeting: Meeting, seat: Seat, transport: str = "auto") -> Iterator[Transport]:
    """Join the other workers for as long as this is open; gives what carries bytes between them.

    seat        which all workers have agreed on, so that they take the same backend
    transport   "memory" or "sockets" where no GPU of its own does it; "auto": memory where all workers are on
                one Linux host

    Workers of one host talk over the loopback interface only, those of several over the interface that
    reaches MASTER_ADDR, unless GLOO_SOCKET_IFNAME names another. Raises PeerLost where one of the others went
    away before all had met, InputError where workers told to share memory cannot.
    """
    if meeting.store is None:
        yield ALONE
        return
    _choose_interface(seat)
    try:
        with losing_peers():
            dist.init_process_group(
                seat.backend,
                store=meeting.store,
                rank=meeting.rank,
                world_size=meeting.size,
                timeout=datetime.timedelta(seconds=meeting.seconds),
            )
    except Exception as error:
        # torch names groups by their number and counts one that nobody joined. The next group would have
        # another name on this worker than on the others, and all would wait for each other.
        dist.distributed_c10d._world.group_count = 0
        if isinstance(error, PeerLost):
            raise PeerLost(f"worker {meeting.rank} could not reach the others: {error}") from error
        raise
    dist.distributed_c10d._set_pg_timeout(UNLIMITED)
    carrier: Transport | None = None
    failed = True
    try:
        with losing_peers():
            carrier = carrier_of(seat, transport)
        yield carrier
        failed = False
    finally:
        if carrier is not None:
            carrier.close()
        _leave(failed)


def _choose_interface(seat: Seat) -> None:
    """Set GLOO_SOCKET_IFNAME where the user has not."""
    if len(seat.hosts) == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        if seat.backend != "gloo":
            os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    elif "GLOO_SOCKET_IFNAME" not in os.environ:
        name = interface_to(os.environ.get("MASTER_ADDR", ""))
        if name is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = name


def interface_to(host: str) -> str | None:
    """The network interface of this host from which packets to `host` go; None where there is none, or only
    the loopback interface, which reaches no other host.

    Left alone, gloo takes the interface of the address that this host's own name has, which often is the
    loopback interface's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # nothing is sent
            own = probe.getsockname()[0]
    except OSError:
        return None
    for name, addresses in psutil.net_if_addrs().items():
        if any(each.address == own for each in addresses):
            return None if own.startswith("127.") or own == "::1" else name
    return None


def _leave(failed: bool) -> None:
    """End the group. After a failure NCCL is told to give up what is under way, for which its peers may never
    come: to end the group would wait for it. Whatever this waits for, it does not wait for ever.
    """

    def end() -> None:
        with contextlib.suppress(RuntimeError):  # of a connection that is gone already
            if failed and "nccl" in str(dist.get_backend()):
                dist.distributed_c10d._abort_process_group()
            else:
                dist.destroy_process_group()

    leaving = threading.Thread(target=end, name="leaving", daemon=True)
    leaving.start()
    leaving.join(LEAVING)


def carrier_of(seat: Seat, transport: str) -> Transport:
    """What carries bytes in an open group."""
    size, local = seat.size, len(seat.neighbours)
    if transport == "memory" and local != size:
        raise InputError(
            f"transport=memory but {size - local} of {size} workers were started elsewhere; give"
            " transport=sockets"
        )
    if seat.backend == "gloo" and (
        transport == "memory" or (transport == "auto" and local == size and sys.platform == "linux")
    ):
        try:
            return MemoryTransport(seat.rank, size)
        except InputError as error:  # on all workers alike
            if transport == "memory":
                raise
            if seat.rank == 0:
                print(
                    f"note: {str(error).removeprefix('transport=memory: ').rpartition(';')[0]}: sockets"
                    " instead",
                    file=sys.stderr,
                )
    return TorchTransport()
