"""The oracle of PipeGCN, and the split pass under it, against full-graph training, torch's autograd, and by
hand.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, halo, pipegcn, split
from tests.oracles.samples import (
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)

DEEP = [5, 4, 4, 3]
HOW = dict(epochs=5, lr=0.02, weight_decay=0.01)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    directed=st.booleans(),
    features=st.sampled_from(["once", "refetch"]),
    model=st.sampled_from(["gcn", "sage"]),
    normalisation=st.sampled_from(["symmetric", "row"]),
)
def test_without_staleness_or_without_peers_it_is_full_graph_training(
    seed, parts, directed, features, model, normalisation
):
    graph, weights = random_graph(seed, directed=directed), random_weights(seed, model, widths=DEEP)
    blocks, how = (
        random_blocks(seed, graph.num_vertices, parts),
        dict(model=model, normalisation=normalisation, **HOW),
    )
    exact = dense.train(graph, weights, **how)
    assert_same_run(pipegcn.train(graph, blocks, weights, staleness=0, features=features, **how), exact)
    assert_same_run(
        pipegcn.train(
            graph,
            blocks,
            weights,
            staleness=0,
            smooth_features=True,
            smooth_gradients=True,
            momentum=0.0,
            features=features,
            **how,
        ),
        exact,
    )
    alone = pipegcn.train(
        graph, 0 * blocks, weights, staleness=3, smooth_features=True, smooth_gradients=True, **how
    )
    assert_same_run(alone, exact)


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), parts=st.integers(2, 4), model=st.sampled_from(["gcn", "sage"]))
def test_until_the_pipe_is_full_it_is_zero_halo_training(seed, parts, model):
    graph, weights = random_graph(seed), random_weights(seed, model, widths=DEEP)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    run = pipegcn.train(
        graph, blocks, weights, staleness=3, features="refetch", model=model, epochs=3, lr=0.02
    )
    assert_same_run(run, halo.zero_halo(graph, blocks, weights, model=model, epochs=3, lr=0.02))


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
    np.testing.assert_allclose(run.losses, losses, rtol=1e-10)
    for ours, theirs in zip(run.gradients, gradients):
        for name in weights:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-8, atol=1e-12, err_msg=name)


def test_every_knob_changes_the_run_and_layer_0_only_the_first_epoch():
    graph, weights = random_graph(3), random_weights(4, widths=DEEP)
    blocks, how = random_blocks(5, graph.num_vertices, 3), dict(epochs=8, lr=0.05)
    knobs = [
        dict(staleness=0),
        {},
        dict(staleness=2),
        dict(smooth_features=True),
        dict(smooth_gradients=True),
        dict(smooth_features=True, smooth_gradients=True),
        dict(smooth_features=True, momentum=0.5),
        dict(features="refetch"),
    ]
    runs = [pipegcn.train(graph, blocks, weights, **k, **how) for k in knobs]
    for i, one in enumerate(runs):
        assert all(differs(one, other) for other in runs[:i]), knobs[i]
    refetched = runs[-1]
    assert not np.any(refetched.used[0][0]) and all(
        (used[0] == graph.features).all() for used in refetched.used[1:]
    )


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_the_split_pass_with_fresh_rows_is_the_dense_pass_for_any_matrix(model):
    graph, weights = random_graph(6), random_weights(7, model, widths=DEEP)
    matrix = np.random.default_rng(8).standard_normal((graph.num_vertices,) * 2)
    own, remote = split.split(matrix, random_blocks(9, graph.num_vertices, 3))
    data = (graph.features.astype(np.float64), graph.labels, graph.train, 6, weights, model)
    assert (own + remote == matrix).all() and own.any() and remote.any()
    loss, gradients, h = split.loss_and_gradients(
        own, [remote] * 3, *data, lambda l, h: h, lambda l, e: remote.T @ e
    )
    want_loss, want = dense.loss_and_gradients(matrix, *data)
    assert loss == pytest.approx(want_loss, rel=1e-12) and len(h) == 4
    for name in want:
        np.testing.assert_allclose(gradients[name], want[name], rtol=1e-9, atol=1e-12)
