"""What tests ask of pooled workers: functions of (comm, ...) that are importable there."""

from __future__ import annotations

import numpy as np
import torch

from harness.check import typed
from harness.cluster.config import Cluster
from harness.comm.comm import HaloPlan
from harness.config import make_system
from harness.core.config import ModelConfig, OptimiserConfig
from harness.core.cuts import halo_plan
from harness.core.trainer import Trainer


def make_trainer(comm, block, model, optimiser, seed, shard, cluster=None) -> Trainer:
    return Trainer(shard, comm, make_system(block), typed(ModelConfig, model, "model"),
                   typed(OptimiserConfig, optimiser, "optimiser"), seed=seed, kernel="numba",
                   cluster=typed(Cluster, cluster, "cluster") if cluster else None)


def train(comm, block, model, optimiser, seed, epochs, dtype, stop_at, cluster, shard) -> dict:
    """Train and report what happened, epoch by epoch; with `stop_at`, through a state dict and a new trainer."""
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        trainer = make_trainer(comm, block, model, optimiser, seed, shard, cluster)
        losses, weights, sent, metrics, spans, scores = [], [snapshot(trainer)], [], [], [], []
        for epoch in range(epochs):
            if epoch == stop_at:
                state = trainer.state_dict()
                trainer = make_trainer(comm, block, model, optimiser, seed, shard, cluster)
                trainer.load_state_dict(state)
            local = trainer.train_epoch(epoch)
            record = comm.recorder.epoch
            losses.append(trainer.global_loss(local))
            weights.append(snapshot(trainer))
            scores.append(trainer.evaluate())
            sent.append({key: tuple(value) for key, value in record.sent.items()})
            metrics.append(dict(record.metrics))
            spans.append((record.train, record.spans))
        comm.drain()
        return {"losses": losses, "weights": weights, "sent": sent, "metrics": metrics, "spans": spans, "scores": scores}
    finally:
        torch.set_default_dtype(torch.float32)


def snapshot(trainer) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy().copy() for name, value in trainer.model.named_parameters()}


def epoch_bytes(comm, rows, width) -> tuple[int, int]:
    """Bytes counted by all workers for one large epoch, and what the loopback interface counted meanwhile."""
    counts = [rows if p != comm.rank else 0 for p in range(comm.size)]
    plan = HaloPlan(torch.arange(rows).repeat(comm.size - 1), counts, counts)
    h = torch.ones(rows, width, requires_grad=True)
    comm.barrier()
    before = loopback_bytes()
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        comm.exchange(plan, h, layer=1).wait().sum().backward()
        blocks = [torch.zeros(rows, width) for _ in range(comm.size)]
        comm.broadcast_blocks(blocks, range(comm.size), 0, "forward", "blocks").wait()
        comm.all_reduce(torch.ones(rows * width), "weights")
    counted = sum(size for _, size in comm.recorder.epoch.sent.values())
    total = int(comm.total([counted])[0])
    return total, loopback_bytes() - before


def loopback_bytes() -> int:
    for line in open("/proc/net/dev"):
        if line.strip().startswith("lo:"):
            return int(line.split(":")[1].split()[0])
    raise AssertionError("no loopback interface")


def exchange_once(comm, width, shard) -> dict:
    """The halo of global ids, the gradient of a sum weighted by global id, and what was counted inside and outside."""
    plan = halo_plan(shard, comm.device)
    ids = torch.as_tensor(shard.inner, dtype=torch.float64)
    h = (ids[:, None] + torch.arange(width) / 100).requires_grad_()
    outside = comm.exchange(plan, h, layer=1).wait()
    counted_outside = len(comm.recorder.epoch.sent)
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        pending = comm.exchange(plan, h, layer=1)
        local = (h * 2).sum()
        halo = pending.wait()
        (halo.sum() + local).backward()
    return {"halo": halo.detach().numpy().copy(), "outside": outside.shape, "gradient": h.grad.numpy(),
            "counted_outside": counted_outside, "sent": dict(comm.recorder.epoch.sent), "spans": comm.recorder.epoch.spans}


def collectives(comm) -> dict:
    flags = comm.all_gather_flag(comm.rank % 2 == 1, layer=0)
    tensor = torch.full((7,), float(comm.rank + 1))
    comm.all_reduce(tensor, "weights")
    blocks = [torch.full((2, 3), float(comm.rank)) if j == comm.rank else torch.full((2, 3), -1.0) for j in range(comm.size)]
    comm.broadcast_blocks(blocks, [0, 2], 1, "forward", "blocks").wait()
    return {"flags": flags, "sum": tensor.tolist(), "blocks": [float(b[0, 0]) for b in blocks]}


def gather_ragged(comm) -> dict:
    comm.recorder.begin_epoch(0)
    with comm.recorder.train():
        told = comm.exchange_counts([10 * comm.rank + p for p in range(comm.size)], 0, "forward", "ids")
        parts = comm.all_gather(torch.arange(comm.rank + 1) * 2, 0, "ids")
        # Two exchanges of one kind in flight at once, each in a slot of its own.
        send = receive = [int(p != comm.rank) for p in range(comm.size)]
        flights = [comm.start_exchange(torch.full((comm.size - 1, 2), 10.0 * comm.rank + slot), send, receive, 1, "forward", "halo", slot)
                   for slot in (0, 1)]  # fmt: skip
        for flight, _ in flights:
            flight.wait()
    return {"told": told, "parts": [p.tolist() for p in parts], "slots": [rows[:, 0].tolist() for _, rows in flights],
            "bytes": sum(size for (layer, *_), (_, size) in comm.recorder.epoch.sent.items() if layer == 0)}
