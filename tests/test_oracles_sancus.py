"""The oracle of SANCUS against torch's autograd, and the definitions of its staleness rules."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, sancus
from tests.oracles.samples import (
    assert_gradients_alike,
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)


def active_epochs(run: sancus.SancusHistory, layer: int, block: int) -> list[int]:
    return [epoch for epoch, active in enumerate(run.active) if active[layer, block]]


@pytest.mark.parametrize("flags", ["layer", "worker"])
def test_schedules_of_the_epoch_rules(flags):
    graph, weights = random_graph(12), random_weights(13)
    assignment = random_blocks(14, graph.num_vertices, 4)
    how = dict(flags=flags, epochs=8, lr=0.02)
    fixed = sancus.train(graph, assignment, weights, staleness="epoch_fixed", bound=1, **how)
    adaptive = sancus.train(graph, assignment, weights, staleness="epoch_adaptive", bound=2, **how)
    for layer in range(2):
        assert [active_epochs(fixed, layer, j) for j in range(4)] == [[0, 2, 4, 6]] * 4  # Figure 14a
        assert [active_epochs(adaptive, layer, j) for j in range(4)] == [
            [0, 3, 6],
            [0, 1, 4, 7],
            [0, 2, 5],
            [0, 3, 6],
        ]
    warm = [
        sancus.train(graph, assignment, weights, staleness=rule, bound=bound, warmup=2, **how)
        for rule, bound in (("epoch_fixed", 1), ("epoch_adaptive", 2), ("variation_gap", math.inf))
    ]
    assert [[active_epochs(run, 1, j) for j in range(3)] for run in warm] == [
        [[0, 1, 2, 4, 6]] * 3,
        [[0, 1, 3, 6], [0, 1, 4, 7], [0, 1, 2, 5]],
        [[0, 1]] * 3,
    ]
    assert fixed.staleness.max() == 1 and adaptive.staleness.max() == 2
    assert [list(v[1]) for v in adaptive.versions[:4]] == [
        [0, 0, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 2, 0],
        [3, 1, 2, 3],
    ]


def replay_in_torch(graph, assignment, weights, run: sancus.SancusHistory, normalisation: str):
    """Losses, gradients and inputs H by autograd, from the flags and the weights of `run`.

    Z_i = Σ_j Â_ij U_j with U_j = H_j W in value for the own block and H̃_j W for a remote one, but H_j W in
    derivative: this is the function whose derivative equations (4) and (5) with fresh H_i and fresh δ_j are.
    """
    operator = torch.tensor(dense.gcn_operator(dense.adjacency(graph), normalisation))
    own = torch.tensor(assignment[:, None] == assignment[None, :]).double()
    rows = torch.tensor(np.flatnonzero(graph.train))
    labels = torch.tensor(graph.labels, dtype=torch.int64)
    layers, epochs = dense.num_layers(weights), len(run.losses)
    cache, losses, gradients, inputs = [None] * layers, [], [], []
    for epoch in range(epochs):
        start = weights if epoch == 0 else run.weights_after[epoch - 1]
        w = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
        h = torch.tensor(graph.features, dtype=torch.float64)
        inputs.append([])
        for l in range(layers):
            sent = torch.tensor(run.active[epoch][l][assignment])[:, None]
            cache[l] = h.detach() if cache[l] is None else torch.where(sent, h.detach(), cache[l])
            inputs[-1].append(h.detach().numpy())
            u = h @ w[f"layers.{l}.weight"]
            stale = u + (cache[l] @ w[f"layers.{l}.weight"] - u).detach()
            z = (operator * own) @ u + (operator * (1 - own)) @ stale + w[f"layers.{l}.bias"]
            h = torch.relu(z) if l + 1 < layers else z
        loss = torch.nn.functional.cross_entropy(h[rows], labels[rows])
        loss.backward()
        losses.append(loss.item())
        gradients.append({name: value.grad.numpy() for name, value in w.items()})
    return losses, gradients, inputs


RULES = [("epoch_fixed", 2), ("epoch_adaptive", 2), ("variation_gap", 0.05)]


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 4),
    rule=st.sampled_from(RULES),
    features=st.sampled_from(["refetch", "once"]),
    normalisation=st.sampled_from(["symmetric", "row"]),
)
def test_stale_epochs_agree_with_autograd(seed, parts, rule, features, normalisation):
    graph, weights = random_graph(seed), random_weights(seed, widths=[5, 4, 4, 3])
    assignment = random_blocks(seed, graph.num_vertices, parts)
    run = sancus.train(
        graph,
        assignment,
        weights,
        staleness=rule[0],
        bound=rule[1],
        features=features,
        normalisation=normalisation,
        epochs=6,
        lr=0.05,
    )
    losses, gradients, _ = replay_in_torch(graph, assignment, weights, run, normalisation)
    assert_gradients_alike(run, losses, gradients)


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    norm=st.sampled_from(["relative", "fro", "max", "mean"]),
    flags=st.sampled_from(["layer", "worker"]),
    features=st.sampled_from(["refetch", "once"]),
)
def test_variation_gap_sends_exactly_the_blocks_that_moved(seed, norm, flags, features):
    graph, weights = random_graph(seed), random_weights(seed, widths=[5, 4, 4, 3])
    assignment = random_blocks(seed, graph.num_vertices, 3)
    bound = {"relative": 0.1, "fro": 0.5, "max": 0.2, "mean": 0.05}[norm]
    run = sancus.train(
        graph,
        assignment,
        weights,
        staleness="variation_gap",
        bound=bound,
        norm=norm,
        flags=flags,
        features=features,
        epochs=8,
        lr=0.05,
    )
    inputs = replay_in_torch(graph, assignment, weights, run, "symmetric")[2]
    assert run.active[0].all()
    for epoch in range(1, 8):
        for j in range(3):
            moved = []
            for l in range(3):
                now = inputs[epoch][l][assignment == j].ravel()
                held = inputs[run.versions[epoch - 1][l][j]][l][assignment == j].ravel()
                by_norm = {"max": np.abs(now - held).max(), "mean": np.abs(now - held).mean()}
                gap = by_norm.get(norm, math.sqrt(((now - held) ** 2).sum()))
                moved.append(gap > bound * (math.sqrt((held**2).sum()) if norm == "relative" else 1.0))
            expected = np.logical_or.accumulate(moved) if flags == "worker" else moved
            assert list(run.active[epoch][:, j]) == list(expected)


def test_clipping_by_hand_in_one_layer():
    graph, weights = random_graph(24), random_weights(25, widths=[5, 3])
    blocks = random_blocks(26, graph.num_vertices, 4)
    operator, x = dense.gcn_operator(dense.adjacency(graph), "symmetric"), graph.features.astype(np.float64)
    logits = operator @ x @ weights["layers.0.weight"] + weights["layers.0.bias"]
    delta = dense.loss_and_delta(logits, graph.labels, graph.train, 6)[1]
    norms = [np.linalg.norm(delta[blocks == j]) for j in range(4)]
    th = 0.5 * (min(norms) + max(norms)) / 2  # th √4 lies between the smallest and the largest norm
    for j in range(4):
        delta[blocks == j] *= min(1.0, 2 * th / norms[j]) if norms[j] else 1.0
    how = dict(staleness="epoch_fixed", bound=0, epochs=1, lr=0.02)
    for features in ("refetch", "once"):
        for clip in (dict(clip=th), dict(clip=4 * th, clip_scale="inverse")):
            got = sancus.train(graph, blocks, weights, features=features, **clip, **how).gradients[0]
            np.testing.assert_allclose(got["layers.0.weight"], (operator @ x).T @ delta, atol=1e-12)
            np.testing.assert_allclose(got["layers.0.bias"], delta.sum(axis=0), atol=1e-12)


def test_clipping_reaches_the_hidden_layers_and_a_high_threshold_changes_nothing():
    graph, weights = random_graph(27), random_weights(28)
    blocks = random_blocks(29, graph.num_vertices, 3)
    how = dict(staleness="epoch_fixed", bound=1, epochs=4, lr=0.02)
    free = sancus.train(graph, blocks, weights, **how)
    assert_same_run(free, sancus.train(graph, blocks, weights, clip=1e6, **how), rtol=0)
    tight = sancus.train(graph, blocks, weights, clip=1e-3, **how)
    assert differs(tight, free)
    for gradients in tight.gradients:
        for l in range(2):  # |column sums of δ| <= √n Σ_i ‖δ_i‖
            assert np.linalg.norm(gradients[f"layers.{l}.bias"]) <= math.sqrt(14) * 3 * 1e-3 * math.sqrt(3)
