"""Grappa (Xu, Siebenbrunner, Bindschaedler, 2026, arXiv 2602.01872): weight gradients alone travel; each
worker has a second part, another one every `period` epochs.

In epoch t worker i of P holds the rows of part i and of second(i, t), and the features of their
in-neighbours:

    second(i, t) = (i + 1 + floor(t / period) mod (P - 1)) mod P            none where P = 1
    K = part i and second(i, t),   D_K the diagonal [V, V] with 1 at K
    Z_i[1]     = Â X W[0] + b[0]                                            in the rows of K
    Z_i[l + 1] = D_K Â D_K H_i[l] W[l] + b[l],  H_i[l] = ReLU(Z_i[l])       l >= 1: other sources are left out
    loss_i = Σ_v loss(Z_i[L][v], v) / count                                over part i's training vertices v
    gradient = Σ_i c_i gradient of loss_i

Â has the whole graph's degrees; `count` is of the whole graph's training vertices. The loss that is told is
Σ_i loss_i. With d(v) the in-edges of v and k(v) those that begin in K,

    alpha_i = the mean over part i's training vertices of k(v) / d(v), 1 where d(v) = 0; 1 without any
    c_i = 1 ("none"), alpha_i ("scalar"), 1 + shrink (alpha_i - 1) ("shrunk")

N(i, t) = K and the in-neighbours of K: the features that worker i needs. Bytes of epoch t:

    features    4 f_0 |N(i, t) \\ N(i, t - 1)|, with part i itself for N(i, -1)
    structure   for a second part that is new, in epoch 0 too: 8 for each in-edge and 4 for each vertex of it
"""

import numpy as np

from tests.oracles.bytes import FLOAT
from tests.oracles.dense import History, Weights, adjacency, nothing, summed
from tests.oracles.split import Training


def second(i: int, t: int, parts: int, period: int) -> int | None:
    return (i + 1 + t // period % (parts - 1)) % parts if parts > 1 else None


def held(assignment: np.ndarray, i: int, t: int, parts: int, period: int) -> np.ndarray:
    """K [V] bool."""
    return (assignment == i) | (assignment == second(i, t, parts, period))


def alpha(edges: np.ndarray, seeds: np.ndarray, k: np.ndarray) -> float:
    """alpha_i of edges [V, V] bool, and the training vertices and K [V] bool."""
    degree = edges.sum(axis=1)
    share = np.where(degree > 0, (edges & k).sum(axis=1) / np.maximum(degree, 1), 1.0)
    return float(share[seeds].mean()) if seeds.any() else 1.0


def needed(edges: np.ndarray, assignment: np.ndarray, i: int, t: int, parts: int, period: int) -> np.ndarray:
    """N(i, t) [V] bool."""
    if t < 0:
        return assignment == i
    k = held(assignment, i, t, parts, period)
    return k | edges[k].any(axis=0)


def epoch_bytes(graph, assignment: np.ndarray, parts: int, period: int, t: int) -> dict[str, int]:
    """{"features" | "structure"}: bytes of epoch t, all workers together."""
    edges, sizes = adjacency(graph) != 0, {"features": 0, "structure": 0}
    for i in range(parts):
        now, before = (needed(edges, assignment, i, each, parts, period) for each in (t, t - 1))
        sizes["features"] += FLOAT * graph.num_features * int((now & ~before).sum())
        new = second(i, t, parts, period)
        if new is not None and (t == 0 or new != second(i, t - 1, parts, period)):
            rows = assignment == new
            sizes["structure"] += 8 * int(edges[rows].sum()) + 4 * int(rows.sum())
    return sizes


def train(
    graph, assignment: np.ndarray, weights: Weights, *, period: int = 50, correction: str = "scalar",
    shrink: float = 0.5, **how,
) -> History:  # fmt: skip
    """Grappa over the parts of `assignment` [V]; exact with one part or two."""
    assert period >= 1 and correction in ("none", "scalar", "shrunk")
    case = Training(graph, assignment, weights, **how)

    def worker(t, i, weights):
        k, seeds = held(assignment, i, t, len(case.parts), period), graph.train & (assignment == i)
        inside = np.where(np.outer(k, k), case.operator, 0.0)
        found = alpha(case.a != 0, seeds, k)
        c = {"none": 1.0, "scalar": found, "shrunk": 1 + shrink * (found - 1)}[correction]

        # Rows outside K are computed as well, in layer 0, and nothing reads them.
        def received(l, h):
            return (case.operator - inside) @ h if l == 0 else np.zeros_like(h)

        # The loss that is told is the seeds' own: of c the gradients are c times theirs.
        (loss, *_), (_, gradients, *_) = (
            case.step(weights, received, nothing, inside, factor * seeds) for factor in (1.0, c)
        )
        return loss, gradients

    return case.run(lambda t, weights: summed(worker(t, i, weights) for i in case.parts))
