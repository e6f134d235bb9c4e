"""Lean, written out: dense matrices, float64, one process, every derivative by hand.

R_L = the training vertices, R_l = R_{l+1} and its in-neighbours. In layer l worker j sends worker i messages
G_ij Y_j, and i uses S_ij G_ij Y_j in the place of A_ij Y_j, over the rows of R_{l+1} alone. `cover(edges)`,
of the needed edges [v, u] from j to i as bool, says which u send their row, and which v get a sum of the
others:

    G_ij   unit rows for these u, then for these v  A_vu over the edges whose u sends no row
    S_ij   A_vu where u sends a row; unit columns for these v

Rows of a worker are in the order of the last set they are in, R_L first, then by vertex; columns by vertex.

    Y = H W where that is narrower than H (in the last layer of a softmax classifier C - 1 counts), else H
    forward    M = Q(G Y), in that last layer without its last column, which is taken from the others
    backward   N = Q(S^T dT), likewise; its last column is then minus the sum of the others'
    Q          of each column of a message, or of each row (`scale`): tests/oracles/combine.py; bits=32: as
               it is

`draw(epoch, layer, direction, sender, [count])` gives the u of all that a sender sends, receiver after
receiver, a message column after column, or row after row.
"""

import numpy as np

from tests.oracles.combine import rounded
from tests.oracles.dense import (
    Adam,
    History,
    Weights,
    adjacency,
    loop,
    loss_and_delta,
    num_layers,
    operator_of,
)


def needed_sets(graph, layers: int) -> list[np.ndarray]:
    """R_0 .. R_L  [V] bool."""
    edges, sets = adjacency(graph) != 0, [graph.train]
    for _ in range(layers):
        sets.insert(0, sets[0] | edges[sets[0]].any(0))
    return sets


class Layer:
    """Who sends what in one layer: G [k, V] and S [V, k] of every pair, receivers and senders in order."""

    def __init__(self, operator, edges, assignment, sets, layer: int, cover):
        workers = int(assignment.max()) + 1
        depth = sum(each.astype(int) for each in sets)
        self.local, self.pairs = np.zeros_like(operator), {}
        needed = sets[layer + 1]
        for i in range(workers):
            mine = np.flatnonzero(needed & (assignment == i))
            mine = mine[np.lexsort((mine, -depth[mine]))]
            own = assignment == i
            self.local[np.ix_(mine, own)] = operator[np.ix_(mine, own)]
            for j in range(workers):
                if i == j:
                    continue
                theirs = np.flatnonzero((assignment == j) & edges[mine].any(0))
                rows, sums = cover(edges[np.ix_(mine, theirs)])
                g, s = [], []
                for u in theirs[rows]:
                    g.append(np.eye(len(operator))[u])
                    s.append(np.where(needed & own, operator[:, u], 0.0))
                for v in mine[sums]:
                    g.append(np.where(np.isin(np.arange(len(operator)), theirs[~rows]), operator[v], 0.0))
                    s.append(np.eye(len(operator))[v])
                empty = np.zeros((0, len(operator)))
                self.pairs[i, j] = np.array(g) if g else empty, np.array(s).T if s else empty.T


def coded(message: np.ndarray, bits: int, u: np.ndarray) -> np.ndarray:
    """Q of each column of a message [k, w]; u [w, k]."""
    return rounded(message.T, bits, u).T if bits < 32 else message


def train(
    graph,
    assignment,
    weights: Weights,
    draw,
    cover,
    *,
    bits: int,
    scale: str = "column",
    narrow: bool = True,
    model: str = "gcn",
    normalisation: str = "symmetric",
    epochs: int,
    **adam,
) -> History:
    """Layer 0 is fetched once, and gradients are summed exactly."""
    operator = operator_of(adjacency(graph), model, normalisation)
    edges = adjacency(graph) != 0
    x, count = graph.features.astype(np.float64), int(graph.train.sum())
    layers, workers = num_layers(weights), int(assignment.max()) + 1
    sets = needed_sets(graph, layers)
    plan = {l: Layer(operator, edges, assignment, sets, l, cover) for l in range(1, layers)}
    softmax = graph.labels.ndim == 1

    def sent(epoch, l, direction, messages, spared):
        """What arrives of `messages` {(i, j): [k, w]}, by pair; forwards j sends, backwards i."""
        arrived = {}
        for sender in range(workers):
            order = [p for p in range(workers) if p != sender]
            pairs = [(p, sender) if direction == "forward" else (sender, p) for p in order]
            given = [messages[pair] for pair in pairs]
            if spared and direction == "forward":
                given = [m[:, :-1] - m[:, -1:] for m in given]
            elif spared:
                given = [m[:, :-1] for m in given]
            u = draw(epoch, l, direction, sender, (sum(m.size for m in given),))
            for pair, m in zip(pairs, given):
                mine, u, got = u[: m.size], u[m.size :], m
                if m.size and scale == "row":
                    got = rounded(m, bits, mine.reshape(m.shape))
                elif m.size:
                    got = coded(m, bits, mine.reshape(m.T.shape))
                last = -got.sum(1) if direction == "backward" else np.zeros(len(got))
                arrived[pair] = np.column_stack([got, last]) if spared else got
        return arrived

    def epoch_step(epoch, w):
        h, z, t = [x], [None], [None] * layers
        for l in range(layers):
            weight = w[f"layers.{l}.weight"]
            f_in, f_out = weight.shape
            spared = int(softmax and l == layers - 1)
            first = narrow and f_out - spared < f_in
            if l == 0:
                t[l] = operator @ x
                next_z = t[l] @ weight
            else:
                y = h[l] @ weight if first else h[l]
                arrived = sent(
                    epoch, l, "forward", {p: g @ y for p, (g, _) in plan[l].pairs.items()}, spared and first
                )
                t[l] = plan[l].local @ y + sum(s @ arrived[p] for p, (_, s) in plan[l].pairs.items())
                next_z = t[l] if first else t[l] @ weight
            next_z = next_z + w[f"layers.{l}.bias"]
            if model == "sage":
                next_z = next_z + h[l] @ w[f"layers.{l}.root"]
            z.append(next_z)
            h.append(np.maximum(next_z, 0) if l + 1 < layers else next_z)
        loss, delta = loss_and_delta(h[-1], graph.labels, graph.train, count)
        found = {}
        for l in reversed(range(layers)):
            weight = w[f"layers.{l}.weight"]
            f_in, f_out = weight.shape
            spared = int(softmax and l == layers - 1)
            first = narrow and f_out - spared < f_in
            found[f"layers.{l}.bias"] = delta.sum(axis=0)
            back = np.zeros_like(h[l])
            if model == "sage":
                found[f"layers.{l}.root"] = h[l].T @ delta
                back += delta @ w[f"layers.{l}.root"].T
            if l == 0:
                found["layers.0.weight"] = t[0].T @ delta
                break
            dt = delta if first else delta @ weight.T
            arrived = sent(
                epoch, l, "backward", {p: s.T @ dt for p, (_, s) in plan[l].pairs.items()}, spared and first
            )
            dy = plan[l].local.T @ dt + sum(g.T @ arrived[p] for p, (g, _) in plan[l].pairs.items())
            found[f"layers.{l}.weight"] = h[l].T @ dy if first else t[l].T @ delta
            back += dy @ weight.T if first else dy
            delta = back * (z[l] > 0)
        return loss, found

    return loop(weights, epoch_step, Adam(**adam), epochs, History())
