"""How much of its communication a pipelined system hides, over a link slowed until communication takes half
as long as computing.

Two workers, a core each. A first pass at full speed says what an epoch computes and sends; the link's rate
follows from both, and a second pass shows what is still waited for. `vanilla` stands beside: what hiding
within an epoch alone can do.

A wait for communication counts from the moment at which the last worker posted the operation; until then it
is a wait for a slower worker's computing. The spans of all workers tell the two apart, since workers share
operation ids and a clock.
"""

import statistics
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import numpy as np
import pandas as pd

from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.comm.transport import Transfer
from harness.core.config import ModelConfig
from harness.core.optimisers import Adam
from harness.core.trainer import Trainer
from harness.data.graph import Graph
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.shard import Shard
from harness.dev.bench.lines import BenchLine
from harness.dev.conformance.pool import WorkerPool
from harness.run.config import make_system
from harness.run.runner import configured

WORKERS, EPOCHS, WARM_UP = 2, 12, 4
# Seconds of communication over seconds of computing; largest good share of communication that is waited for.
SHARE, TARGET = 0.5, 0.2
CASES: dict[str, dict[str, Any]] = {
    "vanilla": {"features": "once"},
    "pipegcn": {},
    "pscgcn": {"tau": 1, "features": "once", "refresh": 100},
}
HELD = ("pipegcn", "pscgcn")


class SlowLink(Comm):
    """A transport whose outgoing link passes `rate` bytes per second, one message after another. What was
    posted arrives when the link has passed it, and no earlier."""

    def __init__(self, *given, rate: float):
        super().__init__(*given)
        self.rate, self.free = rate, 0.0

    def _post(self, name, layer, direction, purpose, sends, start, **rest):
        size = sum(size for _, size in sends.values())

        def slowed():
            transfer = start()
            self.free = max(self.free, time.monotonic()) + size / self.rate
            return Late(transfer, self.free)

        return super()._post(name, layer, direction, purpose, sends, slowed, **rest)


class Late:
    """A transfer that has arrived once it is through and the moment `due` has come."""

    def __init__(self, transfer: Transfer, due: float):
        self.transfer, self.due = transfer, due

    @property
    def ended(self) -> float | None:
        through = self.transfer.ended
        return None if through is None or time.monotonic() < self.due else max(through, self.due)

    def look(self) -> None:
        self.transfer.look()

    def wait(self) -> None:
        time.sleep(max(0.0, self.due - time.monotonic()))
        self.transfer.wait()


def overlap_lines(graph: Graph, model: ModelConfig, names: Iterable[str] = tuple(CASES)) -> list[BenchLine]:
    """Seconds of communication that a worker waits for in an epoch / seconds that the slowed link is busy."""
    assignment = assign(graph, "random", WORKERS, 1).astype(np.int32)
    shards, lines = list(build_shards(graph, assignment, WORKERS)), []
    for name in names:
        rate, epochs = measure(shards, {**configured()[name], **CASES[name]}, model)
        of = epochs.median()
        note = (
            f"computes {of.compute:.4f} s; waits {of.waited - of.exposed:.4f} s for the other worker's"
            " computing"
        )
        what = f"{name}: exposed / communication of half of compute"
        exposed, busy = epochs.exposed.tolist(), (epochs.bytes / rate).tolist()
        target = TARGET if name in HELD else None
        lines.append(BenchLine.of(what, "s", exposed, busy, target, note))
    return lines


def measure(shards: list[Shard], block: dict[str, Any], model: ModelConfig) -> tuple[float, pd.DataFrame]:
    """The rate of the slowed link, in bytes per second, and what was `measured` over it."""
    with closing(WorkerPool(len(shards), preload=[__name__])) as pool:
        answers = pool.run(_work, len(shards), block, model, per_worker=shards, transport="auto")
    return answers[0][0], measured([found for _, found in answers])


def measured(workers: list[dict[str, list]]) -> pd.DataFrame:
    """What `observe` gave on each worker, put together: by epoch, without the first ones, the seconds that a
    worker computed, waited, and waited for communication (`exposed`), and the bytes that it sent, in the mean
    over workers."""
    begun: dict[str, float] = {}  # by operation: when the last worker posted it
    for each in workers:
        for id, posted in each["posted"]:
            begun[id] = max(begun.get(id, 0.0), posted)
    epochs = []
    for e in range(WARM_UP, EPOCHS):
        waits = [wait for each in workers for wait in each["waits"][e]]
        row = {
            "compute": sum(each["compute"][e] for each in workers),
            "waited": sum(end - start for _, start, end in waits),
            "exposed": sum(max(0.0, end - max(start, begun.get(id, start))) for id, start, end in waits),
            "bytes": sum(each["bytes"][e] for each in workers),
        }
        epochs.append(row)
    return pd.DataFrame(epochs) / len(workers)


def _work(
    comm: Comm, block: dict[str, Any], model: ModelConfig, shard: Shard
) -> tuple[float, dict[str, list]]:
    """The rate of the slowed link, and what was observed over it."""

    def passed(rate: float) -> tuple[dict[str, list], Comm]:
        link = SlowLink(comm.rank, comm.size, comm.device, Recorder(), comm.transport, rate=rate)
        return observe(Trainer(shard, link, make_system(block), model, Adam(), seed=1, epochs=EPOCHS)), link

    rate = slowed(*passed(float("inf")))
    return rate, passed(rate)[0]


def slowed(fast: dict[str, list], comm: Comm) -> float:
    """Bytes per second of a link that is busy for SHARE of the time that workers computed in; collective."""
    compute, sent = (comm.total(fast[name][WARM_UP:]) for name in ("compute", "bytes"))
    return statistics.median(sent) / (SHARE * statistics.median(compute))


def observe(trainer: Trainer) -> dict[str, list]:
    """Of each epoch: seconds computed, waits, when operations were posted, bytes sent."""
    found: dict[str, list] = {"compute": [], "waits": [], "posted": [], "bytes": []}
    for epoch in range(EPOCHS):
        trainer.train_epoch(epoch)
        spans = trainer.recorder.epoch.spans
        found["compute"].append(sum(s.end - s.start for s in spans if s.kind == "compute"))
        found["waits"].append([(s.id, s.start, s.end) for s in spans if s.kind == "wait"])
        found["posted"] += [(s.id, s.start) for s in spans if s.kind == "comm"]
        found["bytes"].append(sum(size for _, size in trainer.recorder.epoch.sent.values()))
    trainer.closing.close()
    trainer.comm.drain()
    return found
