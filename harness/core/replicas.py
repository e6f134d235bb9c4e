"""Training over a vertex-cut: every worker aggregates its own edges for all its replicas, and the parts are
synchronised.

    Zp_i = A_i H_i W          A_i [r, r] the worker's own edges, the self-loop of a vertex at its master only
    Z = synchronise(Zp)       a replica's row: the sum of all replicas' parts; H_i = sigma(Z_i + b) is then
                              the same everywhere

Backwards the same holds of delta = dL/dZ: each replica has the part that comes from its local edges (and, at
the master, from the loss), and the sum over replicas goes on to H and W. Summing over replicas is its own
adjoint. (CDFGNN, section 3 and eqs. 1-4.)

Parameters that act on a vertex by itself (bias, GraphSAGE's root, layer norm) are applied by every replica,
each with the part of the gradient that reaches it, so that their gradients too add up over workers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch

from harness.base.autograd import applied
from harness.base.heap import give_back_freed_memory
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.rows import scatter_add_rows
from harness.comm.sparse import fetch_rows
from harness.comm.work import pack, stream
from harness.core.adjacency import Propagation, scales
from harness.core.attention import AttentionEdges
from harness.core.config import ModelConfig
from harness.core.counting import times
from harness.core.features import Features, Rows, SparseRows, rows_times, saves, sparse_rows
from harness.core.inputs import Static
from harness.core.kernels.spmm import Kernel, SparseOperator
from harness.core.propagate import ExactForward, HaloDropout
from harness.data.partition.shard import ReplicaShard


class ReplicaAdjacency(Propagation):
    """A_i: the worker's own edges over all its replicas, and the masters' self-loops.

    degrees  [r] that its scales are made of; None: the whole graph's
    apart    mirrors have self-loops too: each replica is a vertex by itself
    """

    fixed = True

    def __init__(
        self,
        shard: ReplicaShard,
        normalisation: str,
        kernel: Kernel,
        device: torch.device,
        degrees: np.ndarray | None = None,
        apart: bool = False,
    ):
        self.normalisation, self.kernel = normalisation, kernel
        self.num_looped = shard.num_replicas if apart else shard.num_masters
        row, column = scales(shard.degrees if degrees is None else degrees, normalisation)
        super().__init__(
            SparseOperator(shard.edges, row, column, symmetric=shard.symmetric, kernel=kernel, device=device),
            None,
        )
        self.num_own = shard.num_masters  # the others are mirrors
        self.loops: torch.Tensor | None = None  # [num_looped, 1] the diagonal of A
        if normalisation != "mean":
            loops = row if column is None else row * column
            self.loops = torch.as_tensor(loops[: self.num_looped, None]).to(device)

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """A_i x  [r, F], differentiable."""
        return applied(_Aggregate, x, self)

    @cached_property
    def attention(self) -> AttentionEdges:
        raise NotImplementedError("no worker has all edges into a vertex")

    @property
    def num_entries(self) -> int:
        """Edges and self-loops."""
        return super().num_entries + (self.num_looped if self.loops is not None else 0)


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, adjacency: ReplicaAdjacency) -> torch.Tensor:
        ctx.adjacency, ctx.due = adjacency, adjacency.recorder.due(ctx.needs_input_grad[0])
        return _with_loops(adjacency, adjacency.inner.forward(x), x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        adjacency = ctx.adjacency
        x_grad = _with_loops(adjacency, adjacency.inner.adjoint(g), g)
        adjacency.recorder.work(*ctx.due)
        return x_grad, None


def _with_loops(adjacency: ReplicaAdjacency, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if adjacency.loops is not None:
        count = adjacency.num_looped
        adjacency.recorder.work(stream(count, z.shape[1], z.element_size(), 2, 1))
        z[:count].addcmul_(x[:count], adjacency.loops.to(x.dtype))
    return z


def propagate_parts(
    adjacency: ReplicaAdjacency, h: torch.Tensor, weight: torch.Tensor, drop: HaloDropout
) -> torch.Tensor:
    """A_i h W  [r, f_out]: what the worker's own edges contribute to each of its replicas."""
    x = drop.inner(adjacency.inner_rows(h))
    (f_in, f_out), first = weight.shape, adjacency.layer_0(h) is not None
    if isinstance(x, SparseRows) or adjacency.transform_first(f_in, f_out, first):
        return adjacency.times(rows_times(x, weight, adjacency.recorder, adjacency.fixed))
    return times(adjacency.times(x), weight, adjacency.recorder, adjacency.fixed)


def replica_plan(shard: ReplicaShard, device: torch.device) -> HaloPlan:
    """Mirrors are to their masters what a halo is to its owners: forward, the plan scatters masters' rows to
    mirrors; backward, it gathers mirrors' rows at their masters.
    """
    return HaloPlan(
        torch.as_tensor(shard.copy_rows).long().to(device),
        shard.copy_counts.tolist(),
        shard.mirror_counts.tolist(),
    )


def sum_replicas(
    comm: Comm, plan: HaloPlan, z: torch.Tensor, layer: int, direction: str, purpose: str = ""
) -> torch.Tensor:
    """Every replica's row of `z` [r, F] replaced by the sum over its vertex's replicas: gathered by the
    master, scattered back.

    Counted under "gather" and "scatter", or under `purpose`. No autograd.
    """
    masters = len(z) - plan.num_halo
    recorder = comm.recorder
    # Gather: every mirror's part goes to its master, which adds it to its own.
    back = plan.counts("backward")
    flight, parts = comm.start_exchange(z[masters:], *back, layer, direction, purpose or "gather")
    width, size = z.shape[1], z.element_size()
    with recorder.inside("rest", "pack", layer):
        recorder.work(stream(len(z), width, size, 1, 1))
        summed = z.clone(memory_format=torch.contiguous_format)
    flight.wait()
    with recorder.inside("rest", "unpack", layer):
        # Peers' groups come in rank order and each holds a row at most once: the order of sums is fixed.
        recorder.work(pack(len(parts), width, size, added=True), pack(len(parts), width, size))
        scatter_add_rows(summed[:masters], plan.send_rows, parts)
        sums = summed.index_select(0, plan.send_rows)
    # Scatter: every master's sum goes to its mirrors and replaces their rows. The exchange has a slot of its
    # own: under one purpose both exchanges would share a buffer.
    there = plan.counts("forward")
    copies = comm.exchange_now(sums, *there, layer, direction, purpose or "scatter", slot=1)
    with recorder.inside("rest", "unpack", layer):
        recorder.work(stream(len(copies), width, size, 1, 1))
        summed[masters:] = copies
    return summed


def fetch_sums(comm: Comm, plan: HaloPlan, z: torch.Tensor, form: str) -> torch.Tensor:
    """`sum_replicas` of layer 0's parts z [r, f0], which are fetched once, as `form` says
    (`harness.comm.sparse`).
    """
    masters, summed = len(z) - plan.num_halo, z.clone(memory_format=torch.contiguous_format)
    pieces = z[masters:].split(plan.receive_counts)
    parts = fetch_rows(comm, pieces, plan.send_counts, 0, "features", form)
    scatter_add_rows(summed[:masters], plan.send_rows, parts)
    del parts  # as large as what is fetched next
    sums = (summed.index_select(0, rows) for rows in plan.send_rows.split(plan.send_counts))
    summed[masters:] = fetch_rows(comm, sums, plan.receive_counts, 0, "features", form)
    return summed


class _Synchronise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: torch.Tensor, comm: Comm, plan: HaloPlan, layer: int, purpose: str
    ) -> torch.Tensor:
        ctx.arguments = comm, plan, layer, purpose
        return sum_replicas(comm, plan, z, layer, "forward", purpose)

    @staticmethod
    def backward(ctx: Any, delta: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        comm, plan, layer, purpose = ctx.arguments
        return sum_replicas(comm, plan, delta, layer, "backward", purpose), None, None, None, None


def synchronise(comm: Comm, plan: HaloPlan, z: torch.Tensor, layer: int, purpose: str = "") -> torch.Tensor:
    """The exact answer: the sum over replicas of their parts z [r, F], and backwards that of their
    gradients.
    """
    return applied(_Synchronise, z, comm, plan, layer, purpose)


class StaticSums:
    """X and the synchronised A X of all replicas, kept for all epochs. A X is whole on every replica, so Z of
    layer 0 needs no synchronising; nor does its delta, since sum_i (A X)_i^T delta_i over workers is the
    gradient with each worker's own part of delta.

    x        [r, f0] features of the replicas
    product  [r, f0] A X; both are kept sparse where few entries are not 0
    """

    def __init__(self, x: torch.Tensor, product: torch.Tensor, kernel: Kernel):
        self.x, self.product = _compact(x, kernel), _compact(product, kernel)
        self.recorder = kernel.recorder

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """A X W  [r, f_out], differentiable in W."""
        return rows_times(self.product, weight, self.recorder)

    def own_times(self, weight: torch.Tensor) -> torch.Tensor:
        """X W  [r, f_out], differentiable in W."""
        return rows_times(self.x, weight, self.recorder)


def _compact(x: torch.Tensor, kernel: Kernel) -> Rows:
    return sparse_rows(x, kernel) if saves(int(torch.count_nonzero(x)), x) else x


class ExactSynchronised(ExactForward):
    """`ExactForward` over a vertex-cut: every part fresh."""

    adjacency: ReplicaAdjacency

    def propagate(
        self, layer: int, h: torch.Tensor, weight: torch.Tensor, dropout: HaloDropout
    ) -> torch.Tensor:
        if self.kept is not None:
            self.kept[layer] = h
        return synchronise(
            self.comm, self.plan, propagate_parts(self.adjacency, h, weight, dropout), layer, self.purpose
        )


class VertexCut:
    """Edges have an owner; a vertex has a replica wherever it has an edge. See `harness.core.cuts`.

    own_input   a system's own static input (`KeepsInput`); evaluation then makes another, which is exact
    """

    def __init__(
        self,
        shard: ReplicaShard,
        comm: Comm,
        model: ModelConfig,
        kernel: Kernel,
        x: torch.Tensor,
        features_wire: str = "dense",
        own_input: Callable[[torch.Tensor], Static | None] | None = None,
    ):
        self.features_wire, self.own_input = features_wire, own_input
        self.shard, self.comm, self.kernel, self.x = shard, comm, kernel, x
        self.plan = replica_plan(shard, comm.device)
        self.plans = [self.plan] * model.layers
        self.rows: torch.Tensor | None = None  # all are trained on
        self.taken: list[int] = []
        self.adjacency = ReplicaAdjacency(shard, model.aggregation, kernel, comm.device)
        self.adjacency.features = Features(x, self.adjacency.num_entries, kernel)
        self.ids = torch.as_tensor(shard.vertices).to(comm.device)

    def dropout(self, p: float, key: int, layer: int) -> HaloDropout:
        return HaloDropout(p, self.ids, self.ids[:0], key)

    def training_input(self) -> Static | None:
        if self.own_input is None:
            return self._static("features")
        with self.comm.for_once():
            return self.own_input(self.x)

    def exact_forward(self, purpose: str) -> ExactSynchronised:
        return ExactSynchronised(self.adjacency, self.comm, self.plan, purpose)

    def exact_input(self, purpose: str, trained: Static | None = None) -> Static:
        return trained if trained is not None and self.own_input is None else self._static(purpose)

    def _static(self, purpose: str) -> StaticSums:
        parts = self.adjacency.times(self.x)
        with self.comm.for_once():
            if purpose == "features" and self.features_wire != "dense":
                product = fetch_sums(self.comm, self.plan, parts, self.features_wire)
            else:
                product = sum_replicas(self.comm, self.plan, parts, 0, "forward", purpose)
        made = StaticSums(self.x, product, self.kernel)
        del parts, product  # of which `made` holds what it needs
        give_back_freed_memory()
        return made
