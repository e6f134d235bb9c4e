"""Full-graph training written out: dense matrices, float64, one process, every derivative by hand.

GCN (Kipf and Welling), layer l of L, in the numbering of the SANCUS paper's equations (2)-(5):

    Z^(l) = Â H^(l-1) W^(l-1) + b^(l-1)                                        (2)
    H^(l) = ReLU(Z^(l)), and H^(L) = Z^(L) are the logits                      (3)
    δ^(l) = ∂loss/∂Z^(l)
    δ^(l-1) = (Âᵀ δ^(l) W^(l-1)ᵀ) ⊙ ReLU'(Z^(l-1))                             (4)
    ∂loss/∂W^(l-1) = H^(l-1)ᵀ Âᵀ δ^(l),   ∂loss/∂b^(l-1) = column sums of δ^(l)  (5)

(4) and (5) are printed with factors in another order and for a symmetric Â; these are the forms whose shapes
fit and which hold for a directed graph as well. Every system at its exact knob
holds them against torch's derivatives.

GraphSAGE-mean: Z^(l) = M H^(l-1) W^(l-1) + H^(l-1) R^(l-1) + b^(l-1), M the mean over the in-neighbours.

Parameters are named as in the harness: layers.{l}.weight [in, out], layers.{l}.bias [out], and for GraphSAGE
layers.{l}.root [in, out], with l counted from 0. In code `layer` l maps H[l] to H[l + 1].
"""

from dataclasses import dataclass, field

import numpy as np

Weights = dict[str, np.ndarray]


@dataclass
class History:
    """What a run leaves behind; the epochs are counted from 0.

    losses        [epochs] the training loss BEFORE the epoch's update
    gradients     [epochs] gradient of the loss by parameter, without weight decay
    weights_after [epochs] parameters after the epoch's update
    weights       the last of them (the initial ones after 0 epochs)
    logits        [V, C] exact full-graph forward with `weights`
    scores        accuracy (micro-F1 when multi-label) of `logits` on train, val, test; NaN where the mask is
                  empty
    """

    losses: list[float] = field(default_factory=list)
    gradients: list[Weights] = field(default_factory=list)
    weights_after: list[Weights] = field(default_factory=list)
    weights: Weights = field(default_factory=dict)
    logits: np.ndarray | None = None
    scores: dict[str, float] = field(default_factory=dict)


# --- the matrices
# -----------------------------------------------------------------------------------------------------


def adjacency(graph) -> np.ndarray:
    """[V, V] A with A[v, u] the weight of an edge u -> v, u != v, 1 in a graph without weights: row v holds
    v's in-neighbours, self-loops are dropped.
    """
    n = graph.num_vertices
    a = np.zeros((n, n))
    a[np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices] = (
        1.0 if graph.weights is None else graph.weights
    )
    np.fill_diagonal(a, 0.0)
    return a


def gcn_operator(a: np.ndarray, normalisation: str) -> np.ndarray:
    """Â of the adjacency `a`: D^-1/2 (A + I) D^-1/2 ("symmetric") or D^-1 (A + I) ("row"), D = 1 + the sum of
    the in-edges' weights.
    """
    a_bar = a + np.eye(len(a))
    d = a_bar.sum(axis=1)
    if normalisation == "symmetric":
        return a_bar / np.sqrt(np.outer(d, d))
    assert normalisation == "row", normalisation
    return a_bar / d[:, None]


def mean_operator(a: np.ndarray) -> np.ndarray:
    """M of the adjacency `a`: the mean over the in-neighbours, a row of zeros for a vertex that has none."""
    d = a.sum(axis=1, keepdims=True)
    return np.divide(a, d, out=np.zeros_like(a), where=d > 0)


def operator_of(a: np.ndarray, model: str, normalisation: str) -> np.ndarray:
    assert model in ("gcn", "sage"), model
    return gcn_operator(a, normalisation) if model == "gcn" else mean_operator(a)


def num_layers(weights: Weights) -> int:
    return sum(name.endswith(".weight") for name in weights)


# --- forward, loss, backward
# ------------------------------------------------------------------------------------------


def linear(t, h, weights: Weights, l: int, model: str):
    """Z[l + 1] of layer l, from what it aggregates, t, and the own rows h; arrays, or tensors."""
    z = t @ weights[f"layers.{l}.weight"] + weights[f"layers.{l}.bias"]
    return z + h @ weights[f"layers.{l}.root"] if model == "sage" else z


def nothing(layer: int, rows: np.ndarray) -> float:
    return 0.0


def forward(
    operator: np.ndarray, x: np.ndarray, weights: Weights, model: str, received=nothing
) -> tuple[list, list, list]:
    """(H, Z, T): H[0] = x, and for layer l = 0..L-1 Z[l + 1] and H[l + 1]; H[L] = Z[L] are the logits.
    T[l] = Â H[l] + received(l, H[l]) is what layer l multiplies by W[l].
    """
    layers = num_layers(weights)
    h, z, t = [x], [None], []
    for l in range(layers):
        t.append(operator @ h[l] + received(l, h[l]))
        z.append(linear(t[l], h[l], weights, l, model))
        h.append(np.maximum(z[-1], 0.0) if l + 1 < layers else z[-1])
    return h, z, t


def backward(
    operator: np.ndarray, passed: tuple[list, ...], delta, weights: Weights, model: str, arriving=nothing
) -> Weights:
    """Gradients of all parameters, from delta = ∂loss/∂logits and what `forward` gave; (5) as (Â H)ᵀ δ.
    `arriving(l, δ W[l]ᵀ)` is added to ∂H[l]."""
    h, z, t = passed
    gradients = {}
    for l in reversed(range(num_layers(weights))):
        gradients[f"layers.{l}.weight"] = t[l].T @ delta
        gradients[f"layers.{l}.bias"] = delta.sum(axis=0)
        if model == "sage":
            gradients[f"layers.{l}.root"] = h[l].T @ delta
        if l > 0:
            e = delta @ weights[f"layers.{l}.weight"].T
            gradient_h = operator.T @ e + arriving(l, e)
            if model == "sage":
                gradient_h = gradient_h + delta @ weights[f"layers.{l}.root"].T
            delta = gradient_h * (z[l] > 0)
    return gradients


def loss_and_delta(
    logits: np.ndarray, labels: np.ndarray, train: np.ndarray, count: int
) -> tuple[float, np.ndarray]:
    """Sum over the rows in `train` of the vertex loss, divided by `count`, and its derivative by the logits.

    `count` is the number of training vertices of the whole graph, whichever rows are given here; `train` [n]
    bool, or what each row's loss counts.
    The loss of a vertex is softmax cross-entropy (labels [n]) or the mean over the classes of binary
    cross-entropy with logits (labels [n, C]).
    """
    delta = np.zeros_like(logits)
    rows = np.flatnonzero(train)
    y, share = logits[rows], train[rows, None].astype(np.float64)
    if labels.ndim == 1:
        shifted = y - y.max(axis=1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        target = np.eye(logits.shape[1])[labels[rows]]
        loss = -(share * target * log_p).sum()
        delta[rows] = share * (np.exp(log_p) - target) / count
    else:
        target, classes = labels[rows].astype(np.float64), logits.shape[1]
        each = np.logaddexp(0.0, y) - target * y  # -t log σ(y) - (1-t) log(1-σ(y))
        loss = (share * each).sum() / classes
        sigmoid = np.exp(-np.logaddexp(0.0, -y))
        delta[rows] = share * (sigmoid - target) / (classes * count)
    return float(loss) / count, delta


def one_pass(
    operator: np.ndarray, x, labels, train, count: int, weights: Weights, model: str, received, arriving
) -> tuple[float, Weights, list]:
    """(loss, gradients, H) of a forward and a backward pass; labels, train and count as in
    `loss_and_delta`."""
    passed = forward(operator, x, weights, model, received)
    loss, delta = loss_and_delta(passed[0][-1], labels, train, count)
    return loss, backward(operator, passed, delta, weights, model, arriving), passed[0]


def loss_and_gradients(*data) -> tuple[float, Weights]:
    """Of an exact `one_pass`."""
    return one_pass(*data, nothing, nothing)[:2]


def summed(parts) -> tuple[float, Weights]:
    """(loss, gradients) of several workers together, of (loss, gradients, ...) of each."""
    parts = list(parts)
    return sum(part[0] for part in parts), {
        name: sum(part[1][name] for part in parts) for name in parts[0][1]
    }


def score(logits: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> float:
    """Accuracy, or micro-F1 of (logit > 0) when multi-label (0 without any positive); NaN on an empty
    mask.
    """
    if not mask.any():
        return float("nan")
    if labels.ndim == 1:
        return float((logits[mask].argmax(axis=1) == labels[mask]).mean())
    predicted, true = logits[mask] > 0, labels[mask] == 1
    positives = predicted.sum() + true.sum()  # 2 TP + FP + FN
    return float(2 * (predicted & true).sum() / positives) if positives else 0.0


# --- the optimiser and the loop
# ---------------------------------------------------------------------------------------


class Adam:
    """Adam with bias correction; weight decay is L2, added to the gradient (the semantics of
    torch.optim.Adam).
    """

    def __init__(self, lr: float, weight_decay: float = 0.0, beta1=0.9, beta2=0.999, eps=1e-8):
        self.lr, self.weight_decay, self.beta1, self.beta2, self.eps = lr, weight_decay, beta1, beta2, eps
        self.t, self.m, self.v = 0, {}, {}

    def step(self, weights: Weights, gradients: Weights) -> Weights:
        """New weights; those given stay as they are."""
        self.t += 1
        new = {}
        for name, w in weights.items():
            g = gradients[name] + self.weight_decay * w
            self.m[name] = self.beta1 * self.m.get(name, 0.0) + (1 - self.beta1) * g
            self.v[name] = self.beta2 * self.v.get(name, 0.0) + (1 - self.beta2) * g**2
            m_hat = self.m[name] / (1 - self.beta1**self.t)
            v_hat = self.v[name] / (1 - self.beta2**self.t)
            new[name] = w - self.lr * m_hat / (np.sqrt(v_hat) + self.eps)
        return new


def as_float64(weights: Weights) -> Weights:
    return {name: np.array(w, dtype=np.float64) for name, w in weights.items()}


def loop(weights: Weights, epoch_step, optimiser, epochs: int, history: History) -> History:
    """The loop all oracles share: `epoch_step(epoch, weights) -> (loss, gradients)`, update."""
    weights = as_float64(weights)
    for epoch in range(epochs):
        loss, gradients = epoch_step(epoch, weights)
        weights = optimiser.step(weights, gradients)
        history.losses.append(loss)
        history.gradients.append(gradients)
        history.weights_after.append(weights)
    history.weights = weights
    return history


def run(
    graph,
    weights: Weights,
    epoch_step,
    optimiser,
    epochs: int,
    model: str,
    normalisation: str,
    history: History,
) -> History:
    """The loop, and at the end the whole graph evaluated."""
    loop(weights, epoch_step, optimiser, epochs, history)
    operator = operator_of(adjacency(graph), model, normalisation)
    history.logits = forward(operator, graph.features.astype(np.float64), history.weights, model)[0][-1]
    for name in ("train", "val", "test"):
        history.scores[name] = score(history.logits, graph.labels, getattr(graph, name))
    return history


def train(
    graph,
    weights: Weights,
    *,
    model: str = "gcn",
    normalisation: str = "symmetric",
    epochs: int,
    lr: float,
    weight_decay: float = 0.0,
) -> History:
    """Full-batch training of the whole graph; `normalisation` means nothing to "sage"."""
    operator = operator_of(adjacency(graph), model, normalisation)
    x, count = graph.features.astype(np.float64), int(graph.train.sum())

    def epoch_step(_, weights):
        return loss_and_gradients(operator, x, graph.labels, graph.train, count, weights, model)

    return run(graph, weights, epoch_step, Adam(lr, weight_decay), epochs, model, normalisation, History())
