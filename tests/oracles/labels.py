"""Masked label propagation (Zhuang et al., ICS 2025), full-graph training on one process with dense matrices
in float64; derivatives are torch's own.

    H[0] = X + S_t E,   S_t [V, C] the one-hot labels of the training vertices that are visible in epoch t
    Z[l + 1] = A H[l] W[l] + b[l] (+ H[l] R[l], GraphSAGE),   H[l + 1] = ReLU(Z[l + 1]) (+ H[0] W_skip where
               l = 0, + H[l] where l > 0, with residuals), the last Z are the logits
    loss = sum over the hidden training vertices of the cross-entropy / ((1 - share) N_train)

At the end S shows all training vertices. E is the parameter `label_embedding` [C, f0].
"""

from collections.abc import Callable

import numpy as np
import torch

from tests.oracles.dense import History, Weights, adjacency, linear, num_layers, operator_of, score


def train(
    graph, weights: Weights, visible: Callable[[int], np.ndarray], share: float, *, model: str = "gcn",
    assignment: np.ndarray | None = None, residual: bool = False, epochs: int, lr: float, weight_decay: float,
) -> History:  # fmt: skip
    """visible(epoch) -> [V] bool, read at training vertices; assignment [V]: train without the edges between
    parts, whose remote rows are 0."""
    whole = torch.from_numpy(operator_of(adjacency(graph), model, "symmetric"))
    a = whole
    if assignment is not None:
        a = whole * torch.from_numpy(assignment[:, None] == assignment[None, :])
    x, mask = torch.from_numpy(graph.features).double(), torch.from_numpy(graph.train)
    labels = torch.from_numpy(graph.labels).long()
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), graph.num_classes).double()
    w = {name: torch.from_numpy(value.copy()).double().requires_grad_() for name, value in weights.items()}
    layers, adam = num_layers(weights), torch.optim.Adam(w.values(), lr=lr, weight_decay=weight_decay)

    def logits(a, shown):
        first = h = x + (one_hot * shown[:, None]) @ w["label_embedding"]
        for l in range(layers):
            z = linear(a @ h, h, w, l, model)
            more = (first @ w["layers.0.skip"] if l == 0 else h) if residual and l < layers - 1 else 0
            h = z.relu() + more if l < layers - 1 else z
        return h

    history = History()
    for epoch in range(epochs):
        shown = mask & torch.from_numpy(visible(epoch))
        hidden = mask & ~shown
        each = torch.nn.functional.cross_entropy(logits(a, shown)[hidden], labels[hidden], reduction="sum")
        loss = each / ((1 - share) * int(mask.sum()))
        adam.zero_grad()
        loss.backward()
        adam.step()
        history.losses.append(loss.item())
        history.weights_after.append({name: value.detach().numpy().copy() for name, value in w.items()})
    history.logits = logits(whole, mask).detach().numpy()
    for name in ("train", "val", "test"):
        history.scores[name] = score(history.logits, graph.labels, getattr(graph, name))
    return history
