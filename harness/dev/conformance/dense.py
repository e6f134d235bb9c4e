"""Full-graph training written out with dense matrices in float64: what a system's exact knob must equal.

    Z^(l+1) = A H^(l) W^(l) + b^(l),  H^(l+1) = ReLU(Z^(l+1)),  the last Z are the logits

GCN has A = D^-1/2 (G + I) D^-1/2 with G the graph without self-loops and D the degrees of G + I; GraphSAGE
has the mean over in-neighbours and adds H^(l) R^(l). Derivatives are torch's own.
"""

import numpy as np
import torch

from harness.data.graph import Graph

MODELS = ("gcn", "sage")


def operator(graph: Graph, model: str) -> torch.Tensor:
    """A [V, V] float64 of a symmetric graph."""
    n = graph.num_vertices
    a = np.zeros((n, n))
    a[np.repeat(np.arange(n), np.diff(graph.indptr)), graph.indices] = 1.0
    np.fill_diagonal(a, 0.0)
    if model == "gcn":
        a += np.eye(n)
        scale = 1 / np.sqrt(a.sum(1))
        return torch.from_numpy(scale[:, None] * a * scale)
    return torch.from_numpy(a / np.maximum(a.sum(1, keepdims=True), 1))


def train(
    graph: Graph, weights: dict[str, np.ndarray], model: str, epochs: int, lr: float, weight_decay: float
) -> tuple[list[float], dict[str, np.ndarray]]:
    """The loss before each epoch's step of Adam, and the weights after the last; `weights` [in, out] are
    those before the first, named as in the harness."""
    a, x = operator(graph, model), torch.from_numpy(graph.features).double()
    labels, rows = torch.from_numpy(graph.labels).long(), torch.from_numpy(graph.train)
    w = {name: torch.from_numpy(value.copy()).double().requires_grad_() for name, value in weights.items()}
    adam = torch.optim.Adam(w.values(), lr=lr, weight_decay=weight_decay)
    layers, losses = sum(name.endswith(".bias") and "norm" not in name for name in w), []
    for _ in range(epochs):
        h = x
        for l in range(layers):
            z = a @ h @ w[f"layers.{l}.weight"] + w[f"layers.{l}.bias"]
            if model == "sage":
                z = z + h @ w[f"layers.{l}.root"]
            h = z.relu() if l < layers - 1 else z
        loss = torch.nn.functional.cross_entropy(h[rows], labels[rows])
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return losses, {name: value.detach().numpy() for name, value in w.items()}
