"""VARCO (Cervino, Turja, Mostafa, Himayat, Ribeiro, 2024, arXiv 2406.17611): a compression of the remote rows
that falls over the epochs.

Epochs t count from 0 to T - 1, T = epochs of the whole run. With c = compression, a = slope and f the width
of the rows that layer l takes:

    r_t = max(1, c - a (c - 1) t / T),     k = ceil(f / r_t)        k of f columns are kept in epoch t

in exact arithmetic: where f / r_t is a whole number, k is that number. P is the diagonal [f, f] with a 1 at
the k columns S[t, l], the same for all rows, all parts and both directions, and 0 elsewhere; g = f / k under
rescale, else 1:

    Z[l + 1] = (O H[l] + R (g H[l] P)) W[l] + b[l]
    ∂H[l] = Oᵀ E + g (Rᵀ E) P,   E = δ[l + 1] W[l]ᵀ                 the chain rule of the above

So the weight gradient is taken at what was read, O H[l] + R (g H[l] P), and all gradients are those of the
loss of this very pass, S held fixed. features = "once": layer 0 is read exact and whole; "refetch": as any
other layer, with S[t, 0]. Under "once" no columns are asked for of layer 0.

`columns(epoch, layer, f, k)` gives S [k], ascending; the oracle draws nothing. It is asked also where k = f.
"""

import math
from fractions import Fraction

import numpy as np

from tests.oracles.dense import History, Weights
from tests.oracles.split import Training


def kept(width: int, epoch: int, epochs: int, compression: float, slope: float) -> int:
    """k, the columns of `width` that are kept."""
    c = Fraction(compression)
    return math.ceil(width / max(Fraction(1), c - Fraction(slope) * (c - 1) * epoch / epochs))


def train(
    graph, assignment: np.ndarray, weights: Weights, columns, *, compression: float = 128, slope: float = 5,
    rescale: bool = False, features: str = "once", **how,
) -> History:  # fmt: skip
    """VARCO over the parts of `assignment` [V]; compression = 1 is exact."""
    assert compression >= 1 and features in ("once", "refetch")
    case = Training(graph, assignment, weights, **how)

    def epoch_step(epoch, weights):
        def compressed(l, rows):
            """g rows P of rows [V, f]."""
            width = rows.shape[1]
            k, result = kept(width, epoch, case.epochs, compression, slope), np.zeros_like(rows)
            some = columns(epoch, l, width, k)
            result[:, some] = rows[:, some] * (width / k if rescale else 1)
            return result

        def received(l, h):
            return case.remote @ (h if l == 0 and features == "once" else compressed(l, h))

        return case.step(weights, received, lambda l, e: compressed(l, case.remote.T @ e))

    return case.run(epoch_step)
