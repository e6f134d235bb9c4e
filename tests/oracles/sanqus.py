"""SANCUS^q (Peng, Liu, Chen, Shao, Shen, Chen, Cao, "From Sancus to Sancus^q", VLDB Journal 34(2), 2025):
SANCUS whose broadcasts are quantised.

Who broadcasts when, what is stale and what is clipped: tests/oracles/sancus.py. Q and `draw`: adaqp.py, one
draw of [n_j, F] for a block, the same for all who receive it. What differs, for every ACTIVE block j:

    H̃_j^(l) <- Q(H_j^(l))                                       H_j^(l) itself where layer 0 is exact
    T_i = Â_ii H_i^(l) + Σ_{j≠i} Â_ij H̃_j^(l)                   the own block as it is
    G_i = (Â_ii)ᵀ δ_i^(l+1) + Σ_{j≠i} (Â_ji)ᵀ Q(δ_j^(l+1))      Q after clipping, in every epoch

The gradients of the biases, and of GraphSAGE's R^(l), take every δ_i as it is. A variation gap is ‖H_j -
H̃_j‖ with the decoded H̃_j, so that even rows that never change may exceed a bound; the norm of "relative" is
that of the decoded H̃_j too.

gradients = "exact": the δ_j are broadcast as they are. features = "once" and "kept": the blocks of layer 0
are exact; "refetch": quantised anew in each broadcast. δ^(1) travels under "kept" and "refetch", and is
quantised like every other. bits = 32: nothing is quantised. The draws of δ_j^(l+1) are those of layer l,
"backward".
"""

import numpy as np

from tests.oracles import sancus
from tests.oracles.adaqp import quantised
from tests.oracles.dense import Weights


def train(
    graph,
    assignment: np.ndarray,
    weights: Weights,
    draw,
    *,
    bits: int,
    gradients: str = "coded",
    features: str = "refetch",
    **how,
) -> sancus.SancusHistory:
    """SANCUS^q over the blocks of `assignment` [V]; `how`: all else that SANCUS takes."""
    assert gradients in ("coded", "exact")

    def coded(epoch, layer, direction, sender, block):
        exact = gradients == "exact" if direction == "backward" else layer == 0 and features != "refetch"
        if exact or bits == 32:
            return block
        u = draw(epoch, layer, direction, sender, block.shape)
        return quantised(block, np.full(len(block), bits), u)

    return sancus.train(graph, assignment, weights, coded=coded, features=features, **how)
