"""The oracle of VARCO against full-graph training and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import dense, varco
from tests.oracles.samples import (
    OPERATORS,
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)

DEEP = [5, 4, 4, 3]


def columns(epoch, layer, width, count):
    return np.sort(np.random.default_rng([epoch, layer]).permutation(width)[:count])


@settings(max_examples=10)
@given(
    seed=st.integers(0, 10**6),
    parts=st.integers(1, 4),
    operator=st.sampled_from(OPERATORS),
    rescale=st.booleans(),
    features=st.sampled_from(["once", "refetch"]),
)
def test_without_compression_or_without_peers_it_is_full_graph_training(
    seed, parts, operator, rescale, features
):
    graph, weights = random_graph(seed), random_weights(seed, operator[0], widths=DEEP)
    blocks, how = random_blocks(seed, graph.num_vertices, parts), dict(epochs=5, lr=0.02, weight_decay=0.01)
    how |= dict(model=operator[0], normalisation=operator[1])
    exact, knobs = dense.train(graph, weights, **how), dict(rescale=rescale, features=features)
    assert_same_run(varco.train(graph, blocks, weights, columns, compression=1, **knobs, **how), exact)
    assert_same_run(varco.train(graph, 0 * blocks, weights, columns, **knobs, **how), exact)


@pytest.mark.parametrize("rescale, model", [(False, "gcn"), (True, "sage")])
def test_gradients_are_finite_differences(rescale, model):
    graph, weights = random_graph(1), random_weights(2, model, widths=DEEP)
    blocks = random_blocks(3, graph.num_vertices, 3)

    def first_epoch(w):
        how = dict(compression=2, rescale=rescale, features="refetch", model=model, epochs=1, lr=0.0)
        history = varco.train(graph, blocks, w, columns, **how)
        return history.losses[0], history.gradients[0]

    step, gradients = 1e-6, first_epoch(weights)[1]
    assert gradients.keys() == weights.keys()
    for name, w in weights.items():
        for index in np.ndindex(w.shape):
            up, down = w.copy(), w.copy()
            up[index] += step
            down[index] -= step
            slope = (first_epoch(weights | {name: up})[0] - first_epoch(weights | {name: down})[0]) / (
                2 * step
            )
            assert gradients[name][index] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, index)


def test_the_columns_kept_by_hand():
    # r_t = 4 - 6 t / 6
    assert [varco.kept(6, t, 6, 4, 2) for t in range(6)] == [2, 2, 3, 6, 6, 6]
    # r_t = 128 - 635 t / 10: the paper's, in ten epochs
    assert [varco.kept(256, t, 10, 128, 5) for t in range(4)] == [2, 4, 256, 256]


def test_every_knob_changes_the_run():
    graph, weights = random_graph(3), random_weights(4, widths=DEEP)
    blocks, how = random_blocks(5, graph.num_vertices, 3), dict(epochs=6, lr=0.05)
    knobs = [dict(compression=1), dict(compression=2), {}, dict(slope=1), dict(rescale=True)]
    knobs.append(dict(features="refetch"))
    runs = [varco.train(graph, blocks, weights, columns, **k, **how) for k in knobs]
    for i, one in enumerate(runs):
        assert all(differs(one, other) for other in runs[:i]), knobs[i]
