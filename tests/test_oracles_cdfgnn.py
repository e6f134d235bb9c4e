"""The CDFGNN and SkipG oracles held to full-batch training where they are exact, and CDFGNN's to (6), (22)
and its invariant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.oracles import cdfgnn, dense, skipg
from tests.oracles.samples import (
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)

HOW = {"epochs": 5, "lr": 0.02, "weight_decay": 5e-4}


@dataclass
class Edges:
    low: np.ndarray
    high: np.ndarray
    owner: np.ndarray
    parts: int


def random_edges(seed: int, graph, parts: int) -> tuple[Edges, np.ndarray]:
    """Every undirected edge at a random worker, and every vertex's master one of its replicas."""
    rng, a = np.random.default_rng(seed), dense.adjacency(graph)
    low, high = np.nonzero(np.triu((a + a.T) > 0))
    owner = rng.integers(0, parts, len(low))
    holders = [np.unique(owner[(low == v) | (high == v)]) for v in range(graph.num_vertices)]
    master = np.array([rng.choice(h) if len(h) else rng.integers(parts) for h in holders])
    return Edges(low, high, owner, parts), master


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("features", ["refetch", "once"])
@pytest.mark.parametrize("directed", [True, False])
def test_exact_settings_are_full_batch_training(model, features, directed):
    graph, weights = random_graph(3, directed=directed), random_weights(4, model)
    edges, master = random_edges(5, graph, 3)
    want = dense.train(graph, weights, model=model, **HOW)
    exact = {"quantise": False, "features": features, "model": model, **HOW}
    assert_same_run(cdfgnn.train(graph, edges, master, weights, cache=False, **exact), want)
    assert_same_run(cdfgnn.train(graph, edges, master, weights, epsilon=0.0, nu1=0.0, nu2=0.0, **exact), want)
    assert differs(cdfgnn.train(graph, edges, master, weights, epsilon=0.2, **exact), want)
    blocks = random_blocks(6, graph.num_vertices, 3)
    assert_same_run(skipg.train(graph, blocks, weights, bound=0, features=features, model=model, **HOW), want)
    assert differs(skipg.train(graph, blocks, weights, bound=1, features=features, model=model, **HOW), want)


@pytest.mark.parametrize("scatter", ["value", "diff", "fp32"])
def test_the_masters_sum_is_that_of_the_cached_parts(scatter):
    graph, weights = random_graph(13), random_weights(14)
    edges, master = random_edges(15, graph, 4)
    run = cdfgnn.train(
        graph, edges, master, weights, scatter=scatter, bits=4, epsilon=0.1, **{**HOW, "epochs": 12}
    )
    for parts, total in zip(run.parts, run.total):
        for key in total:
            np.testing.assert_allclose(total[key], parts[key].sum(axis=0), atol=1e-12)


def test_quantisation_by_hand():
    rows = np.array([[0.0, 1.0, 2.0, 3.0], [-1.0, 0.4, 0.5, 2.0], [7.0, 7.0, 7.0, 7.0]])
    np.testing.assert_allclose(cdfgnn.quantised(rows, 2), [[0, 1, 2, 3], [-1, 0, 1, 2], [7, 7, 7, 7]])
    random = np.random.default_rng(0).standard_normal((50, 6))
    step = (random.max(axis=1) - random.min(axis=1)) / 255
    assert (np.abs(cdfgnn.quantised(random, 8) - random).max(axis=1) <= step / 2 + 1e-15).all()


def test_the_threshold_by_hand():
    knobs = {"xi": 0.01, "mu1": 0.001, "mu2": 0.02, "nu1": 0.3, "nu2": 0.001, "lambda1": 1.05, "lambda2": 0.9}
    for epsilon, acc, prose, literal in [
        (0.1, 0.4, 0.09, 0.105),
        (0.1, 0.6, 0.105, 0.09),
        (0.1, 0.51, 0.1, 0.1),
        (0.29, 0.4, 0.28, 0.3),
        (0.295, 0.6, 0.3, 0.285),
        (0.001, 0.4, 0.001, 0.00105),
        (0.001, 0.6, 0.00105, 0.001),
    ]:
        assert cdfgnn.next_epsilon(epsilon, acc, 0.5, "prose", **knobs) == pytest.approx(prose)
        assert cdfgnn.next_epsilon(epsilon, acc, 0.5, "literal", **knobs) == pytest.approx(literal)
