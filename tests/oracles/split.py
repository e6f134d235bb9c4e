"""One forward and backward pass in which a row from another part may be something else than its owner's
present row.

The operator is split by who owns the column, Â = O + R: O[v, u] where v's part owns u, R[v, u] where another
does. Layer l (from 0) reads own rows fresh and, of the rest, whatever `rows` hands it; R may differ from
layer to layer:

    Z[l + 1] = (O H[l] + R[l] Y[l]) W[l] + b[l],     Y[l] = rows(l, H[l])
    δ[L] = ∂loss/∂Z[L],   ∂W[l] = (O H[l] + R[l] Y[l])ᵀ δ[l + 1],   ∂b[l] = column sums of δ[l + 1]
    ∂H[l] = Oᵀ E + arriving(l, E),   E = δ[l + 1] W[l]ᵀ,     δ[l] = ∂H[l] ⊙ ReLU'(Z[l])      (l >= 1)

`arriving` says which gradients of own rows come in from the parts that read them. R[l]ᵀ E is what this very
pass sends to the owners; with rows = H[l] and arriving = R[l]ᵀ E the pass is exact. GraphSAGE adds H[l]
R_root, always an own row.
"""

from __future__ import annotations

import numpy as np

from tests.oracles.dense import Weights, loss_and_delta, num_layers


def split(matrix: np.ndarray, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(O, R), both [V, V]: the entries inside the parts of `assignment`, and those across."""
    same = assignment[:, None] == assignment[None, :]
    return np.where(same, matrix, 0.0), np.where(same, 0.0, matrix)


def forward(
    own: np.ndarray, remote: list, x: np.ndarray, weights: Weights, model: str, rows
) -> tuple[list, list, list]:
    """(H, Z, T): as dense.forward, and T[l] = O H[l] + R[l] Y[l], what layer l multiplies by W[l]."""
    layers = num_layers(weights)
    h, z, t = [x], [None], []
    for l in range(layers):
        t.append(own @ h[l] + remote[l] @ rows(l, h[l]))
        z_next = t[l] @ weights[f"layers.{l}.weight"] + weights[f"layers.{l}.bias"]
        if model == "sage":
            z_next = z_next + h[l] @ weights[f"layers.{l}.root"]
        z.append(z_next)
        h.append(np.maximum(z_next, 0.0) if l + 1 < layers else z_next)
    return h, z, t


def backward(
    own: np.ndarray, passed: tuple[list, list, list], delta, weights: Weights, model: str, arriving
) -> Weights:
    h, z, t = passed
    gradients = {}
    for l in reversed(range(num_layers(weights))):
        gradients[f"layers.{l}.weight"] = t[l].T @ delta
        gradients[f"layers.{l}.bias"] = delta.sum(axis=0)
        if model == "sage":
            gradients[f"layers.{l}.root"] = h[l].T @ delta
        if l > 0:
            e = delta @ weights[f"layers.{l}.weight"].T
            gradient_h = own.T @ e + arriving(l, e)
            if model == "sage":
                gradient_h = gradient_h + delta @ weights[f"layers.{l}.root"].T
            delta = gradient_h * (z[l] > 0)
    return gradients


def loss_and_gradients(
    own: np.ndarray, remote: list, x, labels, train, count: int, weights: Weights, model: str, rows, arriving
) -> tuple[float, Weights, list]:
    """(loss, gradients, H) of one pass; labels, train and count as in dense.loss_and_delta."""
    passed = forward(own, remote, x, weights, model, rows)
    loss, delta = loss_and_delta(passed[0][-1], labels, train, count)
    return loss, backward(own, passed, delta, weights, model, arriving), passed[0]
