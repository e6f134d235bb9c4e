"""The oracle of PipeGCN, and the split pass under it, against its closed form and torch's autograd."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, pipegcn
from tests.oracles.samples import DEEP, assert_gradients_alike, random_blocks, random_graph, random_weights


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    staleness=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.5, 0.95]),
    features=st.sampled_from(["once", "refetch"]),
)
def test_what_is_used_is_what_was_sent_that_many_epochs_ago(seed, parts, staleness, momentum, features):
    graph, weights = random_graph(seed), random_weights(seed, widths=DEEP)
    run = pipegcn.train(
        graph,
        random_blocks(seed, graph.num_vertices, parts),
        weights,
        staleness=staleness,
        features=features,
        smooth_features=True,
        smooth_gradients=True,
        momentum=momentum,
        epochs=6,
        lr=0.05,
    )
    for t in range(6):
        for l in range(3):
            if l == 0 and features == "once":
                np.testing.assert_array_equal(run.used[t][0], graph.features)
                continue
            # the closed form of the moving average from zeros: Σ_i (1 - m) m^i received_{t-i}
            ages = range(t - staleness + 1)
            for received, got in ((run.inputs, run.used), (run.sent, run.arrived)):
                if got[t][l] is not None:
                    want = sum((1 - momentum) * momentum**i * received[t - staleness - i][l] for i in ages)
                    np.testing.assert_allclose(got[t][l], want, atol=1e-12)


def replay_in_torch(graph, assignment, weights, run, *, staleness, model, normalisation, features):
    """Losses and gradients by autograd: of loss + Σ_l <H[l], late gradients>, remote rows being leaves of s
    epochs ago.
    """
    operator = torch.tensor(dense.operator_of(dense.adjacency(graph), model, normalisation))
    own = torch.tensor(assignment[:, None] == assignment[None, :]).double()
    rows, labels = torch.tensor(np.flatnonzero(graph.train)), torch.tensor(graph.labels, dtype=torch.int64)
    layers, seen, late, losses, gradients = dense.num_layers(weights), [], [], [], []
    for epoch in range(len(run.losses)):
        start = weights if epoch == 0 else run.weights_after[epoch - 1]
        w = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
        h, extra = torch.tensor(graph.features, dtype=torch.float64), 0.0
        seen.append([])
        leaves = []
        for l in range(layers):
            seen[-1].append(h.detach())
            if l == 0 and features == "once":
                leaf = h.detach().clone()
            else:
                leaf = seen[epoch - staleness][l].clone() if epoch >= staleness else torch.zeros_like(h)
            leaves.append(leaf.requires_grad_())
            if l > 0 and epoch >= staleness:
                extra = extra + (h * late[epoch - staleness][l]).sum()
            z = ((operator * own) @ h + (operator * (1 - own)) @ leaf) @ w[f"layers.{l}.weight"]
            z = z + w[f"layers.{l}.bias"] + (h @ w[f"layers.{l}.root"] if model == "sage" else 0.0)
            h = torch.relu(z) if l + 1 < layers else z
        loss = torch.nn.functional.cross_entropy(h[rows], labels[rows])
        (loss + extra).backward()
        late.append([leaf.grad for leaf in leaves])
        losses.append(loss.item())
        gradients.append({name: value.grad.numpy() for name, value in w.items()})
    return losses, gradients


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    staleness=st.integers(1, 2),
    directed=st.booleans(),
    features=st.sampled_from(["once", "refetch"]),
    model=st.sampled_from(["gcn", "sage"]),
    normalisation=st.sampled_from(["symmetric", "row"]),
)
def test_stale_epochs_agree_with_autograd(seed, parts, staleness, directed, features, model, normalisation):
    graph, weights = random_graph(seed, directed=directed), random_weights(seed, model, widths=DEEP)
    assignment = random_blocks(seed, graph.num_vertices, parts)
    knobs = dict(staleness=staleness, model=model, normalisation=normalisation, features=features)
    run = pipegcn.train(graph, assignment, weights, epochs=5, lr=0.05, **knobs)
    losses, gradients = replay_in_torch(graph, assignment, weights, run, **knobs)
    assert_gradients_alike(run, losses, gradients)
