"""The oracle of SANCUS^q against that of SANCUS, and by hand in one layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import adaqp, dense, sancus, sanqus
from tests.oracles.samples import CASES, OPERATORS, assert_same_run, case, draw, random_weights

RULES = [("epoch_fixed", 2), ("epoch_adaptive", 1), ("variation_gap", 0.05)]


def of_rule(seed=3, parts=3, operator=OPERATORS[0], rule=("epoch_fixed", 1), features="once", clip=np.inf):
    """A case, and what both oracles take by name."""
    return case(seed, parts, operator, staleness=rule[0], bound=rule[1], features=features, clip=clip)


@settings(max_examples=8)
@given(rule=st.sampled_from(RULES), clip=st.sampled_from([np.inf, 0.05]), **CASES)
def test_with_32_bits_it_is_sancus(**drawn):
    data, how = of_rule(**drawn)
    run, want = sanqus.train(*data, draw, bits=32, **how), sancus.train(*data, **how)
    assert_same_run(run, want, rtol=0)
    np.testing.assert_array_equal(run.active, want.active)


@pytest.mark.parametrize("gradients", ["coded", "exact"])
def test_one_layer_by_hand_codes_what_others_read_after_clipping(gradients):
    (graph, blocks, _), how = of_rule(features="refetch", clip=1e-2)
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
    data, how = of_rule(rule=("variation_gap", 0.1), features="refetch")
    active = np.array(sanqus.train(*data, draw, bits=bits, **how).active)
    assert active[0].all() and (active[1:, 0] == broadcasts).all()
