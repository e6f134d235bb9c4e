"""GAS and Cluster-GCN written out: dense matrices, float64, one process.

A step takes a set B_i of vertices from every worker i. With N the number of training vertices in all of them:

    H_0 = X[B],   Z_{l+1} = (A[B, B] H_l + A[B, S] Hbar_l[S]) W_l (+ H_l R_l) + b_l,   H_{l+1} = ReLU(Z_{l+1})
    loss = 1/N sum of the losses of B's training vertices

S are the vertices outside B, Hbar_0 = X, and Hbar_l [V, f_l] the histories as they were before the step; the
rows of all B_i in them become H_l after it. outside: "history"; "zero", where Hbar is 0 in every layer, X
too; "drop", where A is made of the edges inside B alone.
"""

from collections import Counter

import numpy as np
import torch

from tests.oracles.dense import Adam, adjacency, as_float64, forward, linear, num_layers, operator_of
from tests.oracles.distdgl import History
from tests.oracles.graphsaint import vertex_losses


def exact(graph, weights, model: str) -> list[torch.Tensor]:
    """What each layer takes in, in a forward pass over the whole graph."""
    operator = operator_of(adjacency(graph), model, "symmetric")
    h = forward(operator, graph.features.astype(np.float64), weights, model)[0]
    return [torch.from_numpy(each) for each in h[:-1]]


def train(
    graph, assignment, weights, steps, *, model, epochs, lr, weight_decay, outside="history", start="exact",
    refresh="never", features="once", value=8,
):  # fmt: skip
    """`steps[epoch][step][worker]` are the vertices B_i, as global ids; none where a worker takes no part.
    value: bytes of a feature or hidden value."""
    history, optimiser = History(), Adam(lr, weight_decay)
    w, layers, parts = as_float64(weights), num_layers(weights), int(assignment.max()) + 1
    a, labels = adjacency(graph), torch.from_numpy(graph.labels)
    kept = [set() for _ in range(parts)]
    stale = exact(graph, w, model)
    if start == "zeros":
        stale = [stale[0], *(torch.zeros_like(rows) for rows in stale[1:])]
    if outside != "history":
        stale = [torch.zeros_like(rows) for rows in stale]
    for epoch in range(epochs):
        total, sent, pulled = 0.0, Counter(), 0
        for batches in steps[epoch]:
            t = {name: torch.from_numpy(each).requires_grad_() for name, each in w.items()}
            count = sum(int(graph.train[list(batch)].sum()) for batch in batches)
            loss, fresh = torch.zeros(()).double(), [rows.clone() for rows in stale]
            for i, batch in enumerate(batches):
                own = sorted(int(v) for v in batch)
                if not own:
                    continue
                rest = np.setdiff1d(np.arange(graph.num_vertices), own)
                edges = a.copy()
                if outside == "drop":
                    edges[np.ix_(own, rest)] = 0.0
                    edges[np.ix_(rest, own)] = 0.0
                operator = torch.from_numpy(operator_of(edges, model, "symmetric"))
                h = torch.from_numpy(graph.features[own].astype(np.float64))
                for l in range(layers):
                    if l and outside == "history":
                        fresh[l][own] = h.detach()
                    read = operator[own][:, own] @ h + operator[own][:, rest] @ stale[l][rest]
                    z = linear(read, h, t, l, model)
                    h = z.relu() if l + 1 < layers else z
                train_rows = graph.train[own]
                loss = loss + vertex_losses(h[train_rows], labels[own][train_rows]).sum() / count
                if outside == "history":
                    there = [u for u in rest if a[own, u].any() and assignment[u] != i]
                    wanted = set(there) - kept[i]
                    kept[i] |= wanted if features == "once" else set()
                    pulled += len(wanted)
                    sent[0, "ids"] += 4 * len(wanted)
                    sent[0, "features"] += value * graph.num_features * len(wanted)
                    for l in range(1, layers):
                        sent[l, "ids"] += 4 * len(there)
                        sent[l, "history"] += value * stale[l].shape[1] * len(there)
            loss.backward()
            w = optimiser.step(w, {name: each.grad.numpy() for name, each in t.items()})
            total += float(loss.detach()) * count / int(graph.train.sum())
            stale = fresh
        if refresh == "epoch" and outside == "history":
            stale = exact(graph, w, model)
        history.losses.append(total)
        history.weights_after.append(w)
        history.sent.append(sent)
        history.pulled.append(pulled)
    return history
