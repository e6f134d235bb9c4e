"""What becomes of the memory that workers share: it is used again, lent to who fills it, and given back where
what lies in it is sent once.
"""

from __future__ import annotations

import contextlib

import psutil
import torch

from harness.comm import segments
from tests.memory import exchange_bytes

SIZE = 3


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


def test_what_is_sent_once_is_not_kept(pool):
    pool.forget()  # a worker that has sent 4 MB before has a place for them
    size = 4_000_000 * 3
    for kept, more in pool.run(kept_of, 3, True):
        assert kept < size / 10 and more < size / 10, "nor are addresses used up"
    for kept, more in pool.run(kept_of, 3, False):
        assert kept > size, "what is sent again has its place"
        assert more < size / 10, "which what is sent once may use meanwhile"


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


def test_a_sender_far_ahead_waits_for_room(pool):
    count = segments.RECORDS + 300
    assert pool.run(far_ahead, 2, count)[1] == [float(k) for k in range(count)]


def lent_rows(comm) -> tuple[bool, bool]:
    """Whether rows that are written into a lent tensor are read where they were written, and whether the end
    of an exchange that nobody waits for is seen."""
    carrier, peer = comm.transport, 1 - comm.rank
    rows = carrier.outgoing((1, 4), torch.float32).fill_(comm.rank + 1.0)
    ones = [int(p != comm.rank) for p in range(comm.size)]
    got = torch.empty(1, 4)
    transfer = carrier.exchange(got, rows, ones, ones)
    at, *_ = carrier.come(peer, 0)
    there = carrier.view(peer, at, 16, torch.float32)
    in_place = rows.data_ptr() == carrier.bytes[comm.rank].data_ptr() + at
    seen = transfer.ended is None
    transfer.look()
    ended = transfer.ended
    comm.barrier()
    transfer.wait()
    seen = seen and transfer.begun <= ended < transfer.ended
    return in_place and bool((there == peer + 1.0).all()), seen and bool((got == peer + 1.0).all())


def test_lent_rows_are_not_copied_and_an_end_is_seen_without_waiting(pool):
    pool.forget()  # message 0 is the first
    assert pool.run(lent_rows, 2) == [(True, True)] * 2
