"""The epoch: what every system shares, and the only place where an epoch is timed."""

from __future__ import annotations

from typing import Any

import torch

from harness.cluster.config import Cluster, Device
from harness.comm.comm import Comm, HaloPlan
from harness.comm.recorder import Recorder, synchronise
from harness.core.adjacency import Adjacency
from harness.core.config import ModelConfig, OptimiserConfig
from harness.core.evaluate import Evaluator, ExactForward, local_loss
from harness.core.inputs import StaticInput
from harness.core.kernels import make_kernel
from harness.core.models import Model
from harness.core.propagate import HaloDropout
from harness.core.system import Context, System
from harness.partition.shard import Shard


class Trainer:
    """One worker's training run: shard, model, optimiser and system, epoch by epoch.

    kernel   name of the sparse kernel, see `harness.core.kernels.make_kernel`
    cluster  what the workers run on, one device a worker; None: alike, of which nothing is known
    """

    def __init__(self, shard: Shard, comm: Comm, system: System, model: ModelConfig, optimiser: OptimiserConfig, *,
                 seed: int, kernel: str = "auto", cluster: Cluster | None = None):
        device = comm.device
        system.cluster = cluster or Cluster(devices=[Device() for _ in range(comm.size)])
        self.shard, self.comm, self.system, self.seed, self.config = shard, comm, system, seed, model
        self.recorder: Recorder = comm.recorder
        self.kernel = make_kernel(kernel, device)
        self.x = torch.as_tensor(shard.features).to(device, torch.get_default_dtype())
        labels = torch.as_tensor(shard.labels).to(device)
        self.labels = labels.to(self.x.dtype) if labels.ndim == 2 else labels.long()
        masks = [torch.as_tensor(mask).to(device).nonzero().squeeze(1) for mask in (shard.train, shard.val, shard.test)]
        self.train_rows, self.train_count = masks[0], int(shard.split_counts[0])
        self.plan = halo_plan(shard, device)
        kept = system.restrict(shard, comm)
        kept_plan = self.plan if kept is shard else halo_plan(kept, device)
        self.adjacency = Adjacency(kept, model.aggregation, self.kernel, device, system.degrees)
        widths = [self.x.shape[1]] + [model.hidden] * (model.layers - 1) + [shard.num_classes]
        self.model = Model(model, widths, seed).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=optimiser.lr, weight_decay=optimiser.weight_decay)
        self.inner_ids = torch.as_tensor(shard.inner).to(device)
        self.halo_ids = torch.as_tensor(kept.halo).to(device)
        self.static: StaticInput | None = None
        self.whole = kept is shard
        system.setup(Context(kept, comm, kept_plan, self.adjacency, widths, self.recorder, device, seed, self.model,
                             self.optimiser, self.train_rows, self.gradient))
        self.evaluator = Evaluator(ExactForward(self._exact_adjacency(), comm, self.plan), self._exact_input, masks,
                                   self.labels, model.layers)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        return list(self.model.parameters())

    def train_epoch(self, epoch: int) -> torch.Tensor:
        """One full-batch step. Returns this worker's share of the loss before the step; shares add up over workers."""
        self.recorder.begin_epoch(epoch)
        with self.recorder.train():
            self.system.before_epoch(epoch)
            self.recorder.segment("compute", "forward", 0)
            if self.system.features == "once" and self.static is None:
                self.static = self._static(self.adjacency, self.system.input_halo(self.x))
            divisor = self.system.loss_divisor(len(self.train_rows), self.train_count)
            loss = self.gradient(self.train_rows, divisor) * (divisor / self.train_count)
            self.recorder.segment("compute", "combine")
            self.system.combine(self.parameters)
            self.recorder.segment("compute", "optimiser")
            self.optimiser.step()
            self.system.after_epoch(epoch)
            synchronise(self.comm.device)
        return loss

    def gradient(self, rows: torch.Tensor, divisor: float) -> torch.Tensor:
        """One forward and backward pass: the summed loss of `rows` [t] over `divisor`, detached; gradients are left in the
        parameters."""
        logits = self.model(self.x, self.static, self.system, self._dropouts(self.recorder.epoch.epoch), self.recorder)
        loss = local_loss(logits, self.labels, rows, divisor)
        self.optimiser.zero_grad()
        self.recorder.segment("compute", "backward", len(self.model.layers) - 1)
        loss.backward()
        return loss.detach()

    def global_loss(self, local: torch.Tensor) -> float:
        """The mean loss over the global training vertices, from every worker's share."""
        return self.comm.total([float(local)])[0]

    def evaluate(self) -> tuple[float, float, float]:
        """Exact train, validation and test accuracy (micro-F1 for multi-label graphs) under the current weights."""
        with self.recorder.clock("evaluate"):
            return self.evaluator(self.model)

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "system": self.system.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.system.load_state_dict(state["system"])
        if self.system.features == "once":
            # What was fetched once before the stop is fetched again, outside the clock: it was counted then.
            self.static = self._static(self.adjacency, self.system.input_halo(self.x))

    def _static(self, adjacency: Adjacency, x_halo: torch.Tensor | None) -> StaticInput:
        f_out = self.model.layers[0].weight.shape[1]
        return StaticInput(adjacency, self.x, x_halo if adjacency.halo is not None else None, f_out, self.kernel,
                           rows_only=self.config.name == "gat")

    def _dropouts(self, epoch: int) -> list[HaloDropout]:
        return [
            HaloDropout(self.config.dropout if l else 0.0, self.inner_ids, self.halo_ids, dropout_key(self.seed, epoch, l))
            for l in range(len(self.model.layers))
        ]

    def _exact_adjacency(self) -> Adjacency:
        if self.whole and self.system.degrees == "global":
            return self.adjacency
        return Adjacency(self.shard, self.config.aggregation, self.kernel, self.comm.device)

    def _exact_input(self) -> StaticInput:
        if self.static is not None and self.whole and self.system.exact_input:
            return self.static
        x_halo = self.comm.exchange(self.plan, self.x, 0, "evaluate").wait()
        return self._static(self.evaluator.strategy.adjacency, x_halo)


def halo_plan(shard: Shard, device: torch.device) -> HaloPlan:
    return HaloPlan(torch.as_tensor(shard.send_rows).long().to(device), shard.send_counts.tolist(), shard.halo_counts.tolist())


def dropout_key(seed: int, epoch: int, layer: int) -> int:
    """A 63-bit key, different for every (seed, epoch, layer) that can occur in practice."""
    return ((seed & 0xFFFFFF) << 39) ^ ((epoch & 0xFFFFFFFF) << 7) ^ (layer & 0x7F)
