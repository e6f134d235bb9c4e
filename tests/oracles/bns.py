"""BNS-GCN (Wan et al., MLSys 2022): in every epoch a part receives only some of the boundary rows it needs.

The m_ij boundary rows of receiver i at owner j are the vertices of j with an edge to a vertex of i, in
ascending order. In every epoch t, for every pair with m_ij > 0, a set S_ij of k_ij of them is drawn
uniformly, without replacement,

    k_ij = max(1, round(p m_ij))                                         p = rate; halves are rounded to even

and stands for all m_ij: with R the entries of Â across parts, of which i's row v and j's column u is

    (R_t)[v, u] = (m_ij / k_ij) R[v, u] where u is in S_ij, 0 elsewhere    so that E R_t = R: k/m is the
    realised rate

Degrees are counted before anything is drawn: Â is the whole graph's. One R_t serves every layer of the epoch,
forward and backward, so that the backward pass is the derivative of the forward pass (O the entries inside
parts; SAGE: M for Â):

    Z[l + 1] = (O + R_t) H[l] W[l] + b[l],    ∂H[l] = (O + R_t)ᵀ δ[l + 1] W[l]ᵀ

features = "refetch": layer 0 is sampled like the others. "once": it is fetched in full, once, and reads R
itself.

The oracle draws nothing: `draw(epoch, i, j, m, k)` gives the k positions drawn among the m rows of the pair.
"""

import numpy as np

from tests.oracles.dense import History, Weights
from tests.oracles.split import Training


def sample_size(rate: float, boundary: int) -> int:
    return max(1, round(rate * boundary))


def sampled(case: Training, rate: float, draw) -> np.ndarray:
    """R_t [V, V]; `draw(i, j, m, k)`."""
    drawn = np.zeros_like(case.remote)
    for i in case.parts:
        for j in case.parts:
            m = len(case.halo[i][j])
            if m == 0:
                continue
            k = sample_size(rate, m)
            positions = np.asarray(draw(i, j, m, k))
            assert len(set(positions.tolist())) == len(positions) == k, "k rows without replacement"
            cell = np.ix_(case.blocks[i], case.halo[i][j][positions])
            drawn[cell] = (m / k) * case.remote[cell]
    return drawn


def train(
    graph, assignment: np.ndarray, weights: Weights, draw, *, rate: float, features: str = "refetch", **how
) -> History:
    """BNS-GCN over the parts of `assignment` [V]; rate = 1 is exact."""
    assert 0 < rate <= 1 and features in ("refetch", "once")
    case = Training(graph, assignment, weights, **how)

    def epoch_step(epoch, weights):
        drawn = sampled(case, rate, lambda i, j, m, k: draw(epoch, i, j, m, k))
        operators = [case.remote if l == 0 and features == "once" else drawn for l in range(case.layers)]
        return case.step(weights, lambda l, h: operators[l] @ h, lambda l, e: operators[l].T @ e)

    return case.run(epoch_step)
