"""What the kind of partition means for a training run: the trainer asks one small object and knows neither
kind.

A *cut* is a worker's part of the partition made ready: who sends what to whom, the propagation matrix, the
static input of layer 0, whose rows dropout is drawn for, and the exact forward pass of evaluation. `EdgeCut`
is here, `VertexCut` in `harness.core.replicas`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import torch

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.core.adjacency import Adjacency
from harness.core.config import ModelConfig
from harness.core.evaluate import ExactForward
from harness.core.features import Features
from harness.core.inputs import Static, StaticInput
from harness.core.kernels import Kernel
from harness.core.models import AnyAdjacency, Strategy
from harness.core.propagate import HaloDropout
from harness.core.replicas import VertexCut
from harness.core.system import AnySystem, System, check_cut
from harness.partition.shard import ReplicaShard, Shard


class Cut(Protocol):
    """shard, plan and adjacency are what the system is given; the rest is the trainer's."""

    plan: HaloPlan

    @property
    def shard(self) -> Shard | ReplicaShard: ...

    @property
    def adjacency(self) -> AnyAdjacency: ...

    def dropout(self, p: float, key: int) -> HaloDropout:
        """One layer's dropout, drawn by global vertex id."""
        ...

    def training_input(self) -> Static:
        """What `features="once"` keeps of layer 0, as the system sees it; fetched and counted when this is
        called.
        """
        ...

    def exact_forward(self, purpose: str) -> Strategy:
        """The strategy of evaluation and of exact extra steps: everything remote fresh, over the whole
        graph.
        """
        ...

    def exact_input(self, purpose: str, trained: Static | None = None) -> Static:
        """Layer 0's exact static input: `trained`, the training's own, where that is exact; else fetched for
        `purpose`.
        """
        ...


def make_cut(
    shard: Shard | ReplicaShard,
    comm: Comm,
    system: AnySystem,
    model: ModelConfig,
    kernel: Kernel,
    x: torch.Tensor,
) -> Cut:
    """The cut of `shard`; x [rows, f0] its features on the device. InputError where the system trains on the
    other kind.
    """
    check_cut(system, shard.cut, f"the shards of worker {shard.rank} are those of")
    if isinstance(shard, ReplicaShard):
        return VertexCut(shard, comm, model, kernel, x)
    return EdgeCut(shard, comm, system, model, kernel, x)


class EdgeCut:
    """Vertices have an owner; the halo is what a worker needs of others.

    The shard trained on may be less than the worker's own (`System.restrict`); evaluation always uses the
    whole.
    """

    def __init__(
        self, shard: Shard, comm: Comm, system: System, model: ModelConfig, kernel: Kernel, x: torch.Tensor
    ):
        self.whole = shard
        self.comm = comm
        self.system = system
        self.model = model
        self.kernel = kernel
        self.x = x
        self.shard = system.restrict(shard, comm)
        self.plan = halo_plan(self.shard, comm.device)
        self.adjacency = Adjacency(self.shard, model.aggregation, kernel, comm.device, system.degrees)
        self.adjacency.features = Features(x, self.adjacency.num_entries, kernel)
        self.adjacency.passes = system.passes
        self.ids = torch.as_tensor(shard.inner).to(comm.device)
        self.halo_ids = torch.as_tensor(self.shard.halo).to(comm.device)

    def dropout(self, p: float, key: int) -> HaloDropout:
        return HaloDropout(p, self.ids, self.halo_ids, key)

    def training_input(self) -> StaticInput:
        return self._static(self.adjacency, self.system.static_halo(self.x, self.adjacency.num_halo))

    def exact_forward(self, purpose: str) -> ExactForward:
        return ExactForward(self.exact_adjacency, self.comm, self.exact_plan, purpose)

    def exact_input(self, purpose: str, trained: Static | None = None) -> Static:
        sent_exactly = not self.comm.halves
        if trained is not None and self.shard is self.whole and self.system.exact_input and sent_exactly:
            return trained
        exact = self.exact_forward(purpose)
        return self._static(exact.adjacency, exact.halo(0, self.x).wait())

    @cached_property
    def exact_plan(self) -> HaloPlan:
        return self.plan if self.shard is self.whole else halo_plan(self.whole, self.comm.device)

    @cached_property
    def exact_adjacency(self) -> Adjacency:
        if self.shard is self.whole and self.system.degrees == "global":
            return self.adjacency
        return Adjacency(self.whole, self.model.aggregation, self.kernel, self.comm.device)

    def _static(self, adjacency: Adjacency, x_halo: torch.Tensor | None) -> StaticInput:
        return StaticInput(
            adjacency,
            self.x,
            x_halo if adjacency.halo is not None else None,
            self.kernel,
            rows_only=not self.model.matrix or self.model.input_dropout > 0,
        )


def halo_plan(shard: Shard, device: torch.device) -> HaloPlan:
    return HaloPlan(
        torch.as_tensor(shard.send_rows).long().to(device),
        shard.send_counts.tolist(),
        shard.halo_counts.tolist(),
    )
