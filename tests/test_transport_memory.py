"""What becomes of the memory that workers share: it is used again, and given back after what is sent once."""

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
    pool.forget()  # a worker that has free regions of other tests uses them first
    for seen in pool.run(many_epochs, SIZE, 60):
        # two regions of each length: 512 bytes for the rows of a peer, 64 for what tells of them
        taken = seen[-1][0] - segments.inbox_bytes(SIZE)
        assert taken <= 2 * (512 + 64), "no more of it, however long the run"
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


def seen_through(comm) -> bool:
    """Whether a look sees the end of an exchange before anybody waits for it."""
    ones = [int(p != comm.rank) for p in range(comm.size)]
    transfer = comm.transport.exchange(torch.empty(1, 4), torch.ones(1, 4), ones, ones)
    comm.barrier()  # the peer's row is there
    unknown = transfer.ended is None
    transfer.look()
    seen = transfer.ended
    transfer.wait()
    return unknown and transfer.begun <= seen < transfer.ended


def test_the_end_of_an_operation_is_seen_without_waiting(pool):
    assert pool.run(seen_through, 2) == [True] * 2
