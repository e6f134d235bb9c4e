"""What the checks ask of pooled workers: functions of (comm, ...) that are importable there."""

import numpy as np
import torch

from harness.base.errors import typed
from harness.comm.comm import Comm
from harness.comm.watched import Watched
from harness.core.cluster import Cluster
from harness.core.mixins import evaluation_weights
from harness.core.trainer import Trainer
from harness.run.config import NULL, make, make_system


def make_trainer(
    comm, block, model, optimiser, seed, epochs, shard, cluster=None, choices=None, kernel="numba"
):
    """The trainer of a worker, as a run makes it.

    choices   of a run, by their names in a config: rows, features_wire; combine, straggler and labels
              (blocks)
    """
    choices = choices or {}
    return Trainer(
        shard,
        comm,
        make_system(block),
        make("model", model),
        make("optimiser", optimiser),
        seed=seed,
        epochs=epochs,
        kernel=kernel,
        cluster=typed(Cluster, cluster, "cluster") if cluster else None,
        rows=choices.get("rows"),
        features_wire=choices.get("features_wire"),
        **{name: make(name, choices.get(name) or {}) for name in NULL},
    )


def train(
    comm, block, model, optimiser, seed, epochs, dtype, stop_at, scored, cluster, choices, shard
) -> dict:
    """Train and report each epoch. Before epoch `stop_at` the trainer is replaced by a new one, which loads
    its state dict."""
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        how = (block, model, optimiser, seed, epochs, shard, cluster, choices)
        trainer = make_trainer(comm, *how)
        losses, weights, sent, metrics, spans, scores = [], [snapshot(trainer)], [], [], [], []
        for epoch in range(epochs):
            if epoch == stop_at:
                state = trainer.state_dict()
                # a server may end with worker 0, and others still be asking it for their state
                comm.barrier()
                trainer.closing.close()
                trainer = make_trainer(comm, *how)
                trainer.load_state_dict(state)
            local = trainer.train_epoch(epoch)
            record = comm.recorder.epoch
            losses.append(trainer.global_loss(local))
            weights.append(snapshot(trainer))
            if scored == "every epoch" or epoch == epochs - 1:
                scores.append(trainer.evaluate().accuracy)
            sent.append({key: tuple(value) for key, value in record.sent.items()})
            metrics.append(dict(record.metrics))
            spans.append((record.train, record.spans))
        trainer.closing.close()
        comm.drain()
        return {
            "losses": losses,
            "weights": weights,
            "sent": sent,
            "metrics": metrics,
            "spans": spans,
            "scores": scores,
        }
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
