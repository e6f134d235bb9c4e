"""What tests ask of pooled workers: functions of (comm, ...) that are importable there."""

from __future__ import annotations

import numpy as np
import torch

from harness.check import typed
from harness.config import make_system
from harness.core.config import ModelConfig, OptimiserConfig
from harness.core.trainer import Trainer


def make_trainer(comm, block, model, optimiser, seed, shard) -> Trainer:
    return Trainer(shard, comm, make_system(block), typed(ModelConfig, model, "model"),
                   typed(OptimiserConfig, optimiser, "optimiser"), seed=seed, kernel="numba")


def train(comm, block, model, optimiser, seed, epochs, dtype, stop_at, shard) -> dict:
    """Train and report what happened, epoch by epoch; with `stop_at`, through a state dict and a new trainer."""
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        trainer = make_trainer(comm, block, model, optimiser, seed, shard)
        losses, weights, sent, metrics, spans, scores = [], [snapshot(trainer)], [], [], [], []
        for epoch in range(epochs):
            if epoch == stop_at:
                state = trainer.state_dict()
                trainer = make_trainer(comm, block, model, optimiser, seed, shard)
                trainer.load_state_dict(state)
            local = trainer.train_epoch(epoch)
            record = comm.recorder.epoch
            losses.append(trainer.global_loss(local))
            weights.append(snapshot(trainer))
            scores.append(trainer.evaluate())
            sent.append({key: tuple(value) for key, value in record.sent.items()})
            metrics.append(dict(record.metrics))
            spans.append((record.train, record.spans))
        return {"losses": losses, "weights": weights, "sent": sent, "metrics": metrics, "spans": spans, "scores": scores}
    finally:
        torch.set_default_dtype(torch.float32)


def snapshot(trainer) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in trainer.model.named_parameters()}
