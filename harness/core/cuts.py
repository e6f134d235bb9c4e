"""What the kind of partition means for a training run: the trainer asks one small object and knows neither
kind.

A *cut* is a worker's part of the partition made ready: who sends what to whom, the propagation matrix, the
static input of layer 0, whose rows dropout is drawn for, and the exact forward pass of evaluation. `EdgeCut`
is here, `VertexCut` in `harness.core.replicas`. Both have

    shard, plan, plans, adjacency   what the system is given; a plan for each layer
    x       [rows, f0] features of the rows that layer 0 takes, dense
    rows    [t] which of the shard's own rows the last layer gives: its training vertices; None: all, in order
    taken   by layer: how many own rows the layer takes; empty where every layer takes all

and the methods of `EdgeCut`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import torch

from harness.base.errors import InputError
from harness.base.heap import give_back_freed_memory
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.sparse import Given, fetch_halo
from harness.core.adjacency import Adjacency, Propagation
from harness.core.config import ModelConfig
from harness.core.features import Features, dense
from harness.core.inputs import Static, StaticInput
from harness.core.kernels.spmm import Kernel
from harness.core.mixins import ComputesOthers, FitsDevices, KeepsInput
from harness.core.needed import NeededAdjacency, NeededRows, PerLayer, needed_rows
from harness.core.propagate import ExactForward, HaloDropout, WrongRows, checked
from harness.core.replicas import VertexCut
from harness.core.system import AnySystem, System, display_name
from harness.data.partition.shard import Csr, ReplicaShard, Shard


def make_cut(
    shard: Shard | ReplicaShard,
    comm: Comm,
    system: AnySystem,
    model: ModelConfig,
    kernel: Kernel,
    x: Given,
    features_wire: str,
    needed: bool,
    widths: list[int],
) -> EdgeCut | VertexCut:
    """The cut of `shard`; x [rows, f0] its features on the device. InputError where the system trains on the
    other kind.

    features_wire   how features that are fetched once travel (`harness.comm.sparse`)
    needed   train on the rows that the loss needs (`harness.core.needed`); over an edge-cut only
    widths   [L + 1], as in `Context`
    """
    check_cut(system, shard.cut, f"the shards of worker {shard.rank} are those of")
    if isinstance(shard, ReplicaShard):
        own = system.static_input if isinstance(system, KeepsInput) else None
        return VertexCut(shard, comm, model, kernel, dense(x), features_wire, own)
    return EdgeCut(shard, comm, system, model, kernel, x, needed, widths)


class EdgeCut:
    """Vertices have an owner; the halo is what a worker needs of others.

    The shard trained on may be less than the worker's own (`FitsDevices.restrict`); evaluation always uses
    the whole.
    """

    def __init__(
        self,
        shard: Shard,
        comm: Comm,
        system: System,
        model: ModelConfig,
        kernel: Kernel,
        x: Given,
        needed: bool,
        widths: list[int],
    ):
        self.whole, self.comm, self.system, self.model, self.kernel = shard, comm, system, model, kernel
        self.features = self.own = x
        self.shard = system.restrict(shard, comm) if isinstance(system, FitsDevices) else shard
        self.plan = halo_plan(self.shard, comm.device)
        self.plans = [self.plan] * model.layers
        self.rows: torch.Tensor | None = None
        self.taken: list[int] = []
        ids, halo = (torch.as_tensor(each).to(comm.device) for each in (shard.inner, self.shard.halo))
        self.ids = [(ids, halo)] * model.layers  # by layer: of the own rows taken, and of its halo
        self.adjacency: Adjacency | PerLayer
        others = (
            system.rows_of_layers(self.shard, widths, needed, comm)
            if isinstance(system, ComputesOthers)
            else None
        )
        if others is not None:
            self.adjacency = self._of_rows(*others, needed)
        elif needed:
            self.adjacency = self._of_rows(self.shard, needed_rows(self.shard, model.layers, comm), needed)
        else:
            self.adjacency = Adjacency(self.shard, model.aggregation, kernel, comm.device, system.degrees)
        first = self.adjacency.at(0)
        first.features = self.layer_0 = Features(self.own, first.num_entries, kernel)
        for layer in range(model.layers):
            self.adjacency.at(layer).passes = system.passes

    def _of_rows(self, shard: Shard, taken: NeededRows, needed: bool) -> PerLayer:
        """Train on these rows of `shard`, and no others: set what follows from them but the matrices, which
        are returned."""
        device, own = self.comm.device, len(self.features)
        self.plans, order = taken.plans, torch.from_numpy(taken.order).to(device)
        if needed:
            self.taken, self.rows = taken.counts[:-1], order[: taken.counts[-1]]
        if shard is self.shard:
            x = self.features
            self.own = x.rows(taken.order) if isinstance(x, Csr) else x[order]
        else:  # rows of others' vertices are copies of the row of zeros behind the own ones
            table = dense(self.features)
            self.own = torch.cat([table, table.new_zeros(1, table.shape[1])])[order.clamp(max=own)]
        ids, halo = (torch.as_tensor(each).to(device) for each in (shard.inner, shard.halo))
        ids = ids[order]
        self.ids = [
            (ids[:count], halo[torch.from_numpy(places).to(device)])
            for count, places in zip(taken.counts, taken.halos)
        ]
        layers = [
            NeededAdjacency(shard, taken, layer, self.model.aggregation, self.kernel, device)
            for layer in range(self.model.layers)
        ]
        for each in layers:  # own vertices come first; batch norm counts no others
            each.num_own = min(each.num_rows, own)
        return PerLayer(layers)

    @property
    def x(self) -> torch.Tensor:
        return self.layer_0.x

    def dropout(self, p: float, key: int, layer: int) -> HaloDropout:
        """Layer `layer`'s dropout, drawn by global vertex id."""
        return HaloDropout(p, *self.ids[layer], key)

    def training_input(self) -> StaticInput:
        """What `features="once"` keeps of layer 0, as the system sees it: fetched and counted here. None over
        a vertex-cut whose system keeps nothing."""
        first = self.adjacency.at(0)
        system = self.system
        knows = system.traits().sparse_features or type(system).input_halo is System.input_halo
        x = self.own if knows else self.x  # `input_halo` may write to it (`ComputesOthers`)
        return self._static(first, x, lambda: self._input_halo(x, first.num_halo))

    def _input_halo(self, x: Given, rows: int) -> Given | None:
        """The system's `input_halo`, held to its shape [rows, f0]; None where no halo is aggregated."""
        found = self.system.input_halo(x)
        if not rows:
            return None
        shape = rows, x.shape[1]
        try:
            if not isinstance(x, Csr):
                return checked(found, shape, x, "the halo's features")
            if not isinstance(found, Csr) or (found.shape, found.dtype) != (shape, x.dtype):
                raise WrongRows(f"gave {type(found).__name__}; needed is a Csr {list(shape)} of {x.dtype}")
            return found
        except WrongRows as wrong:
            raise InputError(f"{self.system.name}, input_halo, worker {self.comm.rank}: it {wrong}") from None

    def exact_forward(self, purpose: str) -> ExactForward:
        """The strategy of evaluation and of exact extra steps: all rows fresh, over the whole graph."""
        return ExactForward(self.exact_adjacency, self.comm, self.exact_plan, purpose)

    def exact_input(self, purpose: str, trained: Static | None = None) -> Static:
        """Layer 0's exact static input: `trained`, the training's own, where that is exact; else fetched for
        `purpose`."""
        sent_exactly = not self.comm.halves
        whole = self.shard is self.whole and isinstance(self.adjacency, Adjacency)
        if trained is not None and whole and self.system.exact_input and sent_exactly:
            return trained
        plan, x, most = self.exact_plan, self.features, int(self.whole.sizes.max())
        form = self.system.features_wire if purpose == "features" else "dense"
        fetch = partial(fetch_halo, self.comm, plan, x, most, purpose, form)
        return self._static(self.exact_adjacency, x, fetch)

    @cached_property
    def exact_plan(self) -> HaloPlan:
        """The plan of the whole shard, whatever is trained on."""
        return self.plan if self.shard is self.whole else halo_plan(self.whole, self.comm.device)

    @cached_property
    def exact_adjacency(self) -> Adjacency:
        """The matrix of the whole shard, by degrees of the whole graph."""
        own = self.adjacency
        if self.shard is self.whole and self.system.degrees == "global" and isinstance(own, Adjacency):
            return own
        return Adjacency(self.whole, self.model.aggregation, self.kernel, self.comm.device)

    def _static(self, adjacency: Propagation, x: Given, fetch: Callable[[], Given | None]) -> StaticInput:
        """`fetch` gives the halo's features, and is called once."""
        with self.comm.for_once():
            x_halo = fetch()
        made = StaticInput(
            adjacency,
            x,
            x_halo if adjacency.halo is not None else None,
            self.kernel,
            rows_only=not self.model.matrix or self.model.input_dropout > 0,
        )
        del x_halo  # of which `made` holds what it needs
        give_back_freed_memory()
        return made


def halo_plan(shard: Shard, device: torch.device) -> HaloPlan:
    """Who sends which of a shard's inner rows to whom, so that every halo is complete."""
    return HaloPlan(
        torch.as_tensor(shard.send_rows).long().to(device),
        shard.send_counts.tolist(),
        shard.halo_counts.tolist(),
    )


MENDS = {"edge": "partition=metis", "vertex": "partition=ebv"}


def check_cut(system: AnySystem, cut: str, what: str) -> None:
    """InputError where `what` ("partition=metis is", ...) is a cut of another kind than `system`
    trains on.
    """
    if system.cut != cut:
        raise InputError(
            f"{what} {_article(cut)}-cut and {display_name(system)} trains on"
            f" {_article(system.cut)}-cut: give {MENDS[system.cut]}"
        )


def _article(cut: str) -> str:
    return f"an {cut}" if cut == "edge" else f"a {cut}"
