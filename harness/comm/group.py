"""Joining the process group of a run, and choosing what carries its bytes."""

import contextlib
import ctypes
import datetime
import os
import socket
import stat
import struct
import sys
import threading
from collections.abc import Iterator

import psutil
import torch.distributed as dist

from harness.base.errors import InputError
from harness.comm.meeting import Meeting
from harness.comm.members import WorkerPlace
from harness.comm.memory_transport import MemoryTransport
from harness.comm.nccl import NcclTransport
from harness.comm.sockets import SocketTransport
from harness.comm.transport import ALONE, UNLIMITED, PeerLost, Transport, losing_peers

DROP = struct.pack("HBBI", 0x06, 0, 0, 0)  # one instruction of Linux's packet filter: keep 0 bytes
SO_ATTACH_FILTER = 26
LEAVING = 30.0  # seconds that the group may take to end; then this process goes on without waiting for it


@contextlib.contextmanager
def process_group(meeting: Meeting, seat: WorkerPlace, transport: str = "auto") -> Iterator[Transport]:
    """Join the other workers for as long as this is open; gives the transport between them.

    seat        this worker's place; all workers have agreed on theirs, so they take the same backend
    transport   for workers without a GPU each, which NCCL does not serve: "memory", "sockets", or "auto",
                which is memory where all workers are on one host and can share it, else sockets

    Workers that share memory open no socket at all. Without shared memory, workers of one host talk over the
    loopback interface only, workers of several hosts over the interface that reaches MASTER_ADDR, unless
    GLOO_SOCKET_IFNAME names another. Raises PeerLost where another worker went away before all had met, and
    InputError where transport="memory" is asked for and the workers cannot share memory.
    """
    if meeting.store is None:
        yield ALONE
        return
    carrier: Transport | None = None
    with contextlib.ExitStack() as stack:
        if wants_memory(seat.size, len(seat.neighbours), transport) and seat.backend == "gloo":
            carrier = memory_of(meeting, transport)
        if carrier is None:
            stack.enter_context(_open_group(meeting, seat))
            carrier = SocketTransport() if seat.backend == "gloo" else NcclTransport()
        stack.callback(carrier.close)
        yield carrier


@contextlib.contextmanager
def _open_group(meeting: Meeting, seat: WorkerPlace) -> Iterator[None]:
    """Open torch.distributed's default group for as long as this is open. Raises PeerLost where another
    worker is not reached.
    """
    _choose_interface(seat)
    before = listening()
    if seat.backend == "gloo" and seat.rank == 0:
        print(
            "note: workers meet over sockets; until they have met, whoever can connect to them (any user of"
            " this host) can disturb the run; transport=memory opens none",
            file=sys.stderr,
        )
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
        # torch names groups by their number, and counts a group even where joining it failed. The next group
        # would have another name on this worker than on the others, and all would wait for each other.
        dist.distributed_c10d._world.group_count = 0
        if isinstance(error, PeerLost):
            raise PeerLost(f"worker {meeting.rank} could not reach the others: {error}") from error
        raise
    failed = True
    try:
        dist.distributed_c10d._set_pg_timeout(UNLIMITED)
        if seat.backend == "gloo" and os.environ.get("TORCH_GLOO_LAZY_INIT", "0") in ("", "0"):
            let_nobody_in(kept=before)
        yield
        failed = False
    finally:
        _leave(failed)


def _choose_interface(seat: WorkerPlace) -> None:
    """Set GLOO_SOCKET_IFNAME where the user has not."""
    if len(seat.hosts) == 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if seat.backend != "gloo":
            os.environ.setdefault("NCCL_SOCKET_IFNAME", os.environ["GLOO_SOCKET_IFNAME"])
    elif "GLOO_SOCKET_IFNAME" not in os.environ:
        name = interface_to(os.environ.get("MASTER_ADDR", ""))
        if name is not None:
            os.environ["GLOO_SOCKET_IFNAME"] = name


def interface_to(host: str) -> str | None:
    """The network interface through which this host sends packets to `host`; None where there is none, or
    only the loopback interface, which reaches no other host.

    By default gloo takes the interface that this host's own name resolves to, which often is the loopback
    interface.
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
    """End the group, in at most LEAVING seconds. After a failure NCCL's operations under way are aborted:
    peers may never take part in them, and destroying the group would wait for that.
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


def wants_memory(size: int, local: int, transport: str) -> bool:
    """Whether `size` workers, `local` of them on this host, are to share memory if they can. InputError where
    transport="memory" and some are on other hosts."""
    if transport == "memory" and local != size:
        raise InputError(
            f"transport=memory but {size - local} of {size} workers were started elsewhere; give"
            " transport=sockets"
        )
    return transport == "memory" or (transport == "auto" and local == size)


def memory_of(meeting: Meeting, transport: str) -> MemoryTransport | None:
    """The transport over shared memory, which opens no socket. Where the workers cannot share memory: None,
    or InputError under transport="memory"."""
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


def listening() -> set[int]:
    """Inodes of this process's sockets that listen to a network."""
    return {os.fstat(each.fileno()).st_ino for each in _sockets() if _listens(each)}


def let_nobody_in(kept: set[int]) -> None:
    """Have the kernel drop every packet that arrives at this process's listening sockets, except those in
    `kept` (inodes), so that nobody can connect any more. gloo listens for as long as its group is open and
    accepts whoever connects, though all workers are connected to each other once the group is open.
    """
    code = ctypes.create_string_buffer(DROP)
    program = struct.pack("HP", 1, ctypes.addressof(code))
    for each in _sockets():
        if _listens(each) and os.fstat(each.fileno()).st_ino not in kept:
            each.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)


def _sockets() -> Iterator[socket.socket]:
    """This process's sockets, each through a descriptor of its own."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            own = os.dup(number) if stat.S_ISSOCK(os.fstat(number).st_mode) else None
        except OSError:  # closed meanwhile
            continue
        if own is not None:
            with socket.socket(fileno=own) as each:
                yield each


def _listens(each: socket.socket) -> bool:
    network = each.family in (socket.AF_INET, socket.AF_INET6)
    return network and bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
