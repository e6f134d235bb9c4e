"""The oracle of CoFree-GNN against full-graph training, training apart and torch's derivatives."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.oracles import cofree, dense
from tests.oracles.graphsaint import vertex_losses
from tests.oracles.samples import (
    DEEP,
    OPERATORS,
    assert_gradients_alike,
    assert_same_run,
    differs,
    random_graph,
    random_weights,
)


def random_cut(seed, graph, parts):
    """Edges with random owners, and random masters among the copies."""
    a, rng = dense.adjacency(graph), np.random.default_rng(seed)
    low, high = np.nonzero(np.triu((a != 0) | (a != 0).T))
    edges = SimpleNamespace(parts=parts, low=low, high=high, owner=rng.integers(0, parts, len(low)))
    master = rng.integers(0, parts, len(a))
    for v in range(len(a)):
        here = edges.owner[(low == v) | (high == v)]
        master[v] = rng.choice(here) if len(here) else master[v]
    return edges, master


def case(seed, parts, operator):
    """Graph, edges, masters and weights; and what every oracle takes by name."""
    graph = random_graph(seed, directed=seed % 2 == 0, multilabel=seed % 3 == 0)
    how = dict(model=operator[0], normalisation=operator[1], epochs=5, lr=0.02, weight_decay=0.01)
    return (graph, *random_cut(seed, graph, parts), random_weights(seed, operator[0], widths=DEEP)), how


@pytest.mark.parametrize("degrees", ["global", "local"])
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_gradients_are_torchs_of_the_loss_of_all_copies(degrees, model):
    """Written edge by edge, with lists of neighbours."""
    (graph, edges, master, weights), how = case(4, 3, (model, "symmetric"))
    run = cofree.train(graph, edges, master, weights, degrees=degrees, **how | {"epochs": 1})
    a, owner = dense.adjacency(graph), cofree.owners(graph.num_vertices, edges)
    vertices = range(len(a))
    sources = {(i, v): np.flatnonzero((a[v] > 0) & (owner[v] == i)) for i in range(3) for v in vertices}
    degree = [sum(len(sources[i, v]) for i in range(3)) for v in vertices]
    t = {name: torch.from_numpy(w).requires_grad_() for name, w in weights.items()}
    loss = torch.zeros(()).double()
    for i in range(3):
        d = degree if degrees == "global" else [len(sources[i, v]) for v in vertices]
        h = torch.from_numpy(graph.features.astype(np.float64))
        for l in range(3):
            rows = []
            for v in vertices:
                near = torch.zeros_like(h[v])
                for u in sources[i, v]:
                    near = near + h[u] / (d[v] if model == "sage" else np.sqrt((1 + d[v]) * (1 + d[u])))
                rows.append(near if model == "sage" else near + h[v] / (1 + d[v]))
            z = torch.stack(rows) @ t[f"layers.{l}.weight"] + t[f"layers.{l}.bias"]
            if model == "sage":
                z = z + h @ t[f"layers.{l}.root"]
            h = z.relu() if l < 2 else z
        each = vertex_losses(h, torch.from_numpy(np.maximum(graph.labels, 0)))
        for v in np.flatnonzero(graph.train):
            share = len(sources[i, v]) / degree[v] if degree[v] else float(master[v] == i)
            loss = loss + share * each[v] / graph.train.sum()
    loss.backward()
    assert_gradients_alike(run, [loss.item()], [{name: w.grad for name, w in t.items()}])


def test_a_mask_drops_edges_and_leaves_loops_and_degrees():
    data, how = case(6, 3, OPERATORS[0])
    n = data[0].num_vertices
    run = cofree.train(*data, lambda *_: np.ones((n, n), bool), **how)
    assert_same_run(run, cofree.train(*data, **how))
    run = cofree.train(*data, lambda *_: np.zeros((n, n), bool), **how)
    loops = np.diag(np.diag(dense.operator_of(dense.adjacency(data[0]), *OPERATORS[0])))
    x, train = data[0].features.astype(np.float64), data[0].train
    want = dense.loss_and_gradients(loops, x, data[0].labels, train, train.sum(), data[3], "gcn")
    assert run.losses[0] == pytest.approx(want[0])

    def in_one(epoch, worker):
        """All edges but those of one worker in one epoch."""
        return lambda *at: np.full((n, n), at != (epoch, worker))

    first, later = (cofree.train(*data, in_one(epoch, 1), **how) for epoch in (0, 2))
    assert differs(first, later) and not np.isclose(first.losses[0], later.losses[0])


def test_bytes_are_the_features_of_copies():
    edges = SimpleNamespace(parts=2, low=[0, 1, 0], high=[1, 2, 3], owner=[0, 1, 0])
    master = np.array([0, 1, 1, 0])  # vertex 1 has a copy at worker 0
    sizes = [
        cofree.epoch_bytes(edges, master, 5, features=features, first=first)
        for features in ("once", "refetch")
        for first in (True, False)
    ]
    assert sizes == [20, 0, 20, 20]
