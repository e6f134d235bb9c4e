"""How fast two processes of this machine exchange rows, over each transport that it has: both send and
receive at once, as in an exchange of halos."""

import time
from contextlib import closing
from dataclasses import dataclass

import torch

from harness.comm.comm import Comm
from harness.dev.conformance.pool import MEMORY, WorkerPool
from harness.model.calibrate.speeds import Spread

LARGE, SMALL = 16 << 20, 4  # bytes that each sends to the other
ROUNDS = 9


@dataclass(frozen=True)
class Measured:
    """Of one transport.

    latency   seconds of an exchange of SMALL bytes
    rate      bytes per second in one direction: those of an exchange of LARGE bytes over what it takes beyond
              the median latency
    """

    transport: str
    latency: Spread
    rate: Spread


def measure() -> list[Measured]:
    """Measure each transport between two processes: shared memory, and sockets over loopback."""
    transports = MEMORY, "sockets"
    with closing(WorkerPool(2)) as pool:
        answers = {name: pool.run(exchange, 2, LARGE, ROUNDS, transport=name) for name in transports}
    return [_of(name, LARGE, *answers[name][0]) for name in transports]


def exchange(comm: Comm, large: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of each exchange of SMALL and of `large` bytes with the one peer."""
    few, many = ([_once(comm, size) for _ in range(rounds + 1)][1:] for size in (SMALL, large))
    return few, many


def _once(comm: Comm, size: int) -> float:
    rows = torch.ones(size // 4, 1)
    counts = [0 if rank == comm.rank else len(rows) for rank in range(comm.size)]
    comm.barrier()
    start = time.monotonic()
    flight, _ = comm.start_exchange(rows, counts, counts, 0, "forward", "measured")
    flight.wait()
    return time.monotonic() - start


def _of(name: str, large: int, few: list[float], many: list[float]) -> Measured:
    latency = Spread.of(few)
    # Where a large exchange takes hardly longer than a small one, at least a tenth of its seconds count.
    rates = [large / max(seconds - latency.median, seconds / 10) for seconds in many]
    return Measured(name, latency, Spread.of(rates))
