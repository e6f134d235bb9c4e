"""Training with every block of a run that concerns it, on pooled workers: `tests.jobs.train` with more to
choose.
"""

from typing import Any

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.core.config import EvaluateConfig
from harness.core.counted import MacroF1
from harness.core.cuts import halo_plan
from harness.core.normalisation import BatchNorm
from harness.core.scores import Scorer, Scores
from harness.core.trainer import Trainer
from harness.data.graph import Graph
from harness.data.partition.assign import assign
from harness.run import config
from tests.systems import shards_of

VANILLA = {"_target_": "systems.vanilla.Vanilla"}
GCN = {"name": "gcn", "layers": 2, "hidden": 4, "dropout": 0.0}


def trainer(comm, shard, how: dict[str, Any]) -> Trainer:
    """Of the blocks in `how`, by their names in a config; what it lacks has its default."""
    blocks = {"model": GCN, "optimiser": {}, "schedule": {}, **how}
    pieces = {name: config.make(name, blocks[name]) for name in ("model", "optimiser", "schedule")}
    pieces["evaluate"] = EvaluateConfig(**how.get("evaluate", {}))
    system = config.make_system(how.get("system", VANILLA))
    return Trainer(shard, comm, system, seed=3, epochs=how.get("epochs", 6), kernel="numba", **pieces)


def train(comm, how: dict[str, Any], shard) -> dict[str, Any]:
    """Losses, rates, weights, first gradients and what was sent, epoch by epoch; in float64. With `stop_at`,
    through a state dict and a new trainer.
    """
    torch.set_default_dtype(torch.float64)
    try:
        wire = how.get("wire", "float32")
        comm = Comm(comm.rank, comm.size, comm.device, Recorder(), comm.transport, wire)
        worker = trainer(comm, shard, how)
        told = ("losses", "rates", "weights", "sent", "scores", "ends", "logits")
        found: dict[str, Any] = {name: [] for name in told}
        for epoch in range(how.get("epochs", 6)):
            if epoch == how.get("stop_at"):
                state = worker.state_dict()
                comm.barrier()
                worker.closing.close()
                worker = trainer(comm, shard, how)
                worker.load_state_dict(state)
            loss = worker.train_epoch(epoch)
            if epoch == 0:
                found["gradients"] = {
                    name: p.grad.numpy().copy() for name, p in worker.model.named_parameters()
                }
            found["sent"].append({key: tuple(value) for key, value in comm.recorder.epoch.sent.items()})
            found["losses"].append(worker.global_loss(loss))
            found["rates"].append([group["lr"] for each, _ in worker.rates for group in each.param_groups])
            found["weights"].append(
                {name: p.detach().numpy().copy() for name, p in worker.model.named_parameters()}
            )
            found["scores"].append(worker.evaluate())
            found["logits"].append(worker.evaluator.logits(worker.model).numpy().copy())
            found["ends"].append(worker.ends_early(found["scores"][-1]))
        worker.closing.close()
        comm.drain()
        return found
    finally:
        torch.set_default_dtype(torch.float32)


def score(comm, logits: np.ndarray, threshold: float, shard) -> Scores:
    """What the scorer makes of the whole graph's logits [V, C]; macro-F1 included, of several labels."""
    masks = [torch.from_numpy(mask).nonzero().squeeze(1) for mask in (shard.train, shard.val, shard.test)]
    cut, labels = EvaluateConfig(threshold=threshold).cut, torch.from_numpy(shard.labels)
    several = labels.ndim == 2
    labels, more = labels.double() if several else labels.long(), {"macro_f1": MacroF1()} if several else {}
    scorer, own = Scorer(comm, labels, masks, cut, more), torch.from_numpy(logits[shard.inner])
    first, again = scorer(own), scorer(own)
    assert str(first) == str(again)
    return first


def cross(comm, rows: int, dtype: str, shard) -> dict[str, Any]:
    """What an exchange and broadcasts over bfloat16 give, both ways, by purpose; and what was counted."""
    comm = Comm(comm.rank, comm.size, comm.device, Recorder(), comm.transport, "bfloat16")
    comm.recorder.begin_epoch(0)
    plan, found = halo_plan(shard, comm.device), {}
    generator = torch.Generator().manual_seed(comm.rank)
    h = torch.randn(shard.num_inner, 3, generator=generator).to(getattr(torch, dtype)).requires_grad_()
    with comm.recorder.train():
        for purpose, layer in (("halo", 1), ("evaluate", 1), ("norms", -1)):
            halo = comm.exchange(plan, h, layer, purpose).wait()
            (gradient,) = torch.autograd.grad((halo * halo.detach() * 0.3).sum(), h)
            found[purpose] = (halo.detach().clone(), gradient.clone())
        blocks = [torch.full((rows, 2), 0.1 + j, dtype=h.dtype) * (j == comm.rank) for j in range(comm.size)]
        comm.broadcast_blocks(blocks, range(comm.size), 0, "forward", "blocks").wait()
        total = torch.full((3,), 0.1, dtype=h.dtype)
        comm.all_reduce(total, "weights")
    sent = {key: tuple(value) for key, value in comm.recorder.epoch.sent.items()}
    return {"h": h.detach(), "blocks": blocks, "total": total, "sent": sent, **found}


def run(pool, graph: Graph, parts: int, **how: Any) -> list[dict[str, Any]]:
    """`train` on a random partition; results by worker, whose losses and weights are equal."""
    shards = shards_of(graph, assign(graph, "random", parts, 3), parts)
    found = pool.run(train, parts, how, per_worker=shards)
    for other in found[1:]:
        assert other["losses"] == found[0]["losses"]
        for mine, theirs in zip(found[0]["weights"], other["weights"]):
            assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    return found


def same_bits(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    """Whether two runs have the same losses and weights."""
    return all(
        a["losses"] == b["losses"]
        and all(np.array_equal(v[name], w[name]) for v, w in zip(a["weights"], b["weights"]) for name in v)
        for a, b in zip(one, other)
    )


def standardised(comm) -> tuple[float, float]:
    """Mean and variance over all workers of standardised rows around 10 000 with a deviation of 1."""
    rows = torch.randn(400, 1, generator=torch.Generator().manual_seed(comm.rank))
    y = BatchNorm(1)(rows + 1e4, comm, 400, 0).detach().double()
    first, second, count = comm.total([float(y.sum()), float(y.square().sum()), 400])
    return first / count, second / count - (first / count) ** 2
