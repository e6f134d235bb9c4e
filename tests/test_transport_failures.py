"""What goes wrong between workers: rows that do not fit, workers that are lost, memory that cannot be had."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from harness.base.errors import InputError
from harness.base.machine import LimitReached
from harness.comm import group, memory_transport, segments
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


def test_who_could_not_join_a_group_joins_the_next_under_the_name_that_the_others_have(monkeypatch, tmp_path):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    joining = group.process_group(
        Meeting(0, 2, str(tmp_path / "first"), 0.2), WorkerPlace.on_cpu(0, 2), "sockets"
    )
    with (
        pytest.raises(PeerLost, match=r"worker 0 could not reach the others: .*GLOO_SOCKET_IFNAME=lo"),
        joining,
    ):
        pass
    store = dist.FileStore(str(tmp_path / "second"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert dist.group.WORLD.group_name == "0"
    dist.destroy_process_group()


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
    exchange = comm.transport.exchange(torch.empty_like(rows), rows, counts, counts)
    if comm.rank == 1:
        time.sleep(0.005)  # no message is through by then
        raise ValueError("the first cause")
    exchange.wait()
    comm.barrier()


def test_a_peer_that_failed_in_the_middle_of_a_message_is_heard_of(pool):
    """gloo itself tells such a message nothing."""
    with pytest.raises(AssertionError, match="the first cause") as failed:
        pool.run(fails_in_the_middle, 3, transport="sockets")
    assert str(failed.value).count("PeerLost: ") >= 2


def totals_together(comm) -> list[float]:
    """Two sums begun before either is waited for, as losses are, of rows that go through host memory."""
    comm.staged = True
    begun = [comm.start_total([value + comm.rank]) for value in (10.0, 100.0)]
    for flight, _ in begun:
        flight.wait()
    return [float(total) for _, total in begun]


def test_sums_under_way_together_do_not_share_memory(pool):
    assert pool.run(totals_together, 2) == [[21.0, 201.0]] * 2


def cannot_share(comm, where, folder) -> str:
    """A transport made where worker 1 has no memory to give, cannot open the others', or finds another
    process under their numbers."""
    broken = {
        "own": ("ftruncate", _refuse),
        "others": ("readlink", _refuse),
        "another process": ("readlink", lambda path: "/memfd:foreign (deleted)"),
    }[where]
    with mock.patch.object(segments.os, *broken) if comm.rank == 1 else contextlib.nullcontext():
        try:
            memory_transport.MemoryTransport(meeting_of(comm, folder))
            return "made"
        except InputError as error:
            return str(error)


def meeting_of(comm, folder) -> Meeting:
    """One more, beside that of the group that is open."""
    return Meeting(comm.rank, comm.size, str(Path(folder) / "again"), 60)


def lacks_files(comm, folder) -> str:
    """What a worker says of a transport when worker 1 can open no file."""
    fails = mock.patch.object(segments.os, "ftruncate", side_effect=OSError(24, os.strerror(24)))
    with fails if comm.rank == 1 else contextlib.nullcontext(), pytest.raises(LimitReached) as raised:
        memory_transport.MemoryTransport(meeting_of(comm, folder))
    return str(raised.value)


def _refuse(*given):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("where", ["own", "others", "another process"])
def test_memory_that_cannot_be_shared_is_a_sentence_on_every_worker(pool, where, tmp_path):
    for rank, told in enumerate(pool.run(cannot_share, 2, where, str(tmp_path), transport="sockets")):
        told = re.sub(r"process \d+", "process N", told)
        reason = (
            "process N is another one here" if where == "another process" else "[Errno 13] Permission denied"
        )
        reason = f"({reason})" if rank == 1 else "(worker 1 has none to give)" if where == "own" else ""
        assert (
            told
            == f"transport=memory: the workers cannot share memory {reason}".strip()
            + "; give transport=sockets"
        )


def test_few_open_files_are_no_reason_to_go_over_sockets(pool, tmp_path):
    """Which need more of them."""
    for rank, told in enumerate(pool.run(lacks_files, 2, str(tmp_path), transport="sockets")):
        assert told.startswith("no more files can be opened"), rank


def chosen_without_memory(comm, folder) -> tuple[str, str]:
    """What auto takes where worker 1 has no memory to give, and what is said of it."""
    said = io.StringIO()
    without = mock.patch.object(segments.os, "ftruncate", _refuse)
    with without if comm.rank == 1 else contextlib.nullcontext(), contextlib.redirect_stderr(said):
        carrier = group.memory_of(meeting_of(comm, folder), "auto")
    return type(carrier).__name__, said.getvalue()


def test_auto_is_sockets_where_memory_cannot_be_shared_and_says_so(pool, tmp_path):
    first, second = pool.run(chosen_without_memory, 2, str(tmp_path), transport="sockets")
    assert first == (
        "NoneType",
        "note: the workers cannot share memory (worker 1 has none to give): sockets instead\n",
    )
    assert second == ("NoneType", "")


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
    inboxes = [bytearray(segments.HEAD)] * 2
    carrier.segments = segments.Segments(inboxes, [], [ended.pid, os.getpid()])
    assert carrier._left(0) and not carrier._left(1)
    inboxes[1][segments.LEFT] = 1
    assert carrier._left(1)
