"""What is measured of a twin: homophily, METIS halos, EBV replication, accuracy (also without edges)."""

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.core.architectures import Gcn
from harness.core.optimisers import Adam
from harness.core.trainer import Trainer
from harness.data.graph import Graph
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.data.twin_specs import SPECS
from harness.dev.bench.epoch import EXACT, whole
from harness.run.config import make_system

QUICK_EDGES = 6_000_000  # the default scale leaves at most this many directed edges


def quick_scale(name: str) -> float:
    """The scale at which the twin has about QUICK_EDGES directed edges; 1 where it has no more anyway."""
    return min(1.0, QUICK_EDGES / SPECS[name].edges)


def homophily(graph: Graph) -> float:
    """Share of labelled vertices' edges inside a class; multi-label: mean Jaccard index of label sets."""
    targets = np.repeat(np.arange(graph.num_vertices, dtype=np.int32), np.diff(graph.indptr))  # of each edge
    ends, labels = (targets, graph.indices), graph.labels
    if not graph.multilabel:
        own, others = (labels[each] for each in ends)
        both = (own >= 0) & (others >= 0)
        return float((both & (own == others)).sum() / max(both.sum(), 1))
    common = either = np.zeros(len(graph.indices))
    for label in labels.T:  # one label at a time, so that no table of edges and labels is made
        own, others = (label[each] for each in ends)
        common, either = common + (own & others), either + (own | others)
    return float((common / np.maximum(either, 1)).sum() / max(len(graph.indices), 1))


def halo_ratio(graph: Graph, parts: int) -> float:
    """Mean halo vertices of a METIS part over its mean inner vertices (PSC-GCN Table I: boundary / inner)."""
    return halos(graph, assign(graph, "metis", parts, 0), parts) / graph.num_vertices


def halos(graph: Graph, owner: np.ndarray, parts: int) -> int:
    """Halo vertices summed over the parts."""
    return sum(shard.num_halo for shard in build_shards(graph, owner.astype(np.int32), parts))


def replication(graph: Graph, parts: int) -> float:
    """Mean replicas of a vertex under EBV, gamma 0 (CDFGNN section 6)."""
    return statistics(assign_edges(graph, "ebv", parts, 1, gamma=0.0))["replication"]


def accuracy(graph: Graph, *, use_graph: bool, epochs: int, hidden: int = 128) -> tuple[float, float]:
    """(validation, test) accuracy, or micro-F1 for label sets, at the best validation epoch of a short
    training: a GCN of two layers, dropout 0.5, Adam 0.01, seed 0; it is evaluated in every fifth epoch and in
    the last.

    Without `use_graph` it is the same model on the graph without its edges, where a vertex has itself alone.
    """
    if not use_graph:
        graph = graph.replace(indptr=np.zeros_like(graph.indptr), indices=graph.indices[:0])
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    model, optimiser = Gcn(layers=2, hidden=hidden, dropout=0.5), Adam(weight_decay=0.0)
    system = make_system({"_target_": EXACT})
    trainer = Trainer(whole(graph), comm, system, model, optimiser, seed=0, epochs=epochs)
    best = (0.0, 0.0)
    for epoch in range(epochs):
        trainer.train_epoch(epoch)
        if epoch % 5 == 4 or epoch == epochs - 1:
            best = max(best, trainer.evaluate().accuracy[1:])
    return best
