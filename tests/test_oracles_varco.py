"""The oracle of VARCO against full-graph training and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from systems.varco import Varco
from tests.oracles import varco
from tests.oracles.samples import DEEP, random_blocks, random_graph, random_weights


def columns(epoch, layer, width, count):
    return np.sort(np.random.default_rng([epoch, layer]).permutation(width)[:count])


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


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 128), st.integers(0, 8), st.data())
def test_the_system_keeps_as_many(width, epochs, compression, slope, data):
    system = Varco(compression=float(compression), slope=float(slope))
    system.epochs, system.epoch = epochs, data.draw(st.integers(0, epochs - 1))
    assert system.count(width) == varco.kept(width, system.epoch, epochs, compression, slope)
