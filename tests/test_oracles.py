"""The oracles of full-graph training, the controls and the bytes: against finite differences, torch, and by
hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import bytes as count
from tests.oracles import dense, halo, sancus
from tests.oracles.samples import (
    WIDTHS,
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
    without_cut_edges,
)

# --- dense
# ------------------------------------------------------------------------------------------------------------


def test_operators_by_hand():
    # 0 -> 1, 2 -> 1, 1 -> 2, and a self-loop at 0 that must not count: in-degrees 0, 2, 1
    graph = random_graph(0).replace(
        indptr=np.array([0, 1, 3, 4], dtype=np.int32), indices=np.array([0, 0, 2, 1], dtype=np.int32)
    )
    a = dense.adjacency(graph)
    s3, s6 = math.sqrt(3), math.sqrt(6)
    np.testing.assert_allclose(
        dense.gcn_operator(a, "symmetric"), [[1, 0, 0], [1 / s3, 1 / 3, 1 / s6], [0, 1 / s6, 1 / 2]]
    )
    np.testing.assert_allclose(
        dense.gcn_operator(a, "row"), [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 2, 1 / 2]]
    )
    np.testing.assert_allclose(dense.mean_operator(a), [[0, 0, 0], [1 / 2, 0, 1 / 2], [0, 1, 0]])


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("model, normalisation", [("gcn", "symmetric"), ("gcn", "row"), ("sage", "row")])
def test_gradients_are_finite_differences(model, normalisation, multilabel):
    graph = random_graph(1, multilabel=multilabel)
    weights = random_weights(2, model, widths=[5, 4, 4, 3])
    operator = dense.operator_of(dense.adjacency(graph), model, normalisation)
    assert not np.allclose(operator, operator.T)

    def loss_of(w):
        x = graph.features.astype(np.float64)
        return dense.loss_and_gradients(
            operator, x, graph.labels, graph.train, int(graph.train.sum()), w, model
        )

    step, gradients = 1e-6, loss_of(weights)[1]
    assert gradients.keys() == weights.keys()
    for name, w in weights.items():
        for index in np.ndindex(w.shape):
            up, down = w.copy(), w.copy()
            up[index] += step
            down[index] -= step
            slope = (loss_of(weights | {name: up})[0] - loss_of(weights | {name: down})[0]) / (2 * step)
            assert gradients[name][index] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, index)


@pytest.mark.parametrize("multilabel", [False, True])
def test_the_loss_is_torch_s_loss_also_for_huge_logits(multilabel):
    graph = random_graph(3, multilabel=multilabel)
    logits = 300 * np.random.default_rng(4).standard_normal((graph.num_vertices, graph.num_classes))
    loss, delta = dense.loss_and_delta(logits, graph.labels, graph.train, int(graph.train.sum()))
    y = torch.tensor(logits, requires_grad=True)
    rows = torch.tensor(np.flatnonzero(graph.train))
    if multilabel:
        target = torch.tensor(graph.labels, dtype=torch.float64)
        expected = torch.nn.functional.binary_cross_entropy_with_logits(y[rows], target[rows])
    else:
        expected = torch.nn.functional.cross_entropy(
            y[rows], torch.tensor(graph.labels, dtype=torch.int64)[rows]
        )
    expected.backward()
    assert loss == pytest.approx(expected.item())
    np.testing.assert_allclose(delta, y.grad, atol=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.05])
def test_adam_is_torch_s_adam(weight_decay):
    rng = np.random.default_rng(5)
    weights = random_weights(6)
    parameters = {name: torch.nn.Parameter(torch.tensor(w)) for name, w in weights.items()}
    theirs = torch.optim.Adam(parameters.values(), lr=0.02, weight_decay=weight_decay)
    ours = dense.Adam(0.02, weight_decay)
    for _ in range(5):
        gradients = {name: rng.standard_normal(w.shape) for name, w in weights.items()}
        weights = ours.step(weights, gradients)
        for name, p in parameters.items():
            p.grad = torch.tensor(gradients[name])
        theirs.step()
    for name, p in parameters.items():
        np.testing.assert_allclose(weights[name], p.detach(), rtol=1e-12)


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_training_lowers_the_loss_and_reports_the_loss_before_each_update(model):
    graph, weights = random_graph(7), random_weights(8, model)
    kept = {name: w.copy() for name, w in weights.items()}
    history = dense.train(graph, weights, model=model, epochs=60, lr=0.05)
    assert history.losses[-1] < 0.5 * history.losses[0]
    second = dense.train(graph, history.weights_after[0], model=model, epochs=1, lr=0.05)
    assert second.losses[0] == pytest.approx(history.losses[1], rel=1e-12)
    assert all((weights[name] == kept[name]).all() for name in weights)
    assert history.scores["train"] == (history.logits.argmax(1) == graph.labels)[graph.train].mean() > 0.6


def test_scores_by_hand():
    logits = np.array([[1.0, -1.0], [2.0, 3.0], [-1.0, 1.0]])
    mask = np.array([True, True, False])
    assert dense.score(logits, np.array([0, 0, 0]), mask) == 0.5
    # true positives 2 (of 3 predicted, 3 true): F1 = 2 * 2 / 6
    assert dense.score(logits, np.array([[1, 1], [1, 0], [1, 1]]), mask) == pytest.approx(2 / 3)
    assert math.isnan(dense.score(logits, np.array([0, 0, 0]), np.zeros(3, dtype=bool)))


# --- the controls
# -----------------------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    directed=st.booleans(),
    model=st.sampled_from(["gcn", "sage"]),
)
def test_the_controls_are_full_graph_training_on_a_cut_matrix(seed, parts, directed, model):
    graph, weights = random_graph(seed, directed=directed), random_weights(seed, model)
    assignment = random_blocks(seed, graph.num_vertices, parts)
    how = dict(model=model, epochs=4, lr=0.02, weight_decay=0.01)
    exact = dense.train(graph, weights, **how)
    zero, apart = (
        halo.zero_halo(graph, assignment, weights, **how),
        halo.local(graph, assignment, weights, **how),
    )

    # local: full-graph training of the graph without its cut edges (but evaluated on the whole graph)
    cut = dense.train(without_cut_edges(graph, assignment), weights, **how)
    np.testing.assert_allclose(apart.losses, cut.losses, rtol=1e-10)
    for name in weights:
        np.testing.assert_allclose(apart.weights[name], cut.weights[name], rtol=1e-9, atol=1e-12)

    # zero_halo: full-graph training with the blocks off the diagonal of the matrix set to 0
    operator = dense.operator_of(dense.adjacency(graph), model, "symmetric")
    operator = operator * (assignment[:, None] == assignment[None, :])
    w, adam = dense.as_float64(weights), dense.Adam(0.02, 0.01)
    for epoch in range(4):
        x = graph.features.astype(np.float64)
        loss, gradients = dense.loss_and_gradients(operator, x, graph.labels, graph.train, 6, w, model)
        assert zero.losses[epoch] == pytest.approx(loss, rel=1e-10)
        w = adam.step(w, gradients)
    for name in weights:
        np.testing.assert_allclose(zero.weights[name], w[name], rtol=1e-9, atol=1e-12)

    if parts == 1:
        assert_same_run(zero, exact)
        assert_same_run(apart, exact)


def test_the_controls_differ_from_each_other_and_from_the_exact_run():
    graph, weights = random_graph(9), random_weights(10)
    assignment = random_blocks(11, graph.num_vertices, 3)
    runs = [dense.train(graph, weights, epochs=3, lr=0.02)]
    runs += [oracle(graph, assignment, weights, epochs=3, lr=0.02) for oracle in (halo.zero_halo, halo.local)]
    assert differs(runs[0], runs[1]) and differs(runs[0], runs[2]) and differs(runs[1], runs[2])


# --- bytes
# ------------------------------------------------------------------------------------------------------------


def test_vanilla_bytes_by_hand():
    # parts {0, 1}, {2}, {3}; edges 0->2, 1->2, 0->3, 2->0, 2->1, 3->3, 0->1
    edges = sorted([(2, 0), (2, 1), (3, 0), (0, 2), (1, 2), (3, 3), (1, 0)])  # (to, from)
    graph = random_graph(0).replace(
        indptr=np.array([0, 1, 3, 5, 7], dtype=np.int32),
        indices=np.array([u for _, u in edges], dtype=np.int32),
    )
    assignment = np.array([0, 0, 1, 2])
    assert count.halo_rows(graph, assignment).tolist() == [[0, 2, 1], [1, 0, 0], [0, 0, 0]]
    for features, first, layer_0 in [("refetch", False, 4), ("once", True, 4), ("once", False, 0)]:
        got = count.vanilla(graph, assignment, [5, 7, 3], features=features, first=first)
        assert got["rows"]["forward"].tolist() == [layer_0, 4] and got["rows"]["backward"].tolist() == [0, 4]
        assert got["bytes"]["forward"].tolist() == [layer_0 * 20, 4 * 28]
        assert got["bytes"]["backward"].tolist() == [0, 4 * 28]


def test_cagnet_bytes_are_the_printed_formula():
    n, p, (f0, f1, f2) = 14, 3, WIDTHS
    assert sum(b.sum() for b in count.cagnet(n, p, WIDTHS, features="refetch", first=False).values()) == (
        4 * (p - 1) * n * (f0 + 2 * f1 + f2)
    )
    assert sum(b.sum() for b in count.cagnet(n, p, WIDTHS, features="once", first=False).values()) == (
        4 * (p - 1) * n * (f1 + f2)
    )
    deep = count.cagnet(n, p, [5, 4, 6, 3], features="refetch", first=True)
    assert sum(b.sum() for b in deep.values()) == 4 * (p - 1) * n * (5 + 2 * 4 + 2 * 6 + 3)
    assert all(b.sum() == 0 for b in count.cagnet(n, 1, WIDTHS, features="refetch", first=True).values())


@pytest.mark.parametrize("features", ["refetch", "once"])
def test_sancus_bytes_with_every_flag_up_are_cagnet_s_and_one_byte_flags(features):
    graph, weights = random_graph(30), random_weights(31)
    blocks = random_blocks(32, graph.num_vertices, 3)
    run = sancus.train(
        graph, blocks, weights, staleness="epoch_fixed", bound=0, features=features, epochs=2, lr=0.02
    )
    for epoch in range(2):
        got = count.sancus(run.active[epoch], blocks, WIDTHS, features=features)
        expected = count.cagnet(graph.num_vertices, 3, WIDTHS, features=features, first=epoch == 0)
        assert (got["forward"] == expected["forward"]).all() and (
            got["backward"] == expected["backward"]
        ).all()
        assert got["flags"].tolist() == ([6, 6] if features == "refetch" else [0, 6])


def test_sancus_bytes_of_a_skipped_block():
    blocks = np.array([0, 0, 0, 1, 1, 2])
    active = np.array([[False, True, False], [True, False, True]])
    got = count.sancus(active, blocks, [5, 7, 3], features="refetch")
    assert got["forward"].tolist() == [4 * 2 * 2 * 5, 4 * 2 * (3 + 1) * 7]
    assert got["backward"].tolist() == [4 * 2 * 6 * 7, 4 * 2 * 6 * 3]


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), parts=st.integers(1, 4))
def test_halo_exchange_never_moves_more_forward_than_broadcasts(seed, parts):
    graph = random_graph(seed)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    vanilla = count.vanilla(graph, blocks, WIDTHS, features="refetch", first=True)["bytes"]
    cagnet = count.cagnet(graph.num_vertices, parts, WIDTHS, features="refetch", first=True)
    assert (vanilla["forward"] <= cagnet["forward"]).all()
    assert parts > 1 or vanilla["forward"].sum() == 0


def test_all_reduce_bytes_are_those_of_a_ring():
    # each of 4 ranks hands out 3 pieces of 1/4 twice: 6 * 100/4 values of 4 bytes
    assert count.all_reduce(100, 4) == 4 * (6 * 25 * 4)
    assert count.all_reduce(100, 1) == 0
