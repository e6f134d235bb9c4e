"""Sylvie (Zhang, Hu, Sun, Wen, Zhang, 2023, arXiv 2303.01277): remote rows of few bits, both ways, that are
used an epoch later but for now and then.

Rows are quantised as AdaQP quantises them (Q and `draw` of adaqp.py), every one with `bits` bits. In epoch t
each part sends its quantised rows to every part that reads them, and the quantised gradients of what it read
to the owners; with R_i the rows of R that part i owns:

    F_t[l] = Σ_i R_i Q_i(H_t[l]),     C_t[l] = Σ_i Q(R_iᵀ E_t),     E_t = δ_t[l + 1] W_t[l]ᵀ

R does not change, so that whether rows or their sums F wait for the next epoch makes no difference.

    Z_t[l + 1] = (O H_t[l] + F_s[l]) W_t[l] + b_t[l],     ∂H_t[l] = Oᵀ E_t + C_s[l]

with the same s for every layer, features and gradients alike:

    mode = "synchronous":   s = t in every epoch; `period` means nothing
    mode = "asynchronous":  s = t where period > 0 and t % period == 0, t = 0 included; else s = t - 1. Where
                            s = -1 (t = 0 without a period), F and C are 0

What is sent in t = s is therefore used twice, in t and t + 1, unless t + 1 is synchronous too, and what was
sent in the epoch before a synchronous one is never used. It is sent all the same: every epoch sends once.
C_{t-1} is added to the gradient of the row H_t[l], before ReLU' of epoch t, as PipeGCN's. The weight gradient
is taken at what was read: (O H_t[l] + F_s[l])ᵀ δ_t[l + 1].

features = "once": layer 0 is read exact, and from epoch 0 on; "refetch": as any other layer, forward only.
"""

import numpy as np

from tests.oracles import adaqp
from tests.oracles.dense import Weights


def train(
    graph, assignment: np.ndarray, weights: Weights, draw, *, bits: int = 1, mode: str = "asynchronous",
    period: int = 20, features: str = "once", **how,
) -> adaqp.AdaqpHistory:  # fmt: skip
    """Sylvie over the parts of `assignment` [V]; no knob makes it exact."""
    assert bits >= 1 and mode in ("synchronous", "asynchronous")
    before = {}  # F and C of the epoch before, by layer and direction

    def used(epoch, layer, direction, now):
        """F_s[l], or C_s[l]."""
        earlier = before.get((layer, direction), np.zeros_like(now))
        before[layer, direction] = now
        return now if mode == "synchronous" or (period > 0 and epoch % period == 0) else earlier

    return adaqp.train(graph, assignment, weights, draw, bits=bits, features=features, used=used, **how)
