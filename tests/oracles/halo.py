"""The controls: training in which no part uses a remote row.

zero_halo   every remote row is 0 in every layer; degrees are the whole graph's, so local edges keep their
            weight
local       cut edges are dropped, and degrees are counted again inside each part

In both, nothing of one part enters another part's forward or backward pass. So each part trains on a matrix
of its own, its loss is the sum over its own training vertices divided by the GLOBAL number of training
vertices, and the parts meet only where the weight gradients (and the losses) are summed.
"""

from __future__ import annotations

import numpy as np

from tests.oracles.dense import (
    Adam,
    History,
    Weights,
    adjacency,
    loss_and_gradients,
    operator_of,
    run,
)


def blocks_of(assignment: np.ndarray) -> list[np.ndarray]:
    """The vertices of part 0, 1, ..., P-1, each ascending; P is the largest part id + 1."""
    return [np.flatnonzero(assignment == i) for i in range(int(assignment.max()) + 1)]


def remote_rows(a: np.ndarray, assignment: np.ndarray) -> list[list[np.ndarray]]:
    """[i][j]: the vertices of part j with an edge to a vertex of part i, ascending; none where i = j."""
    blocks = blocks_of(assignment)
    return [
        [own[a[np.ix_(rows, own)].any(axis=0)] if own is not rows else own[:0] for own in blocks]
        for rows in blocks
    ]


def zero_halo(
    graph, assignment: np.ndarray, weights: Weights, *, model="gcn", normalisation="symmetric", **how
) -> History:
    """`how`: epochs, lr, weight_decay, as in dense.train; so for `local`."""
    operator = operator_of(adjacency(graph), model, normalisation)
    operators = [operator[np.ix_(rows, rows)] for rows in blocks_of(assignment)]
    return _train_apart(graph, assignment, operators, weights, model, normalisation, **how)


def local(
    graph, assignment: np.ndarray, weights: Weights, *, model="gcn", normalisation="symmetric", **how
) -> History:
    a = adjacency(graph)
    operators = [operator_of(a[np.ix_(rows, rows)], model, normalisation) for rows in blocks_of(assignment)]
    return _train_apart(graph, assignment, operators, weights, model, normalisation, **how)


def _train_apart(
    graph,
    assignment: np.ndarray,
    operators: list[np.ndarray],
    weights: Weights,
    model: str,
    normalisation: str,
    *,
    epochs: int,
    lr: float,
    weight_decay: float = 0.0,
) -> History:
    x, count = graph.features.astype(np.float64), int(graph.train.sum())

    def epoch_step(_, weights):
        loss, gradients = 0.0, {name: np.zeros_like(w) for name, w in weights.items()}
        for rows, operator in zip(blocks_of(assignment), operators):
            part = loss_and_gradients(
                operator, x[rows], graph.labels[rows], graph.train[rows], count, weights, model
            )
            loss += part[0]
            for name in gradients:
                gradients[name] += part[1][name]
        return loss, gradients

    return run(graph, weights, epoch_step, Adam(lr, weight_decay), epochs, model, normalisation, History())
