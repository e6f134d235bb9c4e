"""SkipG, the baseline of SANCUS's section 5.3: SANCUS with gradients skipped in the place of embeddings, all
P processes in one.

The paper says only "based on bounded gradient staleness". Here that is Algorithm 3 with its two directions
exchanged. Layer l = 0..L-1 maps H[l] to H[l + 1], and i, j are blocks:

    Z_i[l + 1] = Σ_j Â_ij H_j[l] W[l] + b[l] (+ H_i[l] R[l] for GraphSAGE)     (2), exact: every H_j fresh
    G_i[l] = Â_iiᵀ δ_i[l + 1] + Σ_{j≠i} Â_jiᵀ δ̃_j[l + 1]           own δ fresh, the others' as last broadcast
    ∂W[l] = Σ_i H_i[l]ᵀ G_i[l]                                                                           (5)
    ∂b[l] = Σ_i column sums of δ_i[l + 1],   ∂R[l] = Σ_i H_i[l]ᵀ δ_i[l + 1]
    δ_i[l] = (G_i[l] W[l]ᵀ (+ δ_i[l + 1] R[l]ᵀ)) ⊙ ReLU'(Z_i[l])                                         (4)

δ̃_j is renewed, for all layers at once, when e - Ver > bound (Algorithm 4), and in epoch 0: epochs 0, bound +
1, 2 (bound + 1), ... So bound = 0 is exact.

features = "once": layer 0 broadcasts nothing after epoch 0: ∂W[0] = Σ_i (ÂX)_iᵀ δ_i[1], exact given δ[1], for
which δ[1] need not travel.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights, forward, loss_and_delta
from tests.oracles.split import Training


@dataclass
class SkipgHistory(History):
    """renewed[e]  whether the deltas of epoch e were broadcast"""

    renewed: list[bool] = field(default_factory=list)


def train(
    graph, assignment: np.ndarray, weights: Weights, *, bound: int = 1, features: str = "refetch", **how
) -> SkipgHistory:
    """SkipG over the blocks of `assignment` [V]."""
    assert bound >= 0 and features in ("refetch", "once")
    case, history, version = Training(graph, assignment, weights, **how), SkipgHistory(), [None]
    operator, blocks, layers, x = case.operator, case.blocks, case.layers, case.x
    cache = [None] * layers  # [l]: δ̃[l + 1] of all blocks

    def epoch_step(epoch, weights):
        renewed = epoch == 0 or epoch - version[0] > bound
        if renewed:
            version[0] = epoch
        h, z, _ = forward(operator, x, weights, case.model)
        loss, delta = loss_and_delta(h[layers], graph.labels, graph.train, case.count)

        gradients = {}
        for l in reversed(range(layers)):
            gradients[f"layers.{l}.bias"] = delta.sum(axis=0)
            if case.model == "sage":
                gradients[f"layers.{l}.root"] = h[l].T @ delta
            if l == 0 and features == "once":
                gradients["layers.0.weight"] = (operator @ x).T @ delta
                break
            if renewed:
                cache[l] = delta.copy()
            g = np.zeros((len(x), delta.shape[1]))
            for i in case.parts:
                for j in case.parts:
                    read = delta if i == j else cache[l]
                    g[blocks[i]] += operator[np.ix_(blocks[j], blocks[i])].T @ read[blocks[j]]
            gradients[f"layers.{l}.weight"] = h[l].T @ g
            gradient_h = g @ weights[f"layers.{l}.weight"].T
            if case.model == "sage":
                gradient_h = gradient_h + delta @ weights[f"layers.{l}.root"].T
            if l > 0:
                delta = gradient_h * (z[l] > 0)

        history.renewed.append(renewed)
        return loss, gradients

    return case.run(epoch_step, history)
