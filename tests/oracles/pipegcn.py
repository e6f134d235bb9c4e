"""PipeGCN (Wan et al., ICLR 2022): halo features and halo gradients one epoch old, so that both travel behind
compute.

Epochs t count from 0. In epoch t every vertex has one present row H_t[l] at its owner; whoever else reads it
in layer l >= 1 gets

    Y_t[l] = H_{t-s}[l] for t >= s,  0 for t < s                        s = staleness, 1 in the paper

so all readers of a vertex hold the same. The weight gradient of a reader is taken at what it read, Y_t.

Where a remote row's gradient goes: in epoch t the readers compute the gradient of what they read, summed over
readers

    C_t[l] = R[l]ᵀ E_t,   E_t = δ_t[l + 1] W_t[l]ᵀ      (with the weights and the deltas of epoch t)

and its owner adds it to the gradient of its own row H_{t+s}[l] in the backward pass of epoch t + s, before
that row's ReLU' of epoch t + s; for t < s nothing is added. So C_t meets a row that is s epochs younger than
the one it is the gradient of. What would arrive after the last epoch is lost.

Smoothing (section 3.4), by itself for features and gradients: from epoch s on the receiver keeps, from zeros,

    S_t = m S_{t-1} + (1 - m) received_t        received_t = H_{t-s}[l], or C_{t-s}[l]

and uses S_t in the place of received_t. There is no bias correction: in epoch s a row is only (1 - m) of what
was sent.

features = "once": layer 0 is fetched once and exact from epoch 0 on. "refetch": layer 0 goes through the pipe
(and through the smoothing of features) like any other, hence is 0 for t < s.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.dense import History, Weights
from tests.oracles.split import Training


@dataclass
class PipeHistory(History):
    """Of every epoch, by layer: the rows of [V, f_l] that readers used, and the gradients that owners added
    (None at 0).

    inputs[t][l]    H_t[l]     used[t][l]      Y_t[l], after smoothing
    sent[t][l]      C_t[l]     arrived[t][l]   what was added to ∂H_t[l], after smoothing
    """

    inputs: list[list] = field(default_factory=list)
    used: list[list] = field(default_factory=list)
    sent: list[list] = field(default_factory=list)
    arrived: list[list] = field(default_factory=list)


class Pipe:
    """What `put` hands in at epoch t comes out of `take` at epoch t + delay, smoothed; before that, zeros."""

    def __init__(self, delay: int, momentum: float):
        self.delay, self.momentum, self.sent, self.smoothed = delay, momentum, [], 0.0

    def put(self, value: np.ndarray) -> None:
        self.sent.append(value)

    def take(self, epoch: int, like: np.ndarray) -> np.ndarray:
        """Once an epoch; with delay 0, after `put`."""
        if epoch < self.delay:
            return np.zeros_like(like)
        self.smoothed = self.momentum * self.smoothed + (1 - self.momentum) * self.sent[epoch - self.delay]
        return self.smoothed


def train(
    graph, assignment: np.ndarray, weights: Weights, *, staleness: int = 1, smooth_features: bool = False,
    smooth_gradients: bool = False, momentum: float = 0.95, features: str = "once", **how,
) -> PipeHistory:  # fmt: skip
    """PipeGCN over the parts of `assignment` [V]; staleness = 0 without smoothing is exact."""
    assert staleness >= 0 and 0 <= momentum < 1 and features in ("once", "refetch")
    case, history = Training(graph, assignment, weights, **how), PipeHistory()
    layers = case.layers
    halo = [Pipe(staleness, momentum if smooth_features else 0.0) for _ in range(layers)]
    gradient = [Pipe(staleness, momentum if smooth_gradients else 0.0) for _ in range(layers)]

    def epoch_step(epoch, weights):
        used, sent, arrived = [], [None] * layers, [None] * layers

        def received(l, h):
            halo[l].put(h)
            used.append(h if l == 0 and features == "once" else halo[l].take(epoch, h))
            return case.remote @ used[l]

        def arriving(l, e):
            sent[l] = case.remote.T @ e
            gradient[l].put(sent[l])
            arrived[l] = gradient[l].take(epoch, sent[l])
            return arrived[l]

        loss, gradients, h = case.step(weights, received, arriving)
        history.inputs.append(h[:layers])
        history.used.append(used)
        history.sent.append(sent)
        history.arrived.append(arrived)
        return loss, gradients

    return case.run(epoch_step, history)
