"""One worker's epoch beside PyG's and DGL's full-batch GCN: same graph, weights, threads and optimiser.

An epoch is forward, loss, backward and Adam's step; no evaluation, no dropout. Everybody may keep what a user
of the library would keep: PyG its normalised adjacency (`cached=True`), DGL its sparse formats. Ours is timed
twice: `refetch` computes A X W from the raw features in every epoch, as the peers do; `once` keeps the static
product A X.

Tilings and costs of products are measured once per process, as `harness.run.products` measures them for a
run, and not taken from a cache, whose values may come from a quieter minute.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.base.dgl import load_dgl
from harness.base.errors import InputError, package
from harness.base.heap import keep_freed_memory
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder, cpu_count
from harness.core import order_measured
from harness.core.config import ModelConfig
from harness.core.kernels import tiling_measured
from harness.core.kernels.spmm import NumbaKernel
from harness.core.kernels.tiling import Tilings, Timed, shape_class
from harness.core.optimisers import Adam, Optimiser
from harness.core.order import FIXED, Costs, Order
from harness.core.trainer import Trainer
from harness.data.graph import Graph
from harness.data.partition.build import build_shards
from harness.data.partition.shard import Csr, Shard
from harness.dev.bench.lines import BenchLine, interleaved
from harness.run.config import make_system

CPU = torch.device("cpu")
TOLERANCE = 1e-3  # of every loss that is compared, relative
EXACT = "systems.vanilla.Vanilla"
TARGETS = {"refetch": 0.75, "once": 0.40}  # largest ratio to DGL's epoch, by `features`
PYG_TARGET = 1.0
_timed = functools.cache(tiling_measured.measure)


def tilings_of(*blocks: Csr) -> Tilings:
    """The tilings of these blocks' shape classes, and of their adjoints'."""
    shapes = [(block.num_rows, block.num_columns, block.num_entries) for block in blocks]
    shapes += [(columns, rows, entries) for rows, columns, entries in shapes]
    return _tilings({name for shape in shapes if (name := shape_class(*shape))})


def order_of(shard: Shard) -> Order:
    """The order of A X W by what products cost here; by the fixed table for a shard with fewer entries than
    LEAST_ENTRIES, where no choice pays."""
    return Order(costs=_costs() if shard.inner_edges.num_entries >= order_measured.LEAST_ENTRIES else FIXED)


def _tilings(classes: Iterable[str]) -> Tilings:
    found: dict[str, Sequence[Timed]] = {name: _timed(*map(int, name.split("x"))) for name in sorted(classes)}
    return Tilings(found)


@functools.cache
def _costs() -> Costs:
    return order_measured.measure(NumbaKernel(_tilings(order_measured.classes())))


def whole(graph: Graph) -> Shard:
    """The graph as the shard of a single worker."""
    return next(build_shards(graph, np.zeros(graph.num_vertices, np.int32), 1))


class Ours:
    """The trainer as a run uses it, on all rows or on those that the loss needs. A call is an epoch; it keeps
    the loss.

    system   its target, with `knobs` of its own; exact training by default
    epochs   how many there may be, for a system that reads their number
    """

    def __init__(
        self,
        shard: Shard,
        model: ModelConfig,
        optimiser: Optimiser,
        features: str,
        device: torch.device = CPU,
        rows: str = "all",
        system: str = EXACT,
        epochs: int = 1,
        knobs: Mapping[str, Any] | None = None,
    ):
        comm = Comm(0, 1, device, Recorder())
        made = make_system({"_target_": system, "features": features, **(knobs or {})})
        self.trainer = Trainer(
            shard,
            comm,
            made,
            model,
            optimiser,
            seed=1,
            epochs=epochs,
            rows=rows,
            kernel=NumbaKernel(tilings_of(shard.inner_edges)) if device == CPU else "auto",
            order=order_of(shard) if device == CPU else None,
        )
        self.losses: list[float] = []

    def __call__(self) -> None:
        self.losses.append(float(self.trainer.train_epoch(len(self.losses))))

    def weights(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """By layer of a GCN: W [f_in, f_out] and bias [f_out], the tensors that it trains."""
        found = dict(self.trainer.model.named_parameters())
        layers = range(len(self.trainer.model.layers))
        return [(found[f"layers.{l}.weight"].detach(), found[f"layers.{l}.bias"].detach()) for l in layers]

    def logits(self) -> torch.Tensor:
        """[V, C] under the current weights."""
        return self.trainer.evaluator.logits(self.trainer.model)


class Peer:
    """A stack of another library's convolutions.

    apply   computes a layer's output [V, f_out] from the layer and its input [V, f_in]
    """

    def __init__(
        self,
        layers: list[torch.nn.Module],
        apply: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor],
        shard: Shard,
        optimiser: Optimiser,
        device: torch.device = CPU,
    ):
        self.layers, self.apply = layers, apply
        self.x = torch.as_tensor(shard.features).to(device)
        self.train = torch.as_tensor(shard.train).nonzero().squeeze(1).to(device)
        labels = torch.as_tensor(shard.labels).to(device)
        self.multilabel = labels.ndim == 2
        self.labels = labels[self.train].float() if self.multilabel else labels[self.train].long()
        self.optimiser = optimiser.make([p for layer in layers for p in layer.parameters()], optimiser.lr)
        self.losses: list[float] = []

    def __call__(self) -> None:
        self.optimiser.zero_grad()
        score = self.forward()[self.train]
        loss = (
            F.binary_cross_entropy_with_logits(score, self.labels)
            if self.multilabel
            else F.cross_entropy(score, self.labels)
        )
        loss.backward()
        self.optimiser.step()
        self.losses.append(float(loss.detach()))

    def forward(self) -> torch.Tensor:
        h = self.x
        for layer in self.layers[:-1]:
            h = torch.relu(self.apply(layer, h))
        return self.apply(self.layers[-1], h)

    @torch.no_grad()
    def logits(self) -> torch.Tensor:
        """[V, C] under the current weights."""
        return self.forward()


@contextmanager
def unwarned() -> Iterator[None]:
    """Without torch's warnings that sparse tensors of some kinds are in beta state."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR|CSC|invariant)", UserWarning)
        yield


@unwarned()
def pyg_peer(shard: Shard, weights, optimiser: Optimiser, form: str, device: torch.device = CPU) -> Peer:
    """PyG's GCNConv over `form`: "edge_index" [2, E] (gather, scatter) or "csr", a torch.sparse matrix; begun
    with `weights` [(W [f_in, f_out], bias [f_out])]."""
    GCNConv = package("torch_geometric.nn", "peers", "the epoch of PyG").GCNConv
    block = shard.inner_edges
    if form == "csr":
        parts = (
            block.indptr.astype(np.int64),
            block.indices.astype(np.int64),
            np.ones(block.num_entries, np.float32),
        )
        rows, columns, values = map(torch.from_numpy, parts)
        shape = (block.num_rows, block.num_columns)
        edges = torch.sparse_csr_tensor(rows, columns, values, shape, check_invariants=False)
    else:
        target = np.repeat(np.arange(block.num_rows, dtype=np.int64), np.diff(block.indptr))
        edges = torch.from_numpy(np.stack([block.indices.astype(np.int64), target]))
    edges = edges.to(device)
    layers = [GCNConv(*weight.shape, cached=True).to(device) for weight, _ in weights]
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, weights):
            layer.lin.weight.copy_(weight.t())
            layer.bias.copy_(bias)
    return Peer(layers, lambda layer, h: layer(h, edges), shard, optimiser, device)


def dgl_peer(shard: Shard, weights, optimiser: Optimiser, device: torch.device = CPU) -> Peer | None:
    """DGL's GraphConv, `norm="both"`, with self-loops, its formats made beforehand; None without DGL."""
    dgl = load_dgl()
    if dgl is None:
        return None
    from dgl.nn.pytorch import GraphConv

    block = shard.inner_edges
    target = np.repeat(np.arange(block.num_rows, dtype=np.int32), np.diff(block.indptr))
    graph = dgl.graph((torch.from_numpy(block.indices), torch.from_numpy(target)), num_nodes=block.num_rows)
    graph = dgl.add_self_loop(graph).formats(["csc", "csr"])
    graph.create_formats_()
    graph = graph.to(device)  # its registry's build for CPUs refuses another
    layers = [GraphConv(*weight.shape, norm="both").to(device) for weight, _ in weights]
    with torch.no_grad():
        for layer, (weight, bias) in zip(layers, weights):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
    return Peer(layers, lambda layer, h: layer(graph, h), shard, optimiser, device)


def both_ways(
    shard: Shard, model: ModelConfig, optimiser: Optimiser, device: torch.device = CPU
) -> dict[str, Ours]:
    """Ours with either way of taking features, by the name that a line begins with."""
    return {f"one worker features={how}": Ours(shard, model, optimiser, how, device) for how in TARGETS}


def cpu_peers(
    shard: Shard, weights, optimiser: Optimiser, prefix: str = ""
) -> tuple[dict[str, Peer], list[BenchLine]]:
    """The peers that can run here, and a line for each that is not installed, whose name begins with
    `prefix`. PyG's other form, over edge_index, is left out: on a CPU it is many times slower, and in each
    layer it keeps three arrays alive with a row per edge."""
    makers: dict[str, Callable[[], Peer | None]] = {
        "PyG": partial(pyg_peer, shard, weights, optimiser, "csr"),
        "DGL": partial(dgl_peer, shard, weights, optimiser),
    }
    peers, absent = {}, []
    for name, make in makers.items():
        try:
            peer, why = make(), "dgl cannot be loaded here"
        except InputError as error:
            peer, why = None, str(error)
        if peer is None:
            absent.append(BenchLine.absent(f"{prefix}{name}", "s", why))
        else:
            peers[name] = peer
    return peers, absent


@unwarned()
def beside(
    ours: Mapping[str, Ours],
    peers: Mapping[str, Peer],
    rounds: int,
    targets: Mapping[tuple[str, str], float | None],
    note: str = "",
    device: torch.device = CPU,
    checked: int | None = None,
) -> tuple[list[BenchLine], dict[str, list[float]]]:
    """A line for each of ours and each peer, and everybody's seconds of an epoch. AssertionError where
    somebody's losses differ from ours.

    targets   by the names of ours and the peer
    checked   of how many epochs the losses are compared; None: of as many as there are rounds
    """
    everybody: dict[str, Ours | Peer] = {**ours, **peers}
    seconds = interleaved({name: partial(timed, run, device) for name, run in everybody.items()}, rounds)
    check_losses(next(iter(ours.values())), everybody, checked or rounds)
    lines = [
        BenchLine.of(f"{how} / {peer}", "s", seconds[how], seconds[peer], targets.get((how, peer)), note)
        for how in ours
        for peer in peers
    ]
    return lines, seconds


def timed(run: Callable[[], object], device: torch.device) -> None:
    """Run it to its end on the device."""
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def epoch_lines(graph: Graph, model: ModelConfig, rounds: int) -> list[BenchLine]:
    """Median seconds of an epoch with all cores. AssertionError where somebody's losses differ from ours."""
    torch.set_num_threads(cpu_count())
    keep_freed_memory()
    shard = whole(graph)
    ours = both_ways(shard, model, Adam())
    peers, absent = cpu_peers(shard, next(iter(ours.values())).weights(), Adam())
    targets = {(name, "DGL"): target for name, target in zip(ours, TARGETS.values())}
    targets |= dict.fromkeys(((name, "PyG") for name in ours), PYG_TARGET)
    lines, _ = beside(ours, peers, rounds, targets)
    return [*lines, *absent]


def check_losses(ours: Ours | Peer, others: Mapping[str, Ours | Peer], epochs: int) -> None:
    """AssertionError where the others' losses of the first `epochs` epochs differ from ours by more than
    TOLERANCE, relative."""
    while len(ours.losses) < epochs:
        ours()
    for name, other in others.items():
        np.testing.assert_allclose(other.losses[:epochs], ours.losses[:epochs], rtol=TOLERANCE, err_msg=name)
