"""The oracle of SANCUS^q against that of SANCUS, and by hand in one layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import adaqp, dense, sancus, sanqus
from tests.oracles.samples import (
    OPERATORS,
    assert_same_run,
    differs,
    random_blocks,
    random_graph,
    random_weights,
)

FINE = 48  # bits without an error that shows
CASES = {
    "seed": st.integers(0, 10**6),
    "parts": st.integers(1, 4),
    "operator": st.sampled_from(OPERATORS),
    "rule": st.sampled_from([("epoch_fixed", 2), ("epoch_adaptive", 1), ("variation_gap", 0.05)]),
    "features": st.sampled_from(["once", "kept", "refetch"]),
    "clip": st.sampled_from([np.inf, 0.05]),
}


def draw(epoch, layer, direction, sender, shape):
    return np.random.default_rng([epoch, layer, direction == "backward", sender]).random(shape)


def case(seed=3, parts=3, operator=OPERATORS[0], rule=("epoch_fixed", 1), features="once", clip=np.inf):
    """Graph, assignment and weights; and what both oracles take by name."""
    graph = random_graph(seed)
    how = dict(model=operator[0], normalisation=operator[1], epochs=5, lr=0.02, weight_decay=0.01)
    how |= dict(staleness=rule[0], bound=rule[1], features=features, clip=clip)
    blocks, weights = random_blocks(seed, graph.num_vertices, parts), random_weights(seed, operator[0])
    return (graph, blocks, weights), how


@settings(max_examples=8)
@given(**CASES)
def test_with_32_bits_it_is_sancus(**drawn):
    data, how = case(**drawn)
    run, want = sanqus.train(*data, draw, bits=32, **how), sancus.train(*data, **how)
    assert_same_run(run, want, rtol=0)
    np.testing.assert_array_equal(run.active, want.active)


@settings(max_examples=8)
@given(gradients=st.sampled_from(["coded", "exact"]), **CASES)
def test_with_fine_rows_it_nearly_is_sancus(gradients, **drawn):
    data, how = case(**drawn)
    run = sanqus.train(*data, draw, bits=FINE, gradients=gradients, **how)
    assert_same_run(run, sancus.train(*data, **how), rtol=1e-8)


@pytest.mark.parametrize("gradients", ["coded", "exact"])
def test_one_layer_by_hand_codes_what_others_read_after_clipping(gradients):
    (graph, blocks, _), how = case(features="refetch", clip=1e-2)
    weights, x = random_weights(3, widths=[5, 3]), graph.features.astype(np.float64)
    operator, own = dense.gcn_operator(dense.adjacency(graph), "symmetric"), blocks[:, None] == blocks

    def coded(rows, direction):
        read = rows.copy()
        for j in range(3):
            block = rows[blocks == j]
            u = draw(0, 0, direction, j, block.shape)
            read[blocks == j] = adaqp.quantised(block, np.full(len(block), 2), u)
        return read

    read = (operator * own) @ x + (operator * ~own) @ coded(x, "forward")
    logits = read @ weights["layers.0.weight"] + weights["layers.0.bias"]
    loss, delta = dense.loss_and_delta(logits, graph.labels, graph.train, int(graph.train.sum()))
    for j in range(3):
        delta[blocks == j] = sancus.clipped(delta[blocks == j], 1e-2 * np.sqrt(3))
    sent = coded(delta, "backward") if gradients == "coded" else delta
    run = sanqus.train(graph, blocks, weights, draw, bits=2, gradients=gradients, **how | {"epochs": 1})
    g = (operator * own).T @ delta + (operator * ~own).T @ sent
    np.testing.assert_allclose(run.losses, [loss], rtol=1e-12)
    np.testing.assert_allclose(run.gradients[0]["layers.0.weight"], x.T @ g, atol=1e-14)
    np.testing.assert_allclose(run.gradients[0]["layers.0.bias"], delta.sum(axis=0), atol=1e-14)


@pytest.mark.parametrize("bits, broadcasts", [(2, True), (8, False)])
def test_a_variation_gap_is_that_to_the_decoded_copy(bits, broadcasts):
    """Features never change, but what two bits lose of them exceeds a bound of a tenth."""
    data, how = case(rule=("variation_gap", 0.1), features="refetch")
    active = np.array(sanqus.train(*data, draw, bits=bits, **how).active)
    assert active[0].all() and (active[1:, 0] == broadcasts).all()


def test_every_knob_changes_the_run():
    data, how = case()
    knobs = [dict(bits=4), dict(bits=2), dict(bits=32), dict(bits=4, gradients="exact")]
    knobs += [dict(bits=4, features=features) for features in ("kept", "refetch")]
    runs = [sanqus.train(*data, draw, **how | k) for k in knobs]
    for i, one in enumerate(runs):
        assert all(differs(one, other) for other in runs[:i]), knobs[i]
