"""Lean with attention, written out: dense matrices, float64, one process, every derivative by hand.

R_l, rounding Q and `draw` are those of `tests/oracles/lean.py`. Attention needs its neighbours' rows, so in
layer l >= 1 worker i gets Q(H_u) of every remote u with an edge into its rows of R_{l+1}, ascending by u, and
computes from its own rows and these

    Y_i = H_i W;   Z_i = attention over (Y_i) on its rows of R_{l+1};   see tests/oracles/gat.py

Backwards it sends Q(dloss/dH_u) of these rows to their owners, who add them to their own. Gradients of the
parameters are the sums of the workers'.
"""

import numpy as np

from tests.oracles import dense, gat
from tests.oracles.dense import Adam, History, Weights
from tests.oracles.lean import coded, needed_sets


class Worker:
    """In one layer: its rows, the edges into them with self-loops, and whose rows it gets."""

    def __init__(self, edges: np.ndarray, assignment: np.ndarray, needed: np.ndarray, i: int):
        self.rows = np.flatnonzero(needed & (assignment == i))
        self.edges = edges[self.rows] | np.eye(len(edges), dtype=bool)[self.rows]
        self.own = assignment == i
        reached = edges[self.rows].any(0)
        self.from_worker = {
            j: np.flatnonzero(reached & (assignment == j)) for j in range(assignment.max() + 1) if j != i
        }

    def attention(self, y: np.ndarray, source: np.ndarray, target: np.ndarray):
        """(alpha, the scores before LeakyReLU), [rows, V], of one head."""
        raw = (y[self.rows] @ target)[:, None] + (y @ source)[None, :]
        e = np.where(self.edges, np.where(raw > 0, raw, gat.SLOPE * raw), -np.inf)
        alpha = np.exp(e - e.max(1, keepdims=True, initial=-1e300))
        return alpha / alpha.sum(1, keepdims=True), raw

    def forward(self, h: np.ndarray, layer: list[np.ndarray], last: bool) -> np.ndarray:
        """Z of its rows; `h` [V, f] has its own rows and those that arrived."""
        w, source, target, bias = layer
        y = gat.heads_of(h @ w, len(source))
        each = [self.attention(y[k], source[k], target[k])[0] @ y[k] for k in range(len(source))]
        return (np.mean(each, 0) if last else np.concatenate(each, 1)) + bias

    def backward(self, h: np.ndarray, layer: list[np.ndarray], delta: np.ndarray, last: bool):
        """Gradients of the parameters, and of every row of `h`; `delta` [rows, .] = dloss/dZ."""
        w, source, target, _ = layer
        heads = len(source)
        y = gat.heads_of(h @ w, heads)
        g = np.repeat(delta[None] / heads, heads, 0) if last else gat.heads_of(delta, heads)
        g_y, g_source, g_target = np.zeros_like(y), np.zeros_like(source), np.zeros_like(target)
        for k in range(heads):
            alpha, raw = self.attention(y[k], source[k], target[k])
            g_alpha = g[k] @ y[k].T
            g_e = alpha * (g_alpha - (alpha * g_alpha).sum(1, keepdims=True))
            g_raw = g_e * np.where(raw > 0, 1.0, gat.SLOPE)
            g_y[k] = alpha.T @ g[k] + np.outer(g_raw.sum(0), source[k])
            g_y[k][self.rows] += np.outer(g_raw.sum(1), target[k])
            g_source[k], g_target[k] = g_raw.sum(0) @ y[k], g_raw.sum(1) @ y[k][self.rows]
        flat = np.concatenate(list(g_y), 1)
        found = {"weight": h.T @ flat, "att_source": g_source, "att_target": g_target, "bias": delta.sum(0)}
        return found, flat @ w.T


def train(
    graph,
    assignment,
    weights: Weights,
    draw,
    *,
    bits: int,
    sets: list[np.ndarray] | None = None,
    coded=coded,
    epochs: int,
    **adam,
) -> History:
    """Layer 0 is fetched once, and gradients are summed exactly. `sets`: R_0 .. R_L, by default lean's;
    coded(message, bits, u): Q."""
    edges = dense.adjacency(graph) != 0
    x, count = graph.features.astype(np.float64), int(graph.train.sum())
    layers, workers = dense.num_layers(weights), int(assignment.max()) + 1
    sets = needed_sets(graph, layers) if sets is None else sets
    plan = [[Worker(edges, assignment, sets[l + 1], i) for i in range(workers)] for l in range(layers)]
    w, optimiser, history = dense.as_float64(weights), Adam(**adam), History()

    def sent(epoch, l, direction, rows):
        """What arrives of `rows` {(from, to): [k, f]}."""
        arrived = {}
        for sender in range(workers):
            pairs = [(sender, to) for to in range(workers) if to != sender]
            u = draw(epoch, l, direction, sender, sum(rows[pair].size for pair in pairs))
            for pair in pairs:
                m = rows[pair]
                mine, u = u[: m.size].reshape(m.T.shape), u[m.size :]
                arrived[pair] = coded(m, bits, mine) if m.size else m
        return arrived

    for epoch in range(epochs):
        h, z = [x], [None]
        seen: list[list[np.ndarray]] = []  # by layer and worker: H as the worker has it
        for l in range(layers):
            last = l + 1 == layers
            having = [np.where(worker.own[:, None], h[l], 0.0) for worker in plan[l]]
            if l == 0:
                having = [x] * workers
            else:
                wanted = {
                    (j, i): h[l][who] for i in range(workers) for j, who in plan[l][i].from_worker.items()
                }
                for (j, i), rows in sent(epoch, l, "forward", wanted).items():
                    having[i][plan[l][i].from_worker[j]] = rows
            parts = [worker.forward(mine, gat.of_layer(w, l), last) for worker, mine in zip(plan[l], having)]
            whole = np.zeros((len(x), parts[0].shape[1]))
            for worker, part in zip(plan[l], parts):
                whole[worker.rows] = part
            seen.append(having)
            z.append(whole)
            h.append(whole if last else np.where(whole > 0, whole, np.expm1(np.minimum(whole, 0))))
        loss, delta = dense.loss_and_delta(h[-1], graph.labels, graph.train, count)
        found: Weights = {}
        for l in reversed(range(layers)):
            made = [
                worker.backward(mine, gat.of_layer(w, l), delta[worker.rows], l + 1 == layers)
                for worker, mine in zip(plan[l], seen[l])
            ]
            for name in made[0][0]:
                found[f"layers.{l}.{name}"] = sum(each[0][name] for each in made)
            if l == 0:
                break
            g_h = np.zeros_like(h[l])
            for worker, (_, rows) in zip(plan[l], made):
                g_h[worker.own] += rows[worker.own]
            back = {
                (i, j): made[i][1][who] for i in range(workers) for j, who in plan[l][i].from_worker.items()
            }
            for (i, j), rows in sent(epoch, l, "backward", back).items():
                g_h[plan[l][i].from_worker[j]] += rows
            delta = g_h * np.where(z[l] > 0, 1.0, np.exp(np.minimum(z[l], 0)))
        w = optimiser.step(w, found)
        history.losses.append(loss)
        history.weights_after.append(w)
    return history
