"""PSC-GCN: sampled edges (equations 15-19, Theorem 2), stale boundary rows (Algorithm 1), inclusion-aware
caching (V).

P is the propagation matrix of the whole graph; N_i are the in-neighbours of i without i, which is always
kept. Which edges were sampled is given, never drawn here. Epochs t and layers l count from 0; H[l] is what
layer l reads.

Sampling. Edge j -> i is kept with probability p_ij, Σ_j p_ij = B_i = ε |N_i|, a real number. From the scores
s_ij = √a_j ‖y_ij‖, a_j = `a_inner` where i and j share a part and `a_boundary` elsewhere:
    policy = "variance"  ‖y_ij‖ = P_ij √(Σ_l ‖H_j[l] W[l]‖²), l = 0..L-1, all at j's owner in the last epoch
                         (16)
    policy = "code"      ‖y_ij‖ = √(Σ_l ‖H_j[l]‖) over the hidden inputs l = 1..L-1, without P_ij; so that
                         s_ij = √(1.1 Σ_l ‖H_j[l]‖) where i and j share a part
    policy = "uniform"   p_ij = ε always
Where all scores of i are 0, p_ij = ε; where only some are and B_i is more than the others can take, these get
1 and the zeros share the rest evenly (Theorem 2 divides by 0 there); where the others can take it all, the
zeros get p_ij = 0.

A kept edge weighs P_ij / p_ij (15: rescale = "inverse"), or P_ij |N_i| / |kept of N_i| ("selfnorm"; no p in
it).

p starts as ε everywhere and is computed anew at the start of the epochs R, 2R, ... (`refresh` = R) from epoch
t - 1, before that epoch samples (semi-dynamic, IV.C). Epoch t samples SG, the training graph of epoch t + τ
(lines 6-7); the graphs of epochs 0..τ-1 are sampled before the start. So what weighs edges in epoch t is the
p of epoch t - τ.

Staleness. A boundary row is H_{t-τ}[l] in epoch t, and 0 for t < τ (line 9 says t > τ; here t >= τ). features
= "once": layer 0 is fetched in full, once, and not sampled: it aggregates with P from epoch 0 on. "refetch":
it is sampled, and its boundary rows are 0 for t < τ, like those of the others, and exact after that.

Gradients of boundary rows. Part n computes E_t P_TG(t)ᵀ of every boundary row of its training graph TG(t);
the owner adds it in the backward pass of epoch t + τ. gradients = "tg": all of them; "sampled": of those rows
only that are in part n's SG, which is TG(t + τ) (lines 24-25).
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles import split
from tests.oracles.dense import History, Weights
from tests.oracles.pipegcn import Pipe


@dataclass
class PscHistory(History):
    """By epoch t: masks[t] is TG(t) and probabilities[t] the p it was sampled with, both [V, V]; inputs[t][l]
    H_t[l].
    """

    masks: list[np.ndarray] = field(default_factory=list)
    probabilities: list[np.ndarray] = field(default_factory=list)
    inputs: list[list] = field(default_factory=list)


# --- Theorem 2
# --------------------------------------------------------------------------------------------------------


def water_filled(scores: np.ndarray, budget: float) -> np.ndarray:
    """p [n] of one vertex from its s_ij [n]: equation (19), and what stands above of scores that are 0."""
    p, positive = np.zeros(len(scores)), scores > 0
    if budget >= positive.sum():
        p[positive] = 1.0
        if not positive.all():
            p[~positive] = (budget - positive.sum()) / (~positive).sum()
        return p
    order = np.flatnonzero(positive)[np.argsort(scores[positive], kind="stable")]
    s, n = scores[order], len(order)
    k = max(k for k in range(1, n + 1) if budget + k - n <= s[:k].sum() / s[k - 1])
    p[order[:k]] = (budget + k - n) * s[:k] / s[:k].sum()
    p[order[k:]] = 1.0
    return p


def probabilities(edges: np.ndarray, scores: np.ndarray, rate: float) -> np.ndarray:
    """p [V, V] of all edges [V, V] bool; 0 where there is none."""
    p = np.zeros(edges.shape)
    for i, row in enumerate(edges):
        p[i, row] = water_filled(scores[i, row], rate * row.sum())
    return p


def scores_of(matrix, assignment, h: list, weights: Weights, policy: str, a_inner: float, a_boundary: float):
    """s_ij [V, V] from the layer inputs h [L] and the weights of one epoch."""
    a = np.where(assignment[:, None] == assignment[None, :], a_inner, a_boundary)
    if policy == "code":
        return np.sqrt(a * sum((np.linalg.norm(rows, axis=1) for rows in h[1:]), np.zeros(len(matrix))))
    assert policy == "variance", policy
    squares = sum(((rows @ weights[f"layers.{l}.weight"]) ** 2).sum(axis=1) for l, rows in enumerate(h))
    return np.sqrt(a) * matrix * np.sqrt(squares)


def sampled_operator(matrix, edges: np.ndarray, mask: np.ndarray, p: np.ndarray, rescale: str) -> np.ndarray:
    """P_TG [V, V] of the sampled edges `mask`; the diagonal stays."""
    assert not (mask & ~edges).any() and rescale in ("inverse", "selfnorm")
    if rescale == "inverse":
        factor = np.divide(1.0, p, out=np.zeros_like(p), where=mask)
    else:
        kept = mask.sum(axis=1, keepdims=True)
        factor = mask * edges.sum(axis=1, keepdims=True) / np.maximum(kept, 1)
    return np.where(edges, matrix * factor, np.diag(np.diag(matrix)))


# --- the cache
# --------------------------------------------------------------------------------------------------------


def boundary(edges: np.ndarray, assignment: np.ndarray) -> np.ndarray:
    """[M, V] bool: vertex j of another part has an edge into part n; with a mask, those whose rows n then
    needs.
    """
    rows = [edges[assignment == n].any(axis=0) & (assignment != n) for n in range(int(assignment.max()) + 1)]
    return np.array(rows)


def inclusion(p: np.ndarray, assignment: np.ndarray) -> np.ndarray:
    """[M, V] probability 1 - Π_{i in part n} (1 - p_ij) that part n needs boundary vertex j; 0 for its inner
    vertices.
    """
    parts = range(int(assignment.max()) + 1)
    return np.array(
        [np.where(assignment == n, 0.0, 1 - (1 - p[assignment == n]).prod(axis=0)) for n in parts]
    )


def top_k(scores: np.ndarray, candidates: np.ndarray, k: int) -> np.ndarray:
    """[V] bool: the k candidates of highest score, ties to the lowest id; for degree order the scores are
    degrees.
    """
    ids = np.flatnonzero(candidates)
    chosen = ids[np.argsort(-scores[ids], kind="stable")][:k]
    return np.isin(np.arange(len(scores)), chosen)


# --- Algorithm 1
# ------------------------------------------------------------------------------------------------------


def train(
    graph, assignment: np.ndarray, weights: Weights, masks, *, rate: float, tau: int = 1,
    policy: str = "variance", rescale: str = "inverse", gradients: str = "tg", refresh=100,
    features: str = "once", a_inner: float = 1.1, a_boundary: float = 1.0, **how,
) -> PscHistory:  # fmt: skip
    """`masks(t, p)` [V, V] bool is TG(t): its edges, sampled of the graph's with probabilities p."""
    assert 0 < rate <= 1 and tau >= 0 and gradients in ("tg", "sampled") and features in ("once", "refetch")
    case, history = split.Training(graph, assignment, weights, **how), PscHistory()
    edges, matrix, layers, epochs = case.a > 0, case.operator, case.layers, case.epochs
    forward, backward = [Pipe(tau, 0.0) for _ in range(layers)], [Pipe(tau, 0.0) for _ in range(layers)]
    p, queue, previous = rate * edges, [], None

    def sample(t: int) -> None:
        """Push the graph of epoch t with the p that is now in force; none after the last epoch."""
        if t < epochs:
            queue.append((masks(t, p).astype(bool), p))

    for t in range(tau):
        sample(t)

    def epoch_step(t, weights):
        nonlocal p, previous
        due = t > 0 and t % refresh == 0
        if due and policy != "uniform":
            scores = scores_of(matrix, assignment, *previous, policy, a_inner, a_boundary)
            p = probabilities(edges, scores, rate)
        sample(t + tau)
        training, drawn_with = queue.pop(0)  # TG
        ahead = queue[-1][0] if tau > 0 and t + tau < epochs else training  # SG; after the end nobody uses it
        own, remote = split.split(sampled_operator(matrix, edges, training, drawn_with, rescale), assignment)
        sent_back = remote if gradients == "tg" else remote * boundary(ahead, assignment)[assignment]

        def received(l, h):
            forward[l].put(h)
            if l == 0 and features == "once":
                return (matrix - own) @ h  # all that the sampled own edges leave of P: layer 0 is not sampled
            return remote @ forward[l].take(t, h)

        def arriving(l, e):
            backward[l].put(sent_back.T @ e)
            return backward[l].take(t, e)

        loss, gradient, h = case.step(weights, received, arriving, own)
        previous = (h[:layers], weights)
        history.masks.append(training)
        history.probabilities.append(drawn_with)
        history.inputs.append(h[:layers])
        return loss, gradient

    return case.run(epoch_step, history)
