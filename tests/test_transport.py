"""Memory that workers share carries what sockets carry: in any order of waiting, into memory used again, and
it tells of who is lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.comm import segments
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.recorder import Recorder
from harness.comm.ring import Ring
from harness.comm.sockets import SocketTransport
from harness.conformance.pool import MEMORY, WorkerPool
from harness.conformance.subject import facts_of
from harness.conformance.train import train
from harness.run.config import make_system
from tests import jobs, systems
from tests.memory import exchange_bytes
from tests.oracles.samples import random_graph

SIZE = 3
linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared between workers on Linux")
counts = st.lists(st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE), min_size=SIZE, max_size=SIZE)
exchange = st.tuples(
    st.just("exchange"), counts, st.sampled_from(["float32", "int64", "uint8"]), st.booleans()
)
broadcast = st.tuples(
    st.just("broadcast"), st.lists(st.integers(0, SIZE - 1), unique=True), st.integers(0, 5)
)
all_reduce = st.tuples(st.just("all_reduce"), st.integers(0, 70))
program = st.lists(
    st.tuples(st.one_of(exchange, broadcast, all_reduce), st.floats(0, 1)), min_size=1, max_size=12
)


def value(kind: int, sender: int, receiver: int, row: int) -> int:
    return (1 + 53 * kind + 17 * sender + 5 * receiver + row) % 251


def execute(comm, program) -> list[str]:
    """Posts operations in order, waits for some of them at once and for the others in an order of this
    worker's own; what was wrong.
    """
    wrong, waiting = [], []

    def finish(k, transfer, read, want) -> None:
        transfer.wait()
        if read().tolist() != want.tolist():
            wrong.append(f"{program[k]}: {read().tolist()} instead of {want.tolist()}")
        if not transfer.ended:
            wrong.append(f"{program[k]} has no end")

    for k, (operation, when) in enumerate(program):
        waiting.append((k, *START[operation[0]](comm, k, *operation[1:])))
        waiting.sort(key=lambda each: (each[0] * 7 + comm.rank * 3) % 5)
        if when < 0.5:
            finish(*waiting.pop())
    while waiting:
        finish(*waiting.pop())
    return wrong


def start_exchange(comm, k, counts, dtype, lent):
    dtype, send, receive = (
        getattr(torch, dtype),
        counts[comm.rank],
        [counts[p][comm.rank] for p in range(comm.size)],
    )
    rows = [[value(k, comm.rank, p, i)] * 2 for p in range(comm.size) for i in range(send[p])]
    want = [[value(k, p, comm.rank, i)] * 2 for p in range(comm.size) for i in range(receive[p])]
    rows, want = (torch.tensor(each, dtype=dtype).view(-1, 2) for each in (rows, want))
    own = comm.transport.outgoing(rows.shape, dtype) if lent else None
    got = torch.full_like(want, 7)
    return (
        comm.transport.exchange(got, rows if own is None else own.copy_(rows), receive, send),
        lambda: got,
        want,
    )


def start_broadcast(comm, k, roots, n):
    blocks = {root: torch.full((n, 2), float(value(k, comm.rank, 0, 0))) for root in roots}
    want = [torch.full((n, 2), float(value(k, root, 0, 0))) for root in roots]
    return (
        comm.transport.broadcast(blocks),
        lambda: torch.cat([torch.zeros(0, 2), *blocks.values()]),
        torch.cat([torch.zeros(0, 2), *want]),
    )


def start_all_reduce(comm, k, n):
    got = torch.arange(n, dtype=torch.float64) + k * comm.rank
    want = comm.size * torch.arange(n, dtype=torch.float64) + k * sum(range(comm.size))
    return comm.transport.all_reduce(got), lambda: got, want


START = {"exchange": start_exchange, "broadcast": start_broadcast, "all_reduce": start_all_reduce}


@linux
@given(program=program)
@settings(max_examples=40, deadline=None)
def test_whatever_is_posted_arrives_in_whatever_order_it_is_waited_for(pool, program):
    assert pool.run(execute, SIZE, program) == [[]] * SIZE


@given(program=program)
@settings(max_examples=10, deadline=None)
def test_the_same_programs_over_sockets(pool, program):
    assert pool.run(execute, SIZE, program, transport="sockets") == [[]] * SIZE


floats = st.sampled_from([0.0, -0.0, 1e-30, 1e30]) | st.floats(-1e3, 1e3, width=32)


def summed(comm, terms, dtype) -> torch.Tensor:
    total = torch.tensor(terms[comm.rank], dtype=getattr(torch, dtype))
    comm.transport.all_reduce(total).wait()
    return total


@pytest.fixture(scope="module")
def five():
    workers = WorkerPool(5, preload=["tests.jobs"])
    yield workers
    workers.close()


@linux
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
@given(data=st.data())
@settings(max_examples=5)
def test_a_sum_has_the_same_bits_over_memory_and_sockets(pool, five, size, dtype, data):
    length = data.draw(st.integers(1, 11))
    terms = data.draw(
        st.lists(st.lists(floats, min_size=length, max_size=length), min_size=size, max_size=size)
    )
    want, *others = (torch.tensor(each, dtype=getattr(torch, dtype)) for each in terms)
    for other in others:
        want = want + other
    for transport in ("memory", "sockets"):
        for got in (five if size == 5 else pool).run(summed, size, terms, dtype, transport=transport):
            assert got.view(torch.uint8).tolist() == want.view(torch.uint8).tolist(), "in the order of ranks"


CARRIED_ALIKE = [
    name for name, knobs in systems.EXACT.items() if not make_system(systems.block(name)).asynchronous
]


def assert_carried_alike(pool, block, size, job=train, **settings) -> None:
    """Training over memory and over sockets: the same losses, weights and scores to the bit, and bytes."""
    memory, sockets = (
        systems.run(
            pool,
            random_graph(5, vertices=24),
            block,
            size,
            settings=systems.Settings(**settings),
            transport=transport,
            job=job,
        )
        for transport in (MEMORY, "sockets")
    )
    assert (memory.losses, memory.scores) == (sockets.losses, sockets.scores)
    for one, other in zip(memory.weights, sockets.weights, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert [w["sent"] for w in memory.workers] == [w["sent"] for w in sockets.workers]


@pytest.mark.parametrize("name", CARRIED_ALIKE)
def test_what_carries_the_bytes_changes_neither_them_nor_the_training(pool, name):
    assert_carried_alike(pool, systems.block(name), 3, dtype="float32")


@pytest.mark.nightly(60)
@pytest.mark.parametrize("name", [*CARRIED_ALIKE, "digest_a"])
def test_what_carries_the_bytes_changes_no_system_whatever_the_workers_and_the_wire(pool, name):
    block = systems.block(name, **({"order": "rotation"} if name == "digest_a" else {}))
    facts = dataclasses.replace(facts_of("gcn"), wire="bfloat16")
    jobs_of = [train] if make_system(block).supports(facts) else [train, jobs.train_halved]
    for size in (2, 3, 4):
        for dtype in ("float32", "float64"):
            for job in jobs_of:
                assert_carried_alike(pool, block, size, job, dtype=dtype, scored="every epoch")


# -- memory --


def many_epochs(comm, epochs) -> list[tuple[int, int]]:
    """(bytes of the store taken, regions held) after each of many exchanges that two by two are in flight."""
    carrier, seen, before = comm.transport, [], None
    ones = [int(p != comm.rank) for p in range(comm.size)]
    for _ in range(epochs):
        now = carrier.exchange(torch.empty(comm.size - 1, 50), torch.ones(comm.size - 1, 50), ones, ones)
        if before is not None:
            before.wait()
        before = now
        comm.barrier()
        seen.append((carrier.end, sum(map(bool, carrier.holds.values()))))
    before.wait()
    return seen


@linux
def test_memory_is_used_again(pool):
    for seen in pool.run(many_epochs, SIZE, 60):
        assert len({end for end, _ in seen[20:]}) == 1, "no more of it, however long the run"
        assert max(held for _, held in seen) <= 6


def kept_of(comm, once) -> tuple[int, int]:
    """Bytes of shared memory that this process has more than before, after 4 MB were sent to every other
    worker (`once`: for once) and all have read them; and what other 4 MB take, that are sent once."""
    rows, ones = torch.full((comm.size, 1_000_000), 7.0), [1] * comm.size

    def send(once: bool) -> torch.Tensor:
        with comm.for_once() if once else contextlib.nullcontext():
            flight, received = comm.start_exchange(rows, ones, ones, 0, "forward", "features")
            flight.wait()
        comm.barrier()  # all have read
        comm.barrier()  # and all have seen that
        return received

    comm.barrier()
    before = exchange_bytes(psutil.Process())
    buffers = len(comm._buffers)
    assert bool((send(once) == 7.0).all())
    assert len(comm._buffers) == buffers + (not once)
    kept, end = exchange_bytes(psutil.Process()) - before, comm.transport.end
    buffers = len(comm._buffers)
    for _ in range(3):
        send(True)
    assert len(comm._buffers) == buffers
    return kept, comm.transport.end - end


@linux
def test_what_is_sent_once_is_not_kept(pool):
    pool.forget()  # a worker that has sent 4 MB before has a place for them
    size = 4_000_000 * 3
    for kept, more in pool.run(kept_of, 3, True):
        assert kept < size / 10 and more < size / 10, "nor are addresses used up"
    for kept, more in pool.run(kept_of, 3, False):
        assert kept > size, "what is sent again has its place"
        assert more < size / 10, "which what is sent once may use meanwhile"


def looks(comm) -> bool:
    """Whether a look alone gives back what was sent once, when all have read it."""
    ones = [1] * comm.size
    with comm.for_once():
        flight, _ = comm.start_exchange(torch.ones(len(ones), 9), ones, ones, 0, "forward", "features")
        flight.wait()
    until = time.monotonic() + 30
    while comm.transport.passing and time.monotonic() < until:
        comm.look()
    return not comm.transport.passing


@linux
def test_a_look_gives_back_what_all_have_read(pool):
    assert pool.run(looks, SIZE) == [True] * SIZE


def far_ahead(comm, count) -> list[float]:
    """Worker 0 broadcasts more often than a ring has room before worker 1 looks at the first."""
    blocks = [{0: torch.full((2,), float(k))} for k in range(count)]
    if comm.rank == 0:
        for block in blocks:
            comm.transport.broadcast(block).wait()
        return []
    transfers = [comm.transport.broadcast(block) for block in blocks]
    for transfer in transfers:
        transfer.wait()
    return [float(block[0][1]) for block in blocks]


@linux
def test_a_sender_far_ahead_waits_for_room(pool):
    count = segments.RECORDS + 300
    assert pool.run(far_ahead, 2, count)[1] == [float(k) for k in range(count)]


def lent_rows(comm) -> tuple[bool, bool, bool]:
    """Whether rows written into a lent tensor are read where they were written; and when an exchange ended
    that nobody waited for, which takes its rows when it is waited for, once."""
    carrier = comm.transport
    rows = carrier.outgoing((1, 4), torch.float32).fill_(comm.rank + 1.0)
    ones = [int(p != comm.rank) for p in range(comm.size)]
    got = torch.empty(1, 4)
    transfer = carrier.exchange(got, rows, ones, ones)
    peer = 1 - comm.rank
    at, *_ = carrier.come(peer, 0)
    there = carrier.view(peer, at, 16, torch.float32)
    in_place = (
        bool((there == peer + 1.0).all()) and rows.data_ptr() == carrier.bytes[comm.rank].data_ptr() + at
    )
    unknown = transfer.ended is None
    transfer.look()
    ended = transfer.ended
    comm.barrier()
    transfer.wait()
    taken = transfer.begun <= ended < transfer.ended < ended + 1.0 and bool((got == peer + 1.0).all())
    got.zero_()
    transfer.wait()
    return in_place, unknown, taken and not got.any()


@linux
def test_lent_rows_are_not_copied_and_an_end_is_seen_without_waiting(pool):
    pool.forget()  # message 0 is the first
    assert pool.run(lent_rows, 2) == [(True, True, True)] * 2


def handed_over(comm) -> tuple[bool, float, float]:
    """Whether a halo's rows are packed where the transport lends memory; when an operation that nobody waits
    for ended, before and after a look."""
    lent = []
    outgoing = comm.transport.outgoing
    comm.transport.outgoing = lambda *given: lent.append(outgoing(*given)) or lent[-1]
    ones = [int(p != comm.rank) for p in range(comm.size)]
    try:
        comm.exchange(HaloPlan(torch.zeros(1, dtype=torch.int64), ones, ones), torch.ones(2, 3), 1).wait()
    finally:
        comm.transport.outgoing = outgoing
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        flight, _ = comm.start_exchange(torch.ones(1, 3), ones, ones, 1, "forward", "halo")
    comm.barrier()
    before = flight.span.end
    comm.look()
    after = flight.span.end
    flight.wait()
    return lent != [] and lent[0] is not None, before, after


@linux
def test_a_halo_is_packed_in_place_and_an_operation_seen_through_before_it_is_waited_for(pool):
    for in_place, before, after in pool.run(handed_over, 2):
        assert in_place and before == 0 and after > 0


# -- the ring --


@linux
@given(batches=st.lists(st.integers(1, 5), max_size=20))
@settings(deadline=None)
def test_a_ring_gives_records_in_order_and_none_where_there_is_none(batches):
    memory = mmap.mmap(-1, Ring.nbytes(5))
    writer, reader = Ring(memory, 0, 5, new=True), Ring(memory, 0, 5)
    put = 0
    for batch in batches:
        for _ in range(batch):
            writer.put(put, -put, 2 * put, put / 2)
            put += 1
        assert [reader.take() for _ in range(batch)] == [
            (k, -k, 2 * k, k / 2) for k in range(put - batch, put)
        ]
        assert reader.take() is None and reader.take(0.001) is None


@linux
def test_who_waits_at_a_ring_is_woken():
    memory = mmap.mmap(-1, Ring.nbytes(2))
    writer, reader = Ring(memory, 0, 2, new=True), Ring(memory, 0, 2)
    got = []
    waiting = threading.Thread(target=lambda: got.append(reader.take(60.0)))
    waiting.start()
    writer.put(1, 2, 3, 4.0)
    waiting.join(timeout=50)
    assert got == [(1, 2, 3, 4.0)]


def test_a_worker_alone_exchanges_with_nobody():
    """Every operation is through at once and leaves its tensors as they are; nothing is counted."""
    comm = Comm(0, 1, torch.device("cpu"), Recorder(), wire="bfloat16")
    rows, nothing = torch.rand(3, 2), torch.empty(0, dtype=torch.int64)
    before = rows.clone()
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        halo = comm.exchange(HaloPlan(nothing, [0], [0]), rows, layer=0).wait()
        comm.broadcast_blocks([rows], [0], 0, "forward", "blocks").wait()
        comm.all_reduce(rows, "weights", layer=0)
        flags = comm.all_gather_flag(True, 0)
    assert comm.carrier == "none" and flags == [True]
    assert halo.shape == (0, 2) and torch.equal(rows, before)
    assert not comm.recorder.epoch.sent
    assert "comm" not in {span.kind for span in comm.recorder.epoch.spans}
    for transfer in (
        comm.transport.exchange(rows, rows, [0], [0]),
        comm.transport.broadcast({0: rows}),
        comm.transport.all_reduce(rows),
    ):
        assert transfer.ended is not None
        transfer.wait()


def test_over_sockets_what_is_expected_is_posted_before_what_is_sent():
    """gloo tells a peer that it may send behind this worker's own rows."""
    posted = []
    carrier = object.__new__(SocketTransport)
    carrier.rank, carrier.peers, carrier.under_way = 1, [2, 0], {}
    carrier.group = SimpleNamespace(
        recv=lambda tensors, peer, number: posted.append(("from", peer, number)),
        send=lambda tensors, peer, number: posted.append(("to", peer, number)),
    )
    rows = [torch.ones(2), torch.ones(0), torch.ones(2)]
    carrier.post(7, rows, [torch.ones(2), torch.ones(0), torch.ones(0)])
    assert posted == [("from", 2, 7), ("from", 0, 7), ("to", 0, 7)]
