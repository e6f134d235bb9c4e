"""The oracle of PSC-GCN: Theorem 2, unbiasedness by enumeration, and when p is renewed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, pscgcn
from tests.oracles.samples import DEEP, random_blocks, random_graph, random_weights

SCORES = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=12).map(np.array)
RATES = st.floats(0.01, 1.0)


def drawer(seed: int):
    """Masks drawn edge by edge with the p in force."""
    rng = np.random.default_rng(seed)
    return lambda t, p: rng.random(p.shape) < p


def test_water_filling_by_hand():
    # B = 2 of 4: the score 8 would get 2 * 8/12 > 1, so it gets 1 and the rest share 1 as 1 : 1 : 2
    np.testing.assert_allclose(
        pscgcn.water_filled(np.array([2.0, 1.0, 8.0, 1.0]), 2.0), [0.5, 0.25, 1.0, 0.25]
    )
    # no threshold: importance sampling
    np.testing.assert_allclose(pscgcn.water_filled(np.array([1.0, 3.0]), 0.8), [0.2, 0.6])
    # zeros: nothing as long as the others can take B, else what is left
    np.testing.assert_allclose(pscgcn.water_filled(np.array([0.0, 1.0, 0.0, 3.0]), 1.0), [0, 0.25, 0, 0.75])
    np.testing.assert_allclose(pscgcn.water_filled(np.array([0.0, 1.0, 0.0, 3.0]), 3.0), [0.5, 1, 0.5, 1])
    np.testing.assert_allclose(pscgcn.water_filled(np.zeros(5), 1.5), np.full(5, 0.3))


@given(scores=SCORES, rate=RATES, seed=st.integers(0, 10**6), step=st.floats(0.01, 0.99))
def test_no_other_probabilities_have_a_lower_variance(scores, rate, seed, step):
    scores, budget = scores + 1e-3, rate * len(scores)
    p = pscgcn.water_filled(scores, budget)
    variance = lambda p: ((1 / p - 1) * scores**2).sum()
    uniform = np.full(len(scores), rate)
    other = pscgcn.water_filled(np.random.default_rng(seed).random(len(scores)) + 0.01, budget)
    for feasible in (uniform, other, (1 - step) * p + step * uniform, (1 - step) * p + step * other):
        assert variance(p) <= variance(feasible) * (1 + 1e-9)


def test_scores_by_hand():
    h = [np.array([[3.0, 4.0], [0.0, 1.0]]), np.array([[2.0], [0.0]])]
    weights = {"layers.0.weight": np.eye(2), "layers.1.weight": np.array([[6.0]])}
    matrix = np.array([[0.5, 0.25], [2.0, 0.5]])
    got = pscgcn.scores_of(matrix, np.array([0, 1]), h, weights, "variance", 4.0, 1.0)
    np.testing.assert_allclose(got, [[2 * 0.5 * 13, 0.25 * 1], [2 * 13, 2 * 0.5 * 1]])  # √(25 + 144) = 13
    h = [h[0], np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[11.0], [0.0]])]
    got = pscgcn.scores_of(matrix, np.array([0, 0]), h, weights, "code", 4.0, 1.0)
    np.testing.assert_allclose(got, [[8, 0], [8, 0]])  # √(4 (5 + 11)); the features have no part in it
    got = pscgcn.scores_of(matrix, np.array([0, 1]), h, weights, "code", 1.1, 1.0)
    np.testing.assert_allclose(got, [[(1.1 * 16) ** 0.5, 0], [4, 0]])


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), rate=st.floats(0.2, 0.9))
def test_the_rescaled_sum_is_unbiased_with_the_variance_of_equation_16(seed, rate):
    rng = np.random.default_rng(seed)
    edges = np.zeros((6, 6), bool)
    edges[0, 1:] = True
    matrix, h = rng.random((6, 6)), rng.standard_normal((6, 3))
    y = matrix[0, 1:] * np.linalg.norm(h[1:], axis=1)
    p = np.zeros((6, 6))
    p[0, 1:] = pscgcn.water_filled(y, 5 * rate)
    exact = matrix[0] @ h
    mean, variance, total, covered = 0.0, 0.0, 0.0, 0.0
    for kept in product([False, True], repeat=5):
        mask = np.zeros((6, 6), bool)
        mask[0, 1:] = kept
        chance = np.where(kept, p[0, 1:], 1 - p[0, 1:]).prod()
        z = pscgcn.sampled_operator(matrix, edges, mask, p, "inverse")[0] @ h
        mean, total = mean + chance * z, total + chance
        variance += chance * ((z - exact) ** 2).sum()
        needed = pscgcn.boundary(mask, np.array([0, 0, 0, 1, 1, 1]))[0]
        covered = covered + chance * needed
    assert total == pytest.approx(1)
    np.testing.assert_allclose(mean, exact, rtol=1e-10)
    assert variance == pytest.approx(((1 / p[0, 1:] - 1) * y**2).sum(), rel=1e-8, abs=1e-12)
    np.testing.assert_allclose(covered, pscgcn.inclusion(p, np.array([0, 0, 0, 1, 1, 1]))[0], atol=1e-12)


def test_sampling_without_staleness_is_full_graph_training_on_the_sampled_matrix():
    graph, weights = random_graph(3), random_weights(4, widths=DEEP)
    blocks, how = random_blocks(5, graph.num_vertices, 3), dict(rate=0.5, tau=0, lr=0.02)
    run = pscgcn.train(graph, blocks, weights, drawer(6), refresh=1, epochs=4, features="refetch", **how)
    a = dense.adjacency(graph)
    matrix, start = dense.gcn_operator(a, "symmetric"), weights
    for t in range(4):
        operator = pscgcn.sampled_operator(matrix, a > 0, run.masks[t], run.probabilities[t], "inverse")
        data = (graph.features.astype(float), graph.labels, graph.train, 6, start, "gcn")
        loss, gradients = dense.loss_and_gradients(operator, *data)
        assert run.losses[t] == pytest.approx(loss, rel=1e-10)
        for name in weights:
            np.testing.assert_allclose(run.gradients[t][name], gradients[name], rtol=1e-9, atol=1e-12)
        start = run.weights_after[t]


@pytest.mark.parametrize("tau", [0, 2])
def test_p_is_renewed_every_r_epochs_and_weighs_edges_tau_epochs_later(tau):
    graph, weights = random_graph(7), random_weights(8, widths=DEEP)
    blocks, edges = random_blocks(9, graph.num_vertices, 3), dense.adjacency(graph) > 0
    run = pscgcn.train(graph, blocks, weights, drawer(1), rate=0.5, tau=tau, refresh=3, epochs=9, lr=0.05)
    assert (run.probabilities[0] == 0.5 * edges).all()
    changed = [t for t in range(1, 9) if (run.probabilities[t] != run.probabilities[t - 1]).any()]
    assert changed == ([3, 6] if tau == 0 else [5, 8])
    # by definition, from the rows and the weights of the epoch before
    matrix = dense.gcn_operator(dense.adjacency(graph), "symmetric")
    scores = pscgcn.scores_of(matrix, blocks, run.inputs[2], run.weights_after[1], "variance", 1.1, 1.0)
    np.testing.assert_allclose(
        run.probabilities[3 + tau], pscgcn.probabilities(edges, scores, 0.5), rtol=1e-12
    )
