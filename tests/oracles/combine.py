"""Quantised sums of gradients with owners, written out: float64, one process, every worker a turn of a loop.

Rows r of a matrix [r, c] belong to worker p from r p / P to r (p + 1) / P. Q of B bits, K = 2^(B-1) - 1, of a
row x: s = the least bfloat16 of at least max |x|, Q(x) = s / K * floor(K x / s + u). Each epoch, g_i the
gradient of worker i's training vertices:

    owner    G = sum_i (g_i if i owns the row, else Q(g_i))             u drawn, uniform in [0, 1)
    step     w by the optimiser, with G; everybody else's parameters with the exact sum
    all      w^ += Q(w - w^)                                            u = 1/2
"""

import numpy as np

from tests.oracles.dense import (
    Adam,
    History,
    Weights,
    adjacency,
    as_float64,
    backward,
    forward,
    loss_and_delta,
    num_layers,
    operator_of,
)


def scale_of(x: np.ndarray) -> np.ndarray:
    """[k, 1] the least bfloat16 (8 bits of mantissa) of at least max |x| of each row; 0 for zeros."""
    most = np.abs(x).max(axis=1, keepdims=True)
    exponent = np.floor(np.log2(np.where(most > 0, most, 1.0)))
    unit = 2.0 ** (exponent - 7)
    return np.where(most > 0, np.ceil(most / unit) * unit, 0.0)


def rounded(x: np.ndarray, bits: int, u: np.ndarray | float) -> np.ndarray:
    """Q of the rows of x [k, F]."""
    most = 2 ** (bits - 1) - 1
    step = scale_of(x) / most
    return np.floor(np.divide(x, step, out=np.zeros_like(x), where=step > 0) + u) * step


def owned(rows: int, worker: int, workers: int) -> slice:
    return slice(rows * worker // workers, rows * (worker + 1) // workers)


def local_gradients(operator, h, z, delta, weights: Weights, model: str, own: np.ndarray) -> Weights:
    """The part of each gradient that a worker computes: dZ of its own rows alone."""
    found = {}
    for l in reversed(range(num_layers(weights))):
        mine = np.where(own[:, None], delta, 0.0)
        found[f"layers.{l}.weight"] = (operator @ h[l]).T @ mine
        found[f"layers.{l}.bias"] = mine.sum(axis=0)
        back = operator.T @ delta @ weights[f"layers.{l}.weight"].T
        if model == "sage":
            found[f"layers.{l}.root"] = h[l].T @ mine
            back = back + delta @ weights[f"layers.{l}.root"].T
        if l > 0:
            delta = back * (z[l] > 0)
    return found


def train(
    graph,
    assignment,
    weights: Weights,
    draw,
    *,
    bits: int,
    model: str,
    normalisation: str,
    epochs: int,
    **adam,
) -> History:
    """`draw(epoch, worker, count)` gives the u of all matrices of a worker, in the order of `weights`."""
    operator = operator_of(adjacency(graph), model, normalisation)
    x, count = graph.features.astype(np.float64), int(graph.train.sum())
    workers = int(assignment.max()) + 1
    held = as_float64(weights)  # w^
    masters, optimiser, history = dict(held), Adam(**adam), History()
    matrices = [name for name, value in held.items() if value.ndim == 2]
    for epoch in range(epochs):
        h, z, _ = passed = forward(operator, x, held, model)
        loss, delta = loss_and_delta(h[-1], graph.labels, graph.train, count)
        found = [
            local_gradients(operator, h, z, delta, held, model, assignment == worker)
            for worker in range(workers)
        ]
        whole = backward(operator, passed, delta, held, model)
        summed = {name: sum(each[name] for each in found) for name in held}
        for name in held:
            np.testing.assert_allclose(summed[name], whole[name], rtol=1e-9, atol=1e-12)
        coded = []
        for worker, each in enumerate(found):
            u, made = draw(epoch, worker, sum(held[name].size for name in matrices)), {}
            for name in matrices:
                mine, u = u[: held[name].size].reshape(held[name].shape), u[held[name].size :]
                made[name] = rounded(each[name], bits, mine)
            coded.append(made)
        for name in matrices:
            for owner in range(workers):
                rows = owned(len(held[name]), owner, workers)
                summed[name][rows] = sum(
                    found[i][name][rows] if i == owner else coded[i][name][rows] for i in range(workers)
                )
        masters = optimiser.step(masters, summed)
        held = {
            name: held[name] + rounded(masters[name] - held[name], bits, 0.5) if name in matrices else value
            for name, value in masters.items()
        }
        history.losses.append(loss)
        history.weights_after.append(held)
    return history
