"""`python -m tests.replayed`: CPU seconds that replays of many epochs, and of many workers, take."""

import time

import numpy as np

from harness.core.cluster import Cluster, Device, Link
from harness.model.replay.engine import simulate
from harness.model.replay.platform import Platform, platform_of
from harness.model.replay.program import Begin, Operation, Post, Program, Step, Wait, Work
from harness.model.replay.times import critical_path, times_of

PER_HOST = 8


def program(workers: int, peers: int, epochs: int, exchanges: int) -> Program:
    """In every epoch so many exchanges, each worker's with `peers` others that are drawn, and a sum; work,
    and sizes of 0.01 to 1 MB, are drawn too."""
    rng = np.random.default_rng(0)
    operations: list[Operation] = []
    steps: list[list[Step]] = [[] for _ in range(workers)]
    for epoch in range(epochs):
        for own in steps:
            own.append(Begin(epoch))
        for layer in range(exchanges):
            parts = {}
            for worker in range(workers):
                others = (worker + 1 + rng.choice(workers - 1, peers, replace=False)) % workers
                parts[worker] = {int(p): int(rng.integers(10_000, 1_000_000)) for p in others}
            number = len(operations)
            operations.append(Operation("exchange", layer, "pairs", parts))
            for own in steps:
                own.append(Work("compute", "forward", layer, float(rng.uniform(0.005, 0.01))))
                own += [Post(number), Work("compute", "forward", layer, 0.002)]
                own.append(Wait(number, "exchange", layer))
        number = len(operations)
        share = {worker: {(worker + 1) % workers: 400_000} for worker in range(workers)}
        operations.append(Operation("all_reduce", -1, "ring", share))
        for own in steps:
            own += [Post(number), Wait(number, "all_reduce", -1)]
    return Program(steps, operations, list(range(epochs)))


def platform(workers: int) -> Platform:
    devices = [Device(host=worker // PER_HOST) for worker in range(workers)]
    inside, between = Link(gbytes_per_s=20, latency_us=5), Link(gbytes_per_s=3, latency_us=20)
    return platform_of(Cluster(name="many", devices=devices, inside=inside, between=between), workers)


def main() -> None:
    for workers, peers, epochs, exchanges in ((8, 7, 200, 3), (128, 127, 3, 4)):
        given = program(workers, peers, epochs, exchanges)
        began = time.process_time()
        timeline = simulate(given, platform(workers))
        simulated = time.process_time()
        times_of(timeline)
        critical_path(timeline)
        ended = time.process_time()
        print(
            f"{workers} workers, {epochs} epochs: {ended - began:.1f} CPU s, of which"
            f" {simulated - began:.1f} to simulate"
        )
        if timeline.merged:
            print("  flows that begin or end near each other were put together")


if __name__ == "__main__":
    main()
