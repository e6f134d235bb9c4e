"""The oracle of PSC-GCN: Theorem 2, unbiasedness by enumeration, autograd, and the cache by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, pscgcn
from tests.oracles.samples import (
    DEEP,
    assert_gradients_alike,
    assert_same_run,
    random_blocks,
    random_graph,
    random_weights,
)

MODELS = st.sampled_from(["gcn", "sage"])
SCORES = st.lists(st.one_of(st.just(0.0), st.floats(1e-3, 1e3)), min_size=1, max_size=12).map(np.array)
RATES = st.floats(0.01, 1.0)


def drawer(seed: int):
    """Masks drawn edge by edge with the p in force."""
    rng = np.random.default_rng(seed)
    return lambda t, p: rng.random(p.shape) < p


# --- Theorem 2
# --------------------------------------------------------------------------------------------------------


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


# --- the estimate
# -----------------------------------------------------------------------------------------------------


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


def test_selfnorm_keeps_the_mean_a_mean_and_leaves_the_diagonal():
    graph = random_graph(1)
    a = dense.adjacency(graph)
    mask = np.random.default_rng(2).random(a.shape) < 0.6 * a
    mean = pscgcn.sampled_operator(dense.mean_operator(a), a > 0, mask, None, "selfnorm")
    np.testing.assert_allclose(mean, dense.mean_operator(mask.astype(float)), atol=1e-15)
    gcn = dense.gcn_operator(a, "symmetric")
    np.testing.assert_allclose(pscgcn.sampled_operator(gcn, a > 0, a > 0, None, "selfnorm"), gcn, rtol=1e-15)
    assert (np.diag(pscgcn.sampled_operator(gcn, a > 0, mask, None, "selfnorm")) == np.diag(gcn)).all()


# --- Algorithm 1
# ------------------------------------------------------------------------------------------------------


def replay_in_torch(graph, assignment, weights, run, *, tau, gradients, features, model, rescale):
    """Losses and gradients by autograd, every part with leaves of its own for the boundary rows it reads."""
    a = dense.adjacency(graph)
    exact = dense.operator_of(a, model, "symmetric")
    rows, labels = torch.tensor(np.flatnonzero(graph.train)), torch.tensor(graph.labels, dtype=torch.int64)
    layers, epochs, parts = dense.num_layers(weights), len(run.losses), range(int(assignment.max()) + 1)
    seen, late, losses, slopes = [], [], [], []
    for t in range(epochs):
        mask, p = run.masks[t], run.probabilities[t]
        operator = np.diag(np.diag(exact)).copy()
        for i, j in zip(*np.nonzero(mask)):
            operator[i, j] = (
                exact[i, j] / p[i, j] if rescale == "inverse" else exact[i, j] * a[i].sum() / mask[i].sum()
            )
        start = weights if t == 0 else run.weights_after[t - 1]
        w = {name: torch.tensor(value, requires_grad=True) for name, value in start.items()}
        h, extra = torch.tensor(graph.features, dtype=torch.float64), 0.0
        seen.append([])
        leaves = [[] for _ in parts]
        for l in range(layers):
            seen[-1].append(h.detach())
            if l > 0 and t >= tau:
                extra = extra + (h * late[t - tau][l]).sum()
            pieces, weighed = [], operator
            for n in parts:
                if l == 0 and features == "once":
                    old, weighed = h.detach(), exact
                else:
                    old = seen[t - tau][l] if t >= tau else torch.zeros_like(h)
                leaves[n].append(old.clone().requires_grad_())
                mine = torch.tensor(assignment == n)
                pieces.append(
                    torch.tensor(weighed[assignment == n]) @ torch.where(mine[:, None], h, leaves[n][l])
                )
            back = np.argsort(np.concatenate([np.flatnonzero(assignment == n) for n in parts]))
            z = torch.cat(pieces)[torch.tensor(back)] @ w[f"layers.{l}.weight"] + w[f"layers.{l}.bias"]
            z = z + (h @ w[f"layers.{l}.root"] if model == "sage" else 0.0)
            h = torch.relu(z) if l + 1 < layers else z
        loss = torch.nn.functional.cross_entropy(h[rows], labels[rows])
        (loss + extra).backward()
        late.append([0.0] * layers)
        for l, n in product(range(1, layers), parts):
            grad = leaves[n][l].grad.clone()
            if gradients == "sampled" and t + tau < epochs:
                asked = {j for i, j in zip(*np.nonzero(run.masks[t + tau])) if assignment[i] == n}
                grad[[j for j in range(len(grad)) if j not in asked]] = 0.0
            late[-1][l] = late[-1][l] + grad
        losses.append(loss.item())
        slopes.append({name: value.grad.numpy() for name, value in w.items()})
    return losses, slopes


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(2, 3),
    tau=st.integers(1, 2),
    gradients=st.sampled_from(["tg", "sampled"]),
    features=st.sampled_from(["once", "refetch"]),
    rescale=st.sampled_from(["inverse", "selfnorm"]),
    policy=st.sampled_from(["variance", "code", "uniform"]),
    model=MODELS,
)
def test_sampled_stale_epochs_agree_with_autograd(
    seed, parts, tau, gradients, features, rescale, policy, model
):
    graph, weights = random_graph(seed), random_weights(seed, model, widths=DEEP)
    blocks = random_blocks(seed, graph.num_vertices, parts)
    knobs = dict(tau=tau, gradients=gradients, features=features, rescale=rescale, model=model)
    run = pscgcn.train(
        graph, blocks, weights, drawer(seed), rate=0.6, policy=policy, refresh=2, epochs=5, lr=0.05, **knobs
    )
    losses, slopes = replay_in_torch(graph, blocks, weights, run, **knobs)
    assert_gradients_alike(run, losses, slopes, rtol=1e-7, atol=1e-11)
    again = pscgcn.train(
        graph, blocks, weights, run.masks, rate=0.6, policy=policy, refresh=2, epochs=5, lr=0.05, **knobs
    )
    assert_same_run(again, run, rtol=0)


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
    listed = pscgcn.train(
        graph, blocks, weights, drawer(1), rate=0.5, tau=tau, refresh={3, 6}, epochs=9, lr=0.05
    )
    assert_same_run(listed, run, rtol=0)


# --- the cache
# --------------------------------------------------------------------------------------------------------


def test_boundary_inclusion_top_k_and_hits_by_hand():
    blocks = np.array([0, 0, 1, 1])
    p = np.array([[0, 0.5, 0.5, 0.2], [0, 0, 0.5, 0], [0, 1, 0, 0.3], [0, 0, 0, 0]])
    assert pscgcn.boundary(p > 0, blocks).tolist() == [
        [False, False, True, True],
        [False, True, False, False],
    ]
    np.testing.assert_allclose(pscgcn.inclusion(p, blocks), [[0, 0, 0.75, 0.2], [0, 1, 0, 0]])
    row, candidates = pscgcn.inclusion(p, blocks)[0], pscgcn.boundary(p > 0, blocks)[0]
    assert np.flatnonzero(pscgcn.top_k(row, candidates, 1)).tolist() == [2]
    assert np.flatnonzero(pscgcn.top_k(row, candidates, 9)).tolist() == [2, 3]
    ties = pscgcn.top_k(np.array([7.0, 3.0, 5.0, 5.0, 3.0]), np.array([False, True, True, True, True]), 3)
    assert np.flatnonzero(ties).tolist() == [1, 2, 3]
    asked = pscgcn.boundary(
        np.array([[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=bool), blocks
    )
    assert asked.tolist() == [[False, False, False, True], [False, True, False, False]]
