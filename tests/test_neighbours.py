"""Who can reach a run over the network: nobody, once its workers have met over sockets."""

import gc
import os
import socket

import psutil
import pytest

from harness.comm.group import let_nobody_in, listening

JUNK = 20


def others(comm) -> tuple[list[str], int]:
    """What becomes of strangers who connect to this worker and send bytes, and how many descriptors more it
    has then.
    """
    gc.collect()  # of groups before this one
    before = len(os.listdir("/proc/self/fd"))
    ports = sorted(c.laddr.port for c in psutil.Process().net_connections("inet") if c.status == "LISTEN")
    assert ports
    became = []
    strangers = [socket.socket() for _ in range(JUNK)]
    for number, stranger in enumerate(strangers):
        stranger.setblocking(False)
        stranger.connect_ex(("127.0.0.1", ports[number % len(ports)]))
    comm.barrier()
    for number, stranger in enumerate(strangers):
        try:
            stranger.send(bytes(number))
            became.append("connected")
        except OSError as error:
            became.append(type(error).__name__)
        stranger.close()
    comm.barrier()
    return became, len(os.listdir("/proc/self/fd")) - before


def test_strangers_are_not_let_in_and_cost_no_descriptors(pool):
    pool.forget()
    for became, more in pool.run(others, 3, transport="sockets"):
        assert became == ["BlockingIOError"] * JUNK and more == 0


def test_what_listened_before_goes_on_and_so_do_connections():
    with socket.create_server(("127.0.0.1", 0)) as kept, socket.create_server(("127.0.0.1", 0)) as closed:
        inodes = {os.fstat(each.fileno()).st_ino for each in (kept, closed)}
        assert inodes <= listening()
        with socket.create_connection(closed.getsockname()) as theirs, closed.accept()[0] as ours:
            before = len(os.listdir("/proc/self/fd"))
            let_nobody_in(listening() - {os.fstat(closed.fileno()).st_ino})
            assert len(os.listdir("/proc/self/fd")) == before
            theirs.sendall(b"still")
            assert ours.recv(5) == b"still"
        socket.create_connection(kept.getsockname(), 60).close()
        with pytest.raises(TimeoutError):
            socket.create_connection(closed.getsockname(), 0.2)
