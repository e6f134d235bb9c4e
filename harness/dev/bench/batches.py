"""An epoch of mini-batches on one worker, beside DGL's `NeighborSampler`, `DataLoader` and `SAGEConv`.

Both train GraphSAGE on the same graph with the same batch and fan-outs: draws, features of the inputs,
forward, loss, backward and Adam's step of every batch; no dropout, no evaluation. Ours draws in a thread
beside the training; DGL's loader in the training process, or in one of its own: the faster one is the peer.
"""

import math
import statistics
import warnings
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F

from harness.base.dgl import load_dgl
from harness.base.heap import keep_freed_memory
from harness.comm.recorder import cpu_count
from harness.core.architectures import Sage
from harness.core.optimisers import Adam
from harness.data.graph import Graph
from harness.dev.bench.blocks import dgl_graph
from harness.dev.bench.epoch import Ours, whole
from harness.dev.bench.lines import BenchLine, interleaved

SYSTEM = "systems.distdgl.Distdgl"
BATCH, FANOUTS = 1000, (25, 10)
ABOUT_AS_FAST = 1.05  # largest ratio to DGL's epoch


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
