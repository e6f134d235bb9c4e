"""What goes wrong between workers: rows that do not fit, workers that are lost, memory that cannot be had."""

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch

from harness.base.errors import InputError
from harness.base.machine import LimitReached
from harness.comm import group, host, memory_transport, segments, sockets
from harness.comm.meeting import Meeting
from harness.comm.members import WorkerPlace
from harness.comm.transport import PeerLost
from harness.dev.conformance.pool import MEMORY


def other_counts(comm) -> None:
    ones = [int(p != comm.rank) for p in range(comm.size)]
    comm.transport.exchange(torch.empty(1, 3 + comm.rank), torch.empty(1, 3), ones, ones).wait()


def another_operation(comm) -> None:
    """Worker 1 takes no part in the first of two exchanges: a row of the right size, and not the one that was
    meant.
    """
    ones, none = [int(p != comm.rank) for p in range(comm.size)], [0] * comm.size
    first = ones if comm.rank == 0 else none
    comm.transport.exchange(torch.empty(0, 2), torch.ones(sum(first), 2), none, first).wait()
    comm.transport.exchange(torch.empty(1, 2), torch.ones(1, 2), ones, ones).wait()
    comm.barrier()


@pytest.mark.parametrize(
    "job, said",
    [
        (other_counts, r"worker 0 sent 12 bytes in operation \d+ where 16 were to come in"),
        (another_operation, r"worker 0 sent 8 bytes in operation (\d+) where 8 were to come in (?!\1)"),
    ],
)
def test_rows_of_another_size_or_operation_are_no_silent_garbage(pool, job, said):
    with pytest.raises(AssertionError, match=f"ValueError: {said}"):
        pool.run(job, 2)


def test_who_cannot_join_a_group_has_lost_its_peers(monkeypatch, tmp_path):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    joining = group.process_group(
        Meeting(0, 2, str(tmp_path / "store"), 0.2), WorkerPlace.on_cpu(0, 2), "sockets"
    )
    with (
        pytest.raises(PeerLost, match=r"worker 0 could not reach the others: .*GLOO_SOCKET_IFNAME=lo"),
        joining,
    ):
        pass


def fails_alone(comm) -> None:
    if comm.rank == 1:
        raise ValueError("the first cause")
    comm.barrier()


def test_who_waits_for_a_worker_that_failed_has_lost_a_peer(pool):
    with pytest.raises(
        AssertionError,
        match=r"(?s)PeerLost: worker [02] lost a peer (in|starting) all_reduce .*the first cause",
    ):
        pool.run(fails_alone, 3, transport=MEMORY)


def fails_in_the_middle(comm) -> None:
    """Worker 1, of rows that are half-way to and from it."""
    counts = [3_000_000 * int(p != comm.rank) for p in range(comm.size)]
    rows = torch.ones(sum(counts), 2)
    kept = sockets.LEFT, sockets.LEAVING
    sockets.LEFT, sockets.LEAVING = 0.1, 0.0  # what is under way does not end before worker 1 has left
    try:
        exchange = comm.transport.exchange(torch.empty_like(rows), rows, counts, counts)
        if comm.rank == 1:
            time.sleep(0.005)  # no message is through by then
            comm.transport.close()
            raise ValueError("the first cause")
        exchange.wait()
    finally:
        sockets.LEFT, sockets.LEAVING = kept
    comm.barrier()


def test_a_peer_that_failed_in_the_middle_of_a_message_is_heard_of(pool):
    """gloo itself tells such a message nothing."""
    with pytest.raises(AssertionError, match="the first cause") as failed:
        pool.run(fails_in_the_middle, 3, transport="sockets")
    assert str(failed.value).count("PeerLost: ") >= 2
    assert "comm.barrier()" not in str(failed.value), "it is heard of in the exchange"


def totals_together(comm) -> list[float]:
    """Two sums begun before either is waited for, as losses are, of rows that go through host memory."""
    comm.staged = True
    begun = [comm.start_total([value + comm.rank]) for value in (10.0, 100.0)]
    for flight, _ in begun:
        flight.wait()
    return [float(total) for _, total in begun]


def test_sums_under_way_together_do_not_share_memory(pool):
    assert pool.run(totals_together, 2) == [[21.0, 201.0]] * 2


def _refuse(*given):
    raise PermissionError(13, "Permission denied")


def _no_file(*given):
    raise OSError(24, os.strerror(24))


def _full(*given):
    raise OSError(28, os.strerror(28))


# What of the operating system fails on worker 1, and how.
BROKEN = {
    "own": ("ftruncate", _refuse),
    "others": ("readlink", _refuse),
    "another process": ("readlink", lambda path: "/memfd:foreign (deleted)"),
    "open files": ("memfd_create", _no_file),
    "pages": ("posix_fallocate", _full),
}


def failing(comm, what):
    """On worker 1 `what` of BROKEN fails; "": nothing."""
    here = comm.rank == 1 and what
    return mock.patch.object(segments.os, *BROKEN[what]) if here else contextlib.nullcontext()


def memory_without(comm, what, folder, transport) -> tuple[str, str]:
    """The memory between workers that is made, or why there is none; and what is said on stderr."""
    meeting = Meeting(comm.rank, comm.size, str(Path(folder) / transport), 60)  # beside the group's
    said = io.StringIO()
    with failing(comm, what), contextlib.redirect_stderr(said):
        try:
            carrier = group.memory_of(meeting, transport)
        except (InputError, LimitReached) as error:
            return str(error), ""
    return type(carrier).__name__, said.getvalue()


@pytest.mark.parametrize(
    "what, reason",
    [
        ("own", "gets no memory: Permission denied"),
        ("others", "cannot open the others' memory: Permission denied"),
        ("another process", "cannot open the others' memory: their process ids mean other processes here"),
    ],
)
def test_memory_that_cannot_be_shared_is_a_sentence_on_every_worker_or_sockets(pool, what, reason, tmp_path):
    asked = pool.run(memory_without, 2, what, str(tmp_path), "memory", transport="sockets")
    why = f"the workers cannot share memory (worker 1 {reason})"
    assert [told for told, _ in asked] == [f"transport=memory: {why}; give transport=sockets"] * 2
    chosen = pool.run(memory_without, 2, what, str(tmp_path), "auto", transport="sockets")
    assert chosen == [("NoneType", f"note: {why}: sockets instead\n"), ("NoneType", "")]


def mapped_without(comm, what) -> str:
    """The lengths of the memory that all workers map, or why there is none."""
    with failing(comm, what):
        try:
            return str([len(each) for each in host.map_shared(comm, [4096, 8192], "x=0")])
        except (InputError, LimitReached) as error:
            return str(error)


@pytest.mark.parametrize(
    "what, said",
    [
        ("", "[4096, 8192]"),
        (
            "pages",
            "there are no 8,192 bytes of shared memory (worker 1 gets no memory: No space left on device);"
            " free some or give x=0",
        ),
        ("others", "memory is shared by the workers of one host only; give x=0"),
        ("open files", "no more files can be opened (ulimit -n says how many may be)"),
    ],
)
def test_memory_that_a_worker_cannot_have_is_the_same_sentence_on_all(pool, what, said):
    assert pool.run(mapped_without, 2, what) == [said] * 2


def test_few_open_files_are_no_reason_to_go_over_sockets(pool, tmp_path):
    """Which need more of them."""
    told = pool.run(memory_without, 2, "open files", str(tmp_path), "auto", transport="sockets")
    assert all(said.startswith("no more files can be opened") for said, _ in told), told


def woken(comm) -> float:
    """Seconds of a few operations between workers that look up once a minute."""
    kept, memory_transport.PATIENCE_S = memory_transport.PATIENCE_S, 60.0
    try:
        started = time.monotonic()
        for _ in range(5):
            comm.barrier()
        return time.monotonic() - started
    finally:
        memory_transport.PATIENCE_S = kept


def test_who_waits_is_woken_by_another_process(pool):
    assert max(pool.run(woken, 2)) < 55


def test_a_process_that_is_gone_is_a_peer_that_has_left():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    carrier = object.__new__(memory_transport.MemoryTransport)
    carrier.memory, carrier.pids = [bytearray(segments.HEAD)] * 2, [ended.pid, os.getpid()]
    assert carrier._left(0) and not carrier._left(1)
    carrier.memory[1][segments.LEFT] = 1
    assert carrier._left(1)
