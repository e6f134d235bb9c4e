"""GraphSAINT written out: dense matrices, float64, one process.

Worker i draws its subgraphs, N_i sets of vertices, before training (its pool) from its graph G_i: the graph
induced by its own vertices, or with train_only by its own training vertices. A_i is the operator of G_i.
With C_v the number of sets in the pool that hold v, and C_vu the number that hold both v and u:

    alpha_vu = C_v / C_vu,   lambda_v = N_i / (C_v t),   t the number of training vertices of the whole graph

C_vv = C_v, so alpha_vv = 1: the diagonal of A_i stays as it is. In step n, counted from 0 over all epochs,
worker i trains on S = set number n mod N_i of its pool:

    H_0 = X[S],   Z_{l+1} = (alpha * A_i)[S, S] H_l W_l (+ H_l R_l) + b_l,   H_{l+1} = ReLU(Z_{l+1})
    loss_i = sum over the training vertices v in S of lambda_v times the loss of v

with the elementwise product in alpha * A_i, and without the ReLU after the last layer. The step follows the
gradient of the sum of all loss_i; a worker whose set holds no training vertex, or whose pool is empty, adds
nothing to it. Where this is so of all workers the gradient is 0, and the optimiser steps all the same.
"""

import numpy as np
import torch

from tests.oracles.dense import Adam, History, adjacency, as_float64, linear, num_layers, operator_of


def members_of(graph, assignment, worker: int, train_only: bool) -> np.ndarray:
    """Global ids, ascending, of the vertices of G_i."""
    own = np.asarray(assignment) == worker
    return np.flatnonzero(own & graph.train if train_only else own)


def operator_within(graph, members: np.ndarray, model: str) -> np.ndarray:
    """[V, V] A_i, of the edges that both begin and end in `members`; the degrees are made of them too.
    Nothing outside [members, members] is of use.
    """
    inside = np.zeros(graph.num_vertices, dtype=bool)
    inside[members] = True
    return operator_of(np.where(np.outer(inside, inside), adjacency(graph), 0.0), model, "symmetric")


def coefficients(pool, num_vertices: int) -> tuple[np.ndarray, np.ndarray]:
    """(C_v [V], C_vu [V, V]): how many of the pool's sets hold v, and how many hold both v and u."""
    single, both = np.zeros(num_vertices), np.zeros((num_vertices, num_vertices))
    for chosen in pool:
        s = np.unique(np.asarray(chosen, dtype=np.int64))
        single[s] += 1
        both[np.ix_(s, s)] += 1
    return single, both


def alpha_and_lambda(pool, num_vertices: int, train_count: int) -> tuple[np.ndarray, np.ndarray]:
    """(alpha [V, V], lambda [V]), 0 for pairs and vertices that no set holds: no step reads those."""
    single, both = coefficients(pool, num_vertices)
    alpha = np.divide(single[:, None], both, out=np.zeros_like(both), where=both > 0)
    scale = np.divide(len(pool), single * train_count, out=np.zeros_like(single), where=single > 0)
    return alpha, scale


def vertex_losses(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """[n] cross-entropy of each row, or the mean over its classes of binary cross-entropy with logits."""
    if labels.ndim == 1:
        return torch.nn.functional.cross_entropy(logits, labels.long(), reduction="none")
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels.double(), reduction="none")
    return each.mean(dim=1)


def subgraph_loss(graph, chosen, operator, scale, t: dict[str, torch.Tensor], model: str) -> torch.Tensor:
    """loss_i of the set `chosen`, given `operator` = alpha * A_i [V, V], `scale` = lambda [V] and the
    parameters `t`.
    """
    s, layers = np.unique(np.asarray(chosen, dtype=np.int64)), num_layers(t)
    train_rows = graph.train[s]
    if not train_rows.any():
        return torch.zeros(()).double()
    inside = torch.from_numpy(operator[np.ix_(s, s)])
    h = torch.from_numpy(graph.features[s].astype(np.float64))
    for l in range(layers):
        z = linear(inside @ h, h, t, l, model)
        h = z.relu() if l + 1 < layers else z
    rows = s[train_rows]
    losses = vertex_losses(h[train_rows], torch.from_numpy(graph.labels[rows]))
    return (torch.from_numpy(scale[rows]) * losses).sum()


def train(
    graph, assignment, weights, pools, steps: int, *, model, epochs, lr, weight_decay=0.0, train_only=False
) -> History:  # fmt: skip
    """`pools[i]` are the sets of worker i, each an array of global ids within G_i (no set where G_i has no
    vertex); `steps` the optimiser steps of an epoch. An epoch's loss is the mean over its steps of the sum of
    all loss_i, each before the step's update.
    """
    history, optimiser, w = History(), Adam(lr, weight_decay), as_float64(weights)
    operators, scales = [], []
    for i, pool in enumerate(pools):
        members = members_of(graph, assignment, i, train_only)
        assert all(np.isin(chosen, members).all() for chosen in pool), f"a set of worker {i} leaves its graph"
        alpha, scale = alpha_and_lambda(pool, graph.num_vertices, int(graph.train.sum()))
        operators.append(alpha * operator_within(graph, members, model))
        scales.append(scale)
    for epoch in range(epochs):
        losses = []
        for step in range(steps):
            n = epoch * steps + step
            t = {name: torch.from_numpy(each).requires_grad_() for name, each in w.items()}
            loss = 0.0 * sum(each.sum() for each in t.values())  # every parameter has a gradient, if only 0
            for i, pool in enumerate(pools):
                if len(pool):
                    chosen = pool[n % len(pool)]
                    loss = loss + subgraph_loss(graph, chosen, operators[i], scales[i], t, model)
            loss.backward()
            w = optimiser.step(w, {name: each.grad.numpy() for name, each in t.items()})
            losses.append(float(loss.detach()))
        history.losses.append(float(np.mean(losses)))
        history.weights_after.append(w)
    return history
