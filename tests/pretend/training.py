"""Training on the pretended device, or on the CPU, on pooled workers."""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from harness.comm.comm import Comm
from harness.comm.nccl import NcclTransport
from harness.comm.recorder import Recorder
from harness.core import dense
from harness.core.checkpoint import Checkpoints
from harness.core.trainer import Trainer
from harness.data.partition.assign import assign
from harness.data.partition.vertexcut import assign_edges
from harness.dev.conformance.pool import MEMORY, WorkerPool
from harness.dev.conformance.runs import shards_of
from harness.run import config
from tests import systems
from tests.graphs import random_graph
from tests.pretend.install import pretended
from tests.pretend.tally import Note

WORKERS, EPOCHS, STOP_AT = 2, 6, 4
OPTIMISER = {"lr": 0.01, "weight_decay": 5e-4}
MODELS: dict[str, dict[str, Any]] = {
    "gcn": {"name": "gcn", "layers": 2, "hidden": 4, "dropout": 0.3},
    "sage": {"name": "sage", "layers": 2, "hidden": 4, "dropout": 0.3},
    "gat": {"name": "gat", "layers": 2, "hidden": 4, "heads": 2, "out_heads": 2, "dropout": 0.3},
}
YAMLS = sorted(str(path.relative_to(systems.CONF).with_suffix("")) for path in systems.CONF.glob("**/*.yaml"))
# Each yaml as it stands, but for a knob without which nothing repeats its bits; and what no yaml says.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in YAMLS},
    "digest_a": ("digest_a", {"order": "rotation"}),
    "cagnet, 1.5D": ("cagnet", {"replication": 2}),
    "supergnn, coded": ("supergnn", {"bits": 4}),
    "adaqp, adaptive": ("adaqp", {"bits": 4, "assignment": "adaptive", "period": 2}),
}


@dataclass
class Trained:
    """Losses and scores, epoch by epoch and equal on all workers; what worker 0's segments were and their CPU
    seconds; and each worker's tally.
    """

    losses: list[float]
    scores: list[tuple[float, ...]]
    cpu: list[tuple[str, float]]
    carrier: str
    tallies: list[dict[Note, int]]

    def worst(self, kind: str, epochs: range) -> int:
        """The largest count of a kind of note in one epoch of one worker."""
        return max(
            sum(n for note, n in tally.items() if (note.kind, note.epoch) == (kind, epoch))
            for tally in self.tallies
            for epoch in epochs
        )


def trained(
    pool: WorkerPool,
    name: str,
    model: str = "gcn",
    where: str = "nccl",
    stopped: bool = False,
    wire: str = "float32",
    labels: dict[str, Any] | None = None,
) -> Trained:
    """Train one of CASES on a small graph; `where` as `train` says. `stopped`: go on from a checkpoint.
    labels: the block of that name, for which layer 0 is fetched in every epoch."""
    block = systems.block(CASES[name][0], **CASES[name][1], **({"features": "refetch"} if labels else {}))
    cut = {"edge": ("random", assign), "vertex": ("ebv", assign_edges)}[config.make_system(block).cut]
    graph, workers = random_graph(40, 4, seed=3), max(WORKERS, block.get("replication", 1) ** 2)
    with tempfile.TemporaryDirectory() as folder:
        found = pool.run(
            train,
            workers,
            block,
            MODELS[model],
            where,
            folder if stopped else None,
            wire,
            labels,
            per_worker=shards_of(graph, cut[1](graph, cut[0], workers, 3), workers),
            transport="sockets" if where == "nccl" else MEMORY,
        )
    for other in found[1:]:
        assert (other["losses"], other["scores"]) == (found[0]["losses"], found[0]["scores"])
    tallies = [each.pop("tally") for each in found]
    return Trained(**found[0], tallies=tallies)


def make_trainer(
    comm: Comm,
    system: dict[str, Any],
    model: dict[str, Any],
    shard: Any,
    labels: dict[str, Any] | None = None,
) -> Trainer:
    """With the sparse kernel that runs on either device."""
    return Trainer(
        shard,
        comm,
        config.make_system(system),
        config.make("model", model),
        config.make("optimiser", OPTIMISER),
        seed=3,
        epochs=EPOCHS,
        kernel="torch",
        labels=config.make("labels", labels or {}),
    )


def train(
    comm: Comm,
    system: dict[str, Any],
    model: dict[str, Any],
    where: str,
    folder: str | None,
    wire: str,
    labels: dict[str, Any] | None,
    shard: Any,
) -> dict[str, Any]:
    """Losses and scores, epoch by epoch, and where the host waited.

    where    "cpu"; "nccl": a pretended GPU for each worker; "staged": one that all workers share
    folder   of a checkpoint, through which the run is stopped and goes on at STOP_AT; None: it is not stopped
    """
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        tally = None
        carrier, device = comm.transport, comm.device
        if where != "cpu":
            tally = stack.enter_context(pretended(recorder, nccl=where == "nccl"))
            device = torch.device("cuda", 0)
            carrier = NcclTransport() if where == "nccl" else carrier
        else:  # the same order of sums as on a device: bits are compared
            stack.enter_context(mock.patch.object(dense, "VECTOR", 1))
        comm = Comm(comm.rank, comm.size, device, recorder, carrier, wire)
        trainer = make_trainer(comm, system, model, shard, labels)
        losses, scores, cpu = [], [], []
        for epoch in range(EPOCHS):
            if folder is not None and epoch == STOP_AT:
                checkpoints = Checkpoints(Path(folder), comm.rank, comm)
                checkpoints.save(trainer, epoch)
                comm.barrier()
                trainer.closing.close()
                trainer = make_trainer(comm, system, model, shard, labels)
                assert checkpoints.restore(trainer) == STOP_AT
            local = trainer.train_epoch(epoch)
            cpu += [(span.name, span.cpu) for span in recorder.epoch.spans]
            losses.append(trainer.global_loss(local))
            scores.append(trainer.evaluate().accuracy)
        trainer.closing.close()
        comm.drain()
        return {
            "losses": losses,
            "scores": scores,
            "cpu": cpu,
            "carrier": carrier.name,
            "tally": dict(tally.counts) if tally is not None else {},
        }
