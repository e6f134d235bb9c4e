"""The oracles of full-graph training, the controls and the bytes: against torch, and by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import bytes as count
from tests.oracles import dense, halo
from tests.oracles.samples import (
    assert_same_run,
    random_blocks,
    random_graph,
    random_weights,
    without_cut_edges,
)


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

    # zero_halo: the blocks off the diagonal of the matrix are 0
    operator = dense.operator_of(dense.adjacency(graph), model, "symmetric")
    operator = operator * (assignment[:, None] == assignment[None, :])
    x, train = graph.features.astype(np.float64), graph.train
    loss, gradients = dense.loss_and_gradients(operator, x, graph.labels, train, 6, weights, model)
    for name, want in gradients.items():
        np.testing.assert_allclose(zero.gradients[0][name], want, rtol=1e-8, atol=1e-12, err_msg=name)
    assert zero.losses[0] == pytest.approx(loss, rel=1e-10)

    if parts == 1:
        assert_same_run(zero, exact)
        assert_same_run(apart, exact)


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


def test_all_reduce_bytes_are_those_of_a_ring():
    # each of 4 ranks hands out 3 pieces of 1/4 twice: 6 * 100/4 values of 4 bytes
    assert count.all_reduce(100, 4) == 4 * (6 * 25 * 4)
    assert count.all_reduce(100, 1) == 0
