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

from tests.oracles.adaqp import quantised
from tests.oracles.dense import History, Weights
from tests.oracles.split import Training


def train(
    graph, assignment: np.ndarray, weights: Weights, draw, *, bits: int = 1, mode: str = "asynchronous",
    period: int = 20, features: str = "once", **how,
) -> History:  # fmt: skip
    """Sylvie over the parts of `assignment` [V]; no knob makes it exact."""
    assert bits >= 1 and mode in ("synchronous", "asynchronous") and features in ("once", "refetch")
    case = Training(graph, assignment, weights, **how)
    parts, blocks, halo = case.parts, case.blocks, case.halo
    matrices = [[case.remote[np.ix_(blocks[i], halo[i][j])] for j in parts] for i in parts]
    before = {}  # F and C of the epoch before, by layer and direction

    def epoch_step(epoch, weights):
        at_once = mode == "synchronous" or (period > 0 and epoch % period == 0)

        def messages(layer, direction, sender, payload):
            """Q of payload[receiver] [n, F], for every receiver."""
            rows = np.concatenate(payload)
            u = draw(epoch, layer, direction, sender, rows.shape)
            sent = quantised(rows, np.full(len(rows), bits), u)
            return np.split(sent, np.cumsum([len(p) for p in payload])[:-1])

        def used(layer, direction, now):
            earlier = before.get((layer, direction), np.zeros_like(now))
            before[layer, direction] = now
            return now if at_once else earlier

        def received(l, h):
            """F_s[l]."""
            if l == 0 and features == "once":
                return case.remote @ h
            total = np.zeros_like(h)
            for j in parts:
                for i, sent in enumerate(messages(l, "forward", j, [h[halo[i][j]] for i in parts])):
                    total[blocks[i]] += matrices[i][j] @ sent
            return used(l, "forward", total)

        def arriving(l, e):
            """C_s[l]."""
            total = np.zeros_like(e)
            for i in parts:
                back = [matrices[i][j].T @ e[blocks[i]] for j in parts]
                for j, sent in enumerate(messages(l, "backward", i, back)):
                    total[halo[i][j]] += sent
            return used(l, "backward", total)

        return case.step(weights, received, arriving)

    return case.run(epoch_step)
