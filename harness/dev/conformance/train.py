"""What the checks ask of pooled workers: functions of (comm, ...) that are importable there."""

from dataclasses import dataclass, field

import numpy as np
import torch

from harness.base.errors import typed
from harness.comm.comm import Comm
from harness.comm.watched import Watched
from harness.core.cluster import Cluster
from harness.core.mixins import evaluation_weights
from harness.core.trainer import Trainer
from harness.run.config import NULL, make, make_system


@dataclass
class Settings:
    """A small run; float64 where results are compared with an oracle."""

    model: dict = field(default_factory=lambda: {"name": "gcn", "layers": 2, "hidden": 4, "dropout": 0.0})
    optimiser: dict = field(default_factory=lambda: {"lr": 0.01, "weight_decay": 5e-4})
    epochs: int = 5
    seed: int = 3
    dtype: str = "float64"
    stop_at: int | None = None
    scored: str = "at the end"  # or after "every epoch"
    cluster: dict | None = None  # None: devices that are all alike
    rows: str | None = None  # "all" or "needed"; None: the system's own choice
    features_wire: str | None = None  # "auto", "dense" or "sparse"; None: the system's own choice
    combine: dict | None = None  # the block of that name; None: the system's own choice
    straggler: dict | None = None  # the block of that name; None: no worker is slowed down
    labels: dict | None = None  # the block of that name; None: no vertex shows its label


def make_trainer(comm, block, how: Settings, shard, kernel="numba") -> Trainer:
    """The trainer of a worker, as a run makes it, for the system of a config block."""
    return Trainer(
        shard,
        comm,
        make_system(block),
        make("model", how.model),
        make("optimiser", how.optimiser),
        seed=how.seed,
        epochs=how.epochs,
        kernel=kernel,
        cluster=typed(Cluster, how.cluster, "cluster") if how.cluster else None,
        rows=how.rows,
        features_wire=how.features_wire,
        **{name: make(name, getattr(how, name) or {}) for name in NULL},
    )


def train(comm, block, how: Settings, shard) -> dict[str, list]:
    """Train and report each epoch: `losses`, `weights` (those before the first too), `sent`, `metrics`,
    `spans` (with the epoch's seconds) and, where scored, `scores`. Before epoch `stop_at` the trainer is
    replaced by a new one, which loads its state dict."""
    torch.set_default_dtype(getattr(torch, how.dtype))
    try:
        trainer = make_trainer(comm, block, how, shard)
        found: dict[str, list] = {
            name: [] for name in ("losses", "weights", "sent", "metrics", "spans", "scores")
        }
        found["weights"].append(snapshot(trainer))
        for epoch in range(how.epochs):
            if epoch == how.stop_at:
                state = trainer.state_dict()
                # a server may end with worker 0, and others still be asking it for their state
                comm.barrier()
                trainer.closing.close()
                trainer = make_trainer(comm, block, how, shard)
                trainer.load_state_dict(state)
            local = trainer.train_epoch(epoch)
            record = comm.recorder.epoch
            found["losses"].append(trainer.global_loss(local))
            found["weights"].append(snapshot(trainer))
            if how.scored == "every epoch" or epoch == how.epochs - 1:
                found["scores"].append(trainer.evaluate().accuracy)
            found["sent"].append({key: tuple(value) for key, value in record.sent.items()})
            found["metrics"].append(dict(record.metrics))
            found["spans"].append((record.train, record.spans))
        trainer.closing.close()
        comm.drain()
        return found
    finally:
        torch.set_default_dtype(torch.float32)


def snapshot(trainer) -> dict[str, np.ndarray]:
    """A copy of the weights, by name, that an evaluation at this moment would use."""
    with evaluation_weights(trainer.system, trainer.recorder.epoch.epoch):
        return {name: value.detach().numpy().copy() for name, value in trainer.model.named_parameters()}


def train_watched(comm, *given) -> dict:
    """`train`, and beside it `handed`: by epoch the bytes that the training thread handed to the transport,
    counted there. InputError where a system moves data past it."""
    watched = Watched(comm.transport, comm.rank, comm.size, comm.recorder)
    with watched.alone():
        made = train(Comm(comm.rank, comm.size, comm.device, comm.recorder, watched), *given)
    return {**made, "handed": dict(watched.handed)}
