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

    def sent(epoch, l, direction, rows):
        """What arrives of `rows` {(from, to): [k, f]}."""
        arrived = {}
        for sender in range(workers):
            pairs = [(sender, to) for to in range(workers) if to != sender]
            u = draw(epoch, l, direction, sender, (sum(rows[pair].size for pair in pairs),))
            for pair in pairs:
                m = rows[pair]
                mine, u = u[: m.size].reshape(m.T.shape), u[m.size :]
                arrived[pair] = coded(m, bits, mine) if m.size else m
        return arrived

    def epoch_step(epoch, w):
        h, z = [x], []
        seen: list[list[np.ndarray]] = []  # by layer and worker: H as the worker has it
        for l in range(layers):
            having = [np.where(worker.own[:, None], h[l], 0.0) for worker in plan[l]]
            if l == 0:
                having = [x] * workers
            else:
                wanted = {
                    (j, i): h[l][who] for i in range(workers) for j, who in plan[l][i].from_worker.items()
                }
                for (j, i), rows in sent(epoch, l, "forward", wanted).items():
                    having[i][plan[l][i].from_worker[j]] = rows
            layer, last = gat.of_layer(w, l), l + 1 == layers
            parts = [gat.forward(of.edges, mine, layer, last, of.rows) for of, mine in zip(plan[l], having)]
            whole = np.zeros((len(x), parts[0].shape[1]))
            for worker, part in zip(plan[l], parts):
                whole[worker.rows] = part
            seen.append(having)
            z.append(whole)
            h.append(gat.elu(whole))
        loss, delta = dense.loss_and_delta(z[-1], graph.labels, graph.train, count)
        found: Weights = {}
        for l in reversed(range(layers)):
            layer, last = gat.of_layer(w, l), l + 1 == layers
            made = [
                gat.backward(worker.edges, mine, layer, delta[worker.rows], last, worker.rows)
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
            delta = g_h * gat.elu_slope(z[l - 1])
        return loss, found

    return dense.loop(weights, epoch_step, Adam(**adam), epochs, History())
