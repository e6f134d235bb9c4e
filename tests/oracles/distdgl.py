"""Neighbour-sampled training written out: plain Python draws, dense matrices, one process.

A step's draws depend on the destination alone, so that each worker's layer l is a dense matrix A_l [V, V] of
which only the rows of its destinations F_{l+1} are used:

    H_0 = X,   Z_{l+1} = A_l H_l W_l (+ H_l R_l) + b_l,   H_{l+1} = ReLU(Z_{l+1}), the last one Z

    A_l[v, u] = r_v B_vu d_v / k_v c_u for u drawn by v in layer l, and r_v c_v for u = v where self-loops are

The loss of a step is the mean over the seeds of all workers. `history` counts what crosses workers as well.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import torch

from tests.oracles import dense
from tests.oracles.dense import Adam, adjacency
from tests.oracles.graphsaint import vertex_losses

MASK = 2**64 - 1


def mix(z: int) -> int:
    """SplitMix64's finaliser."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


GOLDEN = 0x9E3779B97F4A7C15


def key_of(*parts: int) -> int:
    key = 0
    for part in parts:
        key = mix(key + part * GOLDEN + 1 & MASK)
    return key


def choose(neighbours: list[int], most: int | None, key: int, vertex: int) -> list[int]:
    """Floyd's k of d: which of a vertex's neighbours (ascending) it takes."""
    d = len(neighbours)
    if most is None or d <= most:
        return neighbours
    base, taken = mix(key + vertex * GOLDEN & MASK), set()
    for j in range(d - most, d):
        place = (mix(base + j * GOLDEN & MASK) >> 32) * (j + 1) >> 32
        taken.add(j if place in taken else place)
    return [neighbours[place] for place in sorted(taken)]


def choose_again(neighbours: list[int], most: int | None, key: int, vertex: int) -> list[int]:
    """k of d with replacement: every draw is any of the neighbours (ascending)."""
    if most is None or not neighbours:
        return neighbours
    base = mix(key + vertex * GOLDEN & MASK)
    return [neighbours[(mix(base + j * GOLDEN & MASK) >> 32) * len(neighbours) >> 32] for j in range(most)]


@dataclass
class Step:
    """One worker's: frontiers F_L first, each ascending; by hop what every destination drew, and which of
    them were asked about."""

    frontiers: list[list[int]]
    drawn: list[dict[int, list[int]]]
    asked: list[list[int]]


def expand(
    graph, seeds, fanouts, seed: int, epoch: int, step: int, redraw="hop", replace=False, apart=()
) -> Step:
    """apart: (the worker,) where each draws by itself."""
    a = adjacency(graph) != 0
    listed = [[int(u) for u in np.flatnonzero(a[v]) if u != v] for v in range(len(a))]
    frontiers, drawn, asked = [sorted(int(v) for v in seeds)], [], []
    how = choose_again if replace else choose
    for hop, most in enumerate(fanouts, 1):
        key = key_of(seed, epoch, step, hop, *apart)
        known = drawn[-1] if redraw == "vertex" and drawn else {}
        asked.append([v for v in frontiers[-1] if v not in known])
        drawn.append({**known, **{v: how(listed[v], most, key, v) for v in asked[-1]}})
        frontiers.append(sorted({*frontiers[-1], *(u for us in drawn[-1].values() for u in us)}))
    return Step(frontiers, drawn, asked)


def operator(graph, drawn: dict[int, list[int]], model: str, scale: str) -> np.ndarray:
    """A_l of one layer, from what its destinations drew."""
    b = adjacency(graph).astype(np.float64)
    np.fill_diagonal(b, 0.0)
    loops = float(model == "gcn")
    degree, sampled = b.sum(1), np.zeros_like(b)
    for v, us in drawn.items():
        everybody = max(np.count_nonzero(b[v]), 1)
        factor = everybody / max(len(us), 1) if scale == "global" else 1.0
        for u in us:  # as often as it was drawn
            sampled[v, u] += b[v, u] * factor
    sampled[list(drawn), list(drawn)] = loops
    row = out = degree + loops
    if scale == "block":
        row, out = sampled.sum(1), sampled.sum(0)
    inverse = lambda d, power: np.where(d > 0, np.maximum(d, 1e-300) ** power, 0.0)
    if model == "sage":
        return inverse(row, -1.0)[:, None] * sampled
    return inverse(row, -0.5)[:, None] * sampled * inverse(out, -0.5)[None, :]


@dataclass
class History(dense.History):
    sent: list[Counter] = field(default_factory=list)  # (layer, purpose) -> bytes of all workers
    pulled: list[int] = field(default_factory=list)  # feature rows
    remote: list[int] = field(default_factory=list)  # inputs of other workers


def train(
    graph, assignment, weights, steps, *, fanouts, model, seed, lr, weight_decay, epochs, scale="global",
    features="once", value=8, label=4, redraw="hop", replace=False, loss="global", key="vertex", alone=None,
):  # fmt: skip
    """`steps[epoch][step][worker]` are the seeds, as global ids. value, label: bytes of a feature, and of a
    vertex's labels. loss: "worker" follows the mean of the workers' means. alone: so many seeds after another
    ask for what they need without knowing of the rest of their step."""
    history, optimiser, layers = History(), Adam(lr, weight_decay), len(fanouts)
    w = {name: np.array(each, np.float64) for name, each in weights.items()}
    parts, x = int(assignment.max()) + 1, torch.from_numpy(graph.features).double()
    labels = torch.from_numpy(graph.labels)
    kept = [set() for _ in range(parts)]
    for epoch in range(epochs):
        count = sum(len(own) for step in steps[epoch] for own in step)
        total, sent, rows, remote = 0.0, Counter(), 0, 0
        for number, seeds in enumerate(steps[epoch]):
            t = {name: torch.from_numpy(each).requires_grad_() for name, each in w.items()}
            members, summed = sum(len(own) for own in seeds), torch.zeros(()).double()
            followed = torch.zeros(()).double()
            for i, own in enumerate(seeds):
                apart = (i,) if key == "worker" else ()
                made = expand(graph, own, fanouts, seed, epoch, number, redraw, replace, apart)
                theirs = {v for v in made.frontiers[-1] if assignment[v] != i}
                remote, missing = remote + len(theirs), theirs - kept[i]
                for first in range(0, len(own), alone or max(len(own), 1)):
                    asks = own[first : first + (alone or len(own))]
                    own_part = expand(graph, asks, fanouts, seed, epoch, number, redraw, replace, apart)
                    for layer in range(layers):
                        hop = layers - 1 - layer
                        far = [v for v in own_part.asked[hop] if assignment[v] != i]
                        edges = sum(len(own_part.drawn[hop][v]) for v in far)
                        sent[layer, "sample"] += 4 * len(far)
                        sent[layer, "neighbours"] += 4 * len(far)
                        sent[layer, "neighbours"] += (4 if graph.weights is None else 8) * edges
                    wanted = missing & set(own_part.frontiers[-1])
                    sent[0, "ids"] += 4 * len(wanted)
                    sent[0, "features"] += value * x.shape[1] * len(wanted)
                    rows += len(wanted)
                kept[i] |= missing if features == "once" else set()
                sent[-1, "labels"] += (4 + label) * sum(assignment[v] != i for v in own)
                if not len(own):
                    continue
                h = x
                for layer in range(layers):
                    a = operator(graph, made.drawn[layers - 1 - layer], model, scale)
                    z = dense.linear(torch.from_numpy(a) @ h, h, t, layer, model)
                    h = z.relu() if layer + 1 < layers else z
                mine = torch.from_numpy(np.array(own))
                each = vertex_losses(h[mine], labels[mine]).sum()
                summed = summed + each.detach()
                followed = followed + each / (members if loss == "global" else parts * len(own))
            followed.backward()
            w = optimiser.step(w, {name: each.grad.numpy() for name, each in t.items()})
            total += float(summed) / count
        history.losses.append(total)
        history.weights_after.append(w)
        history.sent.append(sent)
        history.pulled.append(rows)
        history.remote.append(remote)
    return history
