"""Mini-batches on one worker, beside DGL's `NeighborSampler`, `DataLoader` and `SAGEConv`.

Blocks are drawn in one process: ours end with the sparse operators of every layer, DGL's with its blocks, as
its sampler gives them. The sides take turns, and draw from the same graph for the same seeds.

In an epoch both train GraphSAGE on the same graph with the same batch and fan-outs: draws, features of the
inputs, forward, loss, backward and Adam's step of every batch; no dropout, no evaluation. Ours draws in a
thread beside the training; DGL's loader in the training process, or in one of its own: the faster one is the
peer.
"""

import math
import statistics
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from harness.base.dgl import load_dgl
from harness.base.heap import keep_freed_memory
from harness.comm.comm import Comm
from harness.comm.pulls import Own
from harness.comm.recorder import Recorder, cpu_count
from harness.core.adjacency import Adjacency
from harness.core.architectures import Sage
from harness.core.batches import Block
from harness.core.kernels.spmm import make_kernel
from harness.core.optimisers import Adam
from harness.data.graph import Graph
from harness.dev.bench.epoch import CPU, Ours, whole
from harness.dev.bench.lines import BenchLine, interleaved
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import Expander, Names, hop_key

SEEDS, BLOCK_FANOUTS = 1000, (15, 10, 5)  # of DGL's example on ogbn-products, from the seeds
NO_SLOWER = 1.0  # largest ratio to DGL's blocks on one thread
SYSTEM = "systems.distdgl.Distdgl"
BATCH, FANOUTS = 1000, (25, 10)
ABOUT_AS_FAST = 1.05  # largest ratio to DGL's epoch


def block_lines(graph: Graph, rounds: int) -> list[BenchLine]:
    """Nanoseconds per drawn edge; a line for each number of threads that DGL may take: ours takes one."""
    rng = np.random.default_rng(1)
    seeds = rng.permutation(np.flatnonzero(graph.train))[:SEEDS].astype(np.int32)
    ours, edges = our_sampler(graph, seeds)
    name = f"{len(seeds)} seeds, fan-outs {', '.join(map(str, BLOCK_FANOUTS))}"
    dgl = load_dgl()
    if dgl is None:
        return [BenchLine.absent(f"{name} / DGL", "ns per edge")]
    lines = []
    for threads in dict.fromkeys((1, cpu_count())):
        theirs, their_edges = dgl_sampler(dgl, graph, seeds, threads)
        seconds = interleaved({"ours": ours, "dgl": theirs}, rounds)
        took = [1e9 * each / edges for each in seconds["ours"]]
        peer = [1e9 * each / their_edges for each in seconds["dgl"]]
        said = f"{name} / DGL on {threads} thread{'s' * (threads > 1)}"
        held = NO_SLOWER if threads == 1 else None
        lines.append(BenchLine.of(said, "ns per edge", took, peer, held, f"{edges:,} edges"))
    return lines


def our_sampler(graph: Graph, seeds: np.ndarray) -> tuple[Callable[[], object], int]:
    """A call that makes the blocks of one batch, and how many edges they have."""
    shard = whole(graph)
    comm = Comm(0, 1, CPU, Recorder())
    names = Names.gathered(comm, shard, np.asarray(shard.degrees))
    expander = Expander(names, Own(comm, lists_of(shard, local=False)))
    like = Adjacency(shard, "mean", make_kernel("numba"), CPU)

    def sample() -> list[Block]:
        frontier, made = seeds, []
        for hop, most in enumerate(BLOCK_FANOUTS, 1):
            layer = len(BLOCK_FANOUTS) - hop
            chosen = expander.choose(frontier, hop_key(1, 0, 0, hop), most, layer)
            found, frontier = expander.block(frontier, chosen)
            made.append(Block(found, like, layer))
        return made

    return sample, sum(block.found.num_edges for block in sample())


def dgl_sampler(
    dgl: ModuleType | Any, graph: Graph, seeds: np.ndarray, threads: int
) -> tuple[Callable[[], object], int]:
    """A call that makes DGL's blocks of the same batch on `threads` threads, and how many edges they have."""
    there = dgl_graph(dgl, graph)
    sampler = dgl.dataloading.NeighborSampler(list(reversed(BLOCK_FANOUTS)))
    given = torch.from_numpy(seeds.astype(np.int64))

    def sample() -> Any:
        dgl.utils.set_num_threads(threads)
        return sampler.sample_blocks(there, given)[2]

    return sample, sum(block.num_edges() for block in sample())


def dgl_graph(dgl: ModuleType | Any, graph: Graph) -> Any:
    """The graph as one of DGL's, with its formats made: in-edges without self-loops, as everywhere here."""
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    kept = rows != graph.indices
    ends = (torch.from_numpy(ids[kept].astype(np.int64)) for ids in (graph.indices, rows))
    there = dgl.graph(tuple(ends), num_nodes=graph.num_vertices)
    there.create_formats_()
    return there


def batch_lines(graph: Graph, hidden: int, rounds: int) -> list[BenchLine]:
    """Median seconds of an epoch with all cores, rounds interleaved."""
    torch.set_num_threads(cpu_count())
    keep_freed_memory()
    dgl = load_dgl()
    name = f"one worker, batches of {BATCH}, fan-outs {', '.join(map(str, FANOUTS))} / DGL"
    if dgl is None:
        return [BenchLine.absent(name, "s")]
    model = Sage(layers=len(FANOUTS), hidden=hidden, dropout=0.0)
    knobs = {"batch": BATCH, "fanouts": list(FANOUTS)}
    # It draws ahead, across epochs: there are more of them than are timed.
    ours = Ours(whole(graph), model, Adam(), "once", system=SYSTEM, epochs=rounds + 10, knobs=knobs)
    peers = {
        f"DGL, {workers} loading process{'es' * (workers != 1)}": DglLoop(dgl, graph, hidden, workers)
        for workers in (0, 1)
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Dataloader CPU affinity")
        samples = interleaved({"ours": ours, **peers}, rounds)
    fastest = min(peers, key=lambda each: statistics.median(samples[each]))
    ours_of, theirs, note = samples["ours"], samples[fastest], f"{fastest}, the faster"
    lines = [
        BenchLine.of(name, "s", ours_of, theirs, ABOUT_AS_FAST, note),
        *(BenchLine.of(f"{each} alone", "s", samples[each]) for each in peers),
    ]
    check_learning({"ours": ours.losses, **{name: peer.losses for name, peer in peers.items()}})
    return lines


class DglLoop:
    """GraphSAGE trained by DGL's own loop in `workers` loading processes. A call is an epoch; `losses` keeps
    each epoch's mean over seeds."""

    def __init__(self, dgl: ModuleType, graph: Graph, hidden: int, workers: int):
        from dgl.nn.pytorch import SAGEConv

        there = dgl_graph(dgl, graph)
        there.ndata["x"] = torch.from_numpy(np.ascontiguousarray(graph.features))
        self.labels = torch.from_numpy(graph.labels).long()
        widths = [graph.features.shape[1], *[hidden] * (len(FANOUTS) - 1), graph.num_classes]
        torch.manual_seed(1)
        self.layers = [SAGEConv(a, b, "mean") for a, b in zip(widths, widths[1:])]
        for layer in self.layers:
            layer.train()
        parameters = [p for layer in self.layers for p in layer.parameters()]
        self.optimiser = Adam().make(parameters, Adam().lr)
        self.losses: list[float] = []
        self.loader = dgl.dataloading.DataLoader(
            there,
            torch.from_numpy(np.flatnonzero(graph.train)),
            dgl.dataloading.NeighborSampler(list(reversed(FANOUTS)), prefetch_node_feats=["x"]),
            batch_size=BATCH,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )

    def __call__(self) -> None:
        total, count = 0.0, 0
        for _, seeds, blocks in self.loader:
            h = blocks[0].srcdata["x"]
            for number, (layer, block) in enumerate(zip(self.layers, blocks), 1):
                h = layer(block, h)
                h = torch.relu(h) if number < len(self.layers) else h
            loss = F.cross_entropy(h, self.labels[seeds])
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            total, count = total + float(loss.detach()) * len(seeds), count + len(seeds)
        self.losses.append(total / count)


def check_learning(losses: dict[str, list[float]]) -> None:
    """AssertionError where the loss of somebody is not finite or does not fall. Draws and first weights
    differ, so that losses are alike in nothing else."""
    for name, (first, *_, last) in losses.items():
        assert math.isfinite(last) and last < first, (
            f"{name}: a loss of {first} in the first epoch, then {last}"
        )
