"""EC-Graph (Song, Gu, Qi, Wang, Yu, ICDE 2022): remote rows that the reader predicts, coded where the
prediction is worse than a code; gradients coded, what a code lost added to the next.

All messages are by pair (owner j, reader i) and layer; h [k, f] are the rows of H[l] that i reads of j,
ascending: all (rows = "all"), or those alone that the loss needs ("needed"). Epochs t count from 0. C_b(x)
of a message x [k, f] with low = min x, w = (max x - low) / 2^b:

    C_b(x) = low + (q + 1/2) w,   q = floor((x - low) / w) in 0..2^b - 1;   C_b(x) = x where w = 0

Forward (ReqEC-FP). Both ends keep last and d [k, f], and b, at first `bits`; with T = period:

    t = 0:                  y = last = h, d = 0                            exact
    (t + 1) mod T = 0:      y = h;  d = (h - last) / max(T - 1, 1);  last = h           exact
    else                    p = last + ((t + 1) mod T) d,  c = C_b(h), and for each row
                            y = that of c, p, (c + p) / 2 with the least sum of |y - h|, the first of equals

    After such a message, with tune, q of k rows not predicted (y is not p):
        q / k < 0.5:  b = min(2 b, 8);      q / k > 0.8:  b = max(b / 2, 1)

Backward (ResEC-BP), l >= 1: g = R_ijᵀ E [k, f] is the gradient of what was read. The reader keeps e, at first
0, and with B = backward_bits

    x = g + e,   sends C_B(x),   e = x - C_B(x);       B = 32: sends g

With R_ij the entries of Â of the parts i and j, y_ij and C_ij of the messages from j to i and back:

    Z[l + 1] = (O H[l] + Σ R_ij y_ij) W[l] + b[l],   ∂H[l] = Oᵀ E + Σ C_ij,   E = δ[l + 1] W[l]ᵀ

compensate = false: y = C_b(h) in every epoch, with b = bits, and e = 0 throughout.

The weight gradient is taken at what was read. features = "once": layer 0 is read exact, sent in epoch 0
alone; "refetch": as any other layer, forward.

Bytes of a message: 4 k f where exact, 8 k f at (t + 1) mod T = 0 with rate = "sent" and T > 1 (h and d);
ceil(q f b / 8) + ceil(k / 4) + 8 else; compensate = false: ceil(k f b / 8) + 8.
Backward: ceil(k f B / 8) + 8, or 4 k f. rate says nothing else.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.bytes import FLOAT
from tests.oracles.dense import History, Weights
from tests.oracles.split import Training, remote_rows
from tests.oracles.supergnn import needed_sets


@dataclass
class EcgraphHistory(History):
    """sent[t][layer, direction]: bytes of epoch t, all pairs together."""

    sent: list[dict] = field(default_factory=list)


def middle(x: np.ndarray, bits: int) -> np.ndarray:
    """C of a message x [k, f]."""
    low, w = x.min(), (x.max() - x.min()) / 2**bits
    if w == 0:
        return x
    return low + (np.clip(np.floor((x - low) / w), 0, 2**bits - 1) + 0.5) * w


class Forward:
    """What both ends keep of a pair in a layer."""

    def __init__(self, period: int, bits: int, tune: bool, rate: str, compensate: bool = True):
        self.period, self.bits, self.tune, self.rate = period, bits, tune, rate
        self.compensate = compensate

    def sent(self, t: int, h: np.ndarray) -> tuple[np.ndarray, int]:
        """y [k, f] and the bytes of a message."""
        k, f = h.shape
        if self.period > 1 and not self.compensate:
            return middle(h, self.bits), -(-k * f * self.bits // 8) + 8
        r = (t + 1) % self.period
        if t == 0:
            self.last, self.d = h, np.zeros_like(h)
        elif r == 0:
            self.last, self.d = h, (h - self.last) / max(self.period - 1, 1)
        if t == 0 or r == 0:
            with_d = self.rate == "sent" and r == 0 and self.period > 1
            return h, (2 if with_d else 1) * FLOAT * k * f
        p, c = self.last + r * self.d, middle(h, self.bits)
        choices = np.array([c, p, (c + p) / 2])
        chosen = np.abs(choices - h).sum(axis=2).argmin(axis=0)
        q, b = int((chosen != 1).sum()), self.bits
        if self.tune and q < 0.5 * k:
            self.bits = min(2 * b, 8)
        elif self.tune and q > 0.8 * k:
            self.bits = max(b // 2, 1)
        return choices[chosen, np.arange(k)], -(-q * f * b // 8) + -(-2 * k // 8) + 8


class Backward:
    """What a reader keeps of a pair in a layer."""

    def __init__(self, bits: int, compensate: bool):
        self.bits, self.compensate, self.e = bits, compensate, 0.0

    def sent(self, g: np.ndarray) -> tuple[np.ndarray, int]:
        """What arrives of g [k, f], and the bytes of the message."""
        if self.bits == 32:
            return g, FLOAT * g.size
        x = g + self.e
        arrives = middle(x, self.bits)
        self.e = x - arrives if self.compensate else 0.0
        return arrives, -(-g.size * self.bits // 8) + 8


def train(
    graph, assignment: np.ndarray, weights: Weights, *, period: int = 10, bits: int = 2,
    backward_bits: int = 4, tune: bool = True, rate: str = "sent", rows: str = "all",
    features: str = "once", compensate: bool = True, **how,
) -> EcgraphHistory:  # fmt: skip
    """EC-Graph over the parts of `assignment` [V]; exact with period = 1 and backward_bits = 32."""
    assert rate in ("sent", "computed") and features in ("once", "refetch")
    case, history = Training(graph, assignment, weights, **how), EcgraphHistory()
    layers, parts, blocks = range(case.layers), case.parts, case.blocks
    sets = needed_sets(graph, case.layers, rows)
    halo = [remote_rows(np.where(sets[l + 1][:, None], case.a, 0.0), assignment) for l in layers]
    pairs = [[(i, j) for i in parts for j in parts if len(halo[l][i][j])] for l in layers]
    keys = [(l, pair) for l in layers for pair in pairs[l]]
    forward = {key: Forward(period, bits, tune, rate, compensate) for key in keys}
    backward = {key: Backward(backward_bits, compensate) for key in keys}

    def epoch_step(t, weights):
        sent = {(l, way): 0 for l in layers for way in ("forward", "backward")}
        history.sent.append(sent)

        def read(l, h):
            """Σ R_ij y_ij."""
            total = np.zeros_like(h)
            for i, j in pairs[l]:
                y = h[halo[l][i][j]]
                if l == 0 and features == "once":
                    size = FLOAT * y.size if t == 0 else 0
                else:
                    y, size = forward[l, (i, j)].sent(t, y)
                total[blocks[i]] += case.remote[np.ix_(blocks[i], halo[l][i][j])] @ y
                sent[l, "forward"] += size
            return total

        def arriving(l, e):
            """Σ C_ij."""
            total = np.zeros_like(e)
            for i, j in pairs[l]:
                g = case.remote[np.ix_(blocks[i], halo[l][i][j])].T @ e[blocks[i]]
                back, size = backward[l, (i, j)].sent(g)
                total[halo[l][i][j]] += back
                sent[l, "backward"] += size
            return total

        # Rows that the loss does not need have no δ: what they hold does not matter.
        return case.step(weights, read, arriving)

    return case.run(epoch_step, history)
