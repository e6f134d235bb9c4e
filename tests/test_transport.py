"""Memory that workers share carries what sockets carry: in any order of waiting, into memory used again, and
it tells of who is lost.
"""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.mixins import AsynchronousSystem
from harness.dev.conformance.checks import same_bits
from harness.dev.conformance.pool import MEMORY
from harness.dev.conformance.runs import train
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import jobs, systems
from tests.oracles.samples import random_graph

SIZE = 3
counts = st.lists(st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE), min_size=SIZE, max_size=SIZE)
dtypes = st.sampled_from(["float32", "int64", "uint8"])
roots = st.lists(st.integers(0, SIZE - 1), unique=True)
exchange = st.tuples(st.just("exchange"), counts, dtypes, st.booleans())
broadcast = st.tuples(st.just("broadcast"), roots, st.integers(0, 5))
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
    dtype, send = getattr(torch, dtype), counts[comm.rank]
    receive = [counts[p][comm.rank] for p in range(comm.size)]
    rows = [[value(k, comm.rank, p, i)] * 2 for p in range(comm.size) for i in range(send[p])]
    want = [[value(k, p, comm.rank, i)] * 2 for p in range(comm.size) for i in range(receive[p])]
    rows, want = (torch.tensor(each, dtype=dtype).view(-1, 2) for each in (rows, want))
    own = comm.transport.outgoing(rows.shape, dtype) if lent else None
    got = torch.full_like(want, 7)
    sent = rows if own is None else own.copy_(rows)
    return comm.transport.exchange(got, sent, receive, send), lambda: got, want


def start_broadcast(comm, k, roots, n):
    blocks = {root: torch.full((n, 2), float(value(k, comm.rank, 0, 0))) for root in roots}
    want = [torch.full((n, 2), float(value(k, root, 0, 0))) for root in roots]
    nothing = torch.zeros(0, 2)
    transfer = comm.transport.broadcast(blocks)
    return transfer, lambda: torch.cat([nothing, *blocks.values()]), torch.cat([nothing, *want])


def start_all_reduce(comm, k, n):
    got = torch.arange(n, dtype=torch.float64) + k * comm.rank
    want = comm.size * torch.arange(n, dtype=torch.float64) + k * sum(range(comm.size))
    return comm.transport.all_reduce(got), lambda: got, want


START = {"exchange": start_exchange, "broadcast": start_broadcast, "all_reduce": start_all_reduce}


@given(program=program)
def test_whatever_is_posted_arrives_in_whatever_order_it_is_waited_for(pool, program):
    assert pool.run(execute, SIZE, program) == [[]] * SIZE


@given(program=program)
@settings(max_examples=10)
def test_the_same_programs_over_sockets(pool, program):
    assert pool.run(execute, SIZE, program, transport="sockets") == [[]] * SIZE


floats = st.sampled_from([0.0, -0.0, 1e-30, 1e30]) | st.floats(-1e3, 1e3, width=32)


def summed(comm, terms, dtype) -> torch.Tensor:
    total = torch.tensor(terms[comm.rank], dtype=getattr(torch, dtype))
    comm.transport.all_reduce(total).wait()
    return total


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@given(data=st.data())
def test_a_sum_has_the_same_bits_over_memory_and_sockets(pool, dtype, data):
    size, length = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 11))
    terms = data.draw(
        st.lists(st.lists(floats, min_size=length, max_size=length), min_size=size, max_size=size)
    )
    want, *others = (torch.tensor(each, dtype=getattr(torch, dtype)) for each in terms)
    for other in others:
        want = want + other
    for transport in ("memory", "sockets"):
        for got in pool.run(summed, size, terms, dtype, transport=transport):
            assert got.view(torch.uint8).tolist() == want.view(torch.uint8).tolist(), "in the order of ranks"


# One of each way to send: halos, broadcasts, a store's and a sampler's pulls, caches, replicas, a pipeline.
CARRIED_OFTEN = ["vanilla", "sancus", "digest", "distdgl", "capgnn", "cdfgnn", "pipegcn"]
CARRIED_ALIKE = [
    name for name in systems.EXACT if not isinstance(make_system(systems.block(name)), AsynchronousSystem)
]


def assert_carried_alike(pool, block, size, job=train, **settings) -> None:
    """Training over memory and over sockets: the same losses, weights and scores to the bit, and bytes."""
    graph, how = random_graph(5, vertices=24), systems.Settings(**settings)
    memory, sockets = (
        systems.run(pool, graph, block, size, settings=how, transport=transport, job=job)
        for transport in (MEMORY, "sockets")
    )
    assert same_bits(memory, sockets) and memory.scores == sockets.scores
    assert [w["sent"] for w in memory.workers] == [w["sent"] for w in sockets.workers]


@pytest.mark.parametrize("name", CARRIED_OFTEN)
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
