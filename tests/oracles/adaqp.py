"""AdaQP (Wan, Zhao, Wu, MLSys 2023): full-graph training whose messages are stochastically quantised, both
ways.

Linear quantisation of a row x [F] to B bits with u [F] uniform in [0, 1):

    low = min x, high = max x,  S = (high - low) / (2^B - 1)
    q = floor((x - low) / S + u) in 0..2^B - 1,   Q(x) = low + q S          E Q(x) = x        (a row of equal
    values: Q(x) = x) Var of Q(x), summed over the row: F S^2 / 6 where entries lie anywhere between two codes
    alike; F S^2 / 4 at most

Part i reads of its remote row k, at owner j, what j sent to i, quantised for i alone; with R_i the rows of R
(the entries of Â across parts) that i owns:

    Z[l + 1] = (O H[l] + Σ_i R_i Q_i(H[l])) W[l] + b[l]
    ∂H[l] = Oᵀ E + Σ_i Q(R_iᵀ E),   E = δ[l + 1] W[l]ᵀ                      i quantises what it sends back to
                                    k's owner

The weight gradient is taken at what was read: (O H[l] + Σ_i R_i Q_i(H[l]))ᵀ δ[l + 1]. A message holds one row
for each vertex k of j with an edge to a vertex of i, ascending. features = "refetch": layer 0 is quantised
anew in every epoch; "once": exact.

assignment = "uniform": B = bits. "adaptive": in epochs t with t % period == 0 every sender chooses B in {2,
4, 8} of every row it is about to send in this exchange (a layer, a direction), to all its receivers together,
and keeps to it until the next time. From 2 bits each, rows are upgraded 2 -> 4 and 4 -> 8 by greatest fall of
w_k (high_k - low_k)^2 / (2^B - 1)^2 per bit added, up to bits * n bits for n rows, and no further from the
first upgrade that does not fit. Equal falls: in the order of receivers and rows. w_k = Σ over the receiver's
rows v of Â[v, k]^2 forward, 1 backward.

`draw(epoch, layer, direction, sender, [n, F])` gives the u of all that a sender sends in an exchange,
receiver after receiver; the oracle draws nothing.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights
from tests.oracles.split import Training

CHOICES = (2, 4, 8)


@dataclass
class AdaqpHistory(History):
    """bits[t][layer, direction, sender]: the bits of the rows that it sent in epoch t, by receiver and
    row.
    """

    bits: list[dict] = field(default_factory=list)


def quantised(x: np.ndarray, bits: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Q of the rows of x [n, F]; bits [n], u [n, F]."""
    low, top = x.min(axis=1, keepdims=True), 2.0 ** bits[:, None] - 1
    step = (x.max(axis=1, keepdims=True) - low) / top
    q = np.floor(np.divide(x - low, step, out=np.zeros_like(x), where=step > 0) + u)
    return low + np.clip(q, 0, top) * step


def chosen_bits(x: np.ndarray, w: np.ndarray, mean_bits: float) -> np.ndarray:
    """The adaptive bits [n] of rows x [n, F] with weights w [n]."""
    spread = w * (x.max(axis=1) - x.min(axis=1)) ** 2
    upgrades = []
    for old, new in zip(CHOICES, CHOICES[1:]):
        fall = 1 / (2**old - 1) ** 2 - 1 / (2**new - 1) ** 2
        upgrades += [(-spread[k] * fall / (new - old), old, k, new) for k in range(len(x))]
    bits, left = np.full(len(x), CHOICES[0]), mean_bits * len(x) - CHOICES[0] * len(x)
    for _, old, k, new in sorted(upgrades):
        if new - old > left:
            break
        assert bits[k] == old, "a row's second upgrade gains less a bit than its first"
        bits[k], left = new, left - (new - old)
    return bits


def at_once(epoch: int, layer: int, direction: str, now: np.ndarray) -> np.ndarray:
    return now


def train(
    graph, assignment: np.ndarray, weights: Weights, draw, *, bits: float = 8, adaptive: bool = False,
    period: int = 50, features: str = "refetch", used=at_once, **how,
) -> AdaqpHistory:  # fmt: skip
    """AdaQP over the parts of `assignment` [V]. used(epoch, layer, direction, now): what is computed with
    where `now` is what the messages of the epoch give, Σ_i R_i Q_i(H[l]) or Σ_i Q(R_iᵀ E)."""
    assert features in ("refetch", "once")
    case = Training(graph, assignment, weights, **how)
    parts, blocks, halo, remote = case.parts, case.blocks, case.halo, case.remote
    history, held = AdaqpHistory(), {}  # held: the adaptive bits in force

    def messages(epoch, layer, direction, sender, payload, weight):
        """Q of payload[receiver] [n, F] for every receiver, out of one choice of bits."""
        rows, key = np.concatenate(payload), (layer, direction, sender)
        if not adaptive:
            held[key] = np.full(len(rows), bits)
        elif epoch % period == 0:
            held[key] = chosen_bits(rows, np.concatenate(weight), bits) if len(rows) else np.zeros(0, int)
        history.bits[epoch][key] = held[key]
        if not len(rows):
            return payload
        sent = quantised(rows, held[key], draw(epoch, layer, direction, sender, rows.shape))
        return np.split(sent, np.cumsum([len(p) for p in payload])[:-1])

    def epoch_step(epoch, weights):
        history.bits.append({})

        def received(l, h):
            """Σ_i R_i Q_i(h), [V, F]."""
            if l == 0 and features == "once":
                return remote @ h
            total = np.zeros_like(h)
            for j in parts:
                use = [(remote[np.ix_(blocks[i], halo[i][j])] ** 2).sum(axis=0) for i in parts]
                sent = messages(epoch, l, "forward", j, [h[halo[i][j]] for i in parts], use)
                for i in parts:
                    total[blocks[i]] += remote[np.ix_(blocks[i], halo[i][j])] @ sent[i]
            return used(epoch, l, "forward", total)

        def arriving(l, e):
            total = np.zeros_like(e)
            for i in parts:
                back = [remote[np.ix_(blocks[i], halo[i][j])].T @ e[blocks[i]] for j in parts]
                sent = messages(epoch, l, "backward", i, back, [np.ones(len(halo[i][j])) for j in parts])
                for j in parts:
                    total[halo[i][j]] += sent[j]
            return used(epoch, l, "backward", total)

        return case.step(weights, received, arriving)

    return case.run(epoch_step, history)
