"""The oracle of EC-Graph against full-graph training; its prediction, its tuner, what a code loses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import bytes as count
from tests.oracles import dense, ecgraph
from tests.oracles.samples import CASES, DEEP, OPERATORS, assert_same_run, case


@settings(max_examples=8)
@given(rows=st.sampled_from(["all", "needed"]), **CASES)
def test_with_a_period_of_one_and_exact_gradients_it_is_full_graph_training(
    seed, parts, operator, features, rows
):
    data, how = case(seed, parts, operator)
    run = ecgraph.train(*data, period=1, backward_bits=32, features=features, rows=rows, **how)
    assert_same_run(run, dense.train(data[0], data[2], **how))
    for epoch, sent in enumerate(run.sent if rows == "all" else []):
        want = count.vanilla(*data[:2], DEEP, features=features, first=epoch == 0)["bytes"]
        assert sent == {(l, way): want[way][l] for l in range(3) for way in want}


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_a_gradient_reaches_the_weights_in_the_end(model):
    """With weights that never change, rows are predicted exactly, and coded gradients differ from the exact
    one by what the last code lost: their mean tends to it."""
    data, how = case(2, 3, (model, "symmetric"))
    how |= dict(lr=0.0, epochs=200)
    run = ecgraph.train(*data, backward_bits=1, **how)
    exact = dense.train(data[0], data[2], **how | {"epochs": 1})
    np.testing.assert_allclose(run.losses, exact.losses * 200, rtol=1e-10)
    for name, want in exact.gradients[0].items():
        mean = np.mean([each[name] for each in run.gradients], axis=0)
        np.testing.assert_allclose(mean, want, atol=5e-3)
    assert not np.allclose(run.gradients[0]["layers.0.weight"], exact.gradients[0]["layers.0.weight"])


def test_middles_of_buckets_by_hand():
    x = np.array([[0.0, 1.0, 2.5], [3.0, 3.9, 4.0]])
    np.testing.assert_array_equal(ecgraph.middle(x, 2), [[0.5, 1.5, 2.5], [3.5, 3.5, 3.5]])
    np.testing.assert_array_equal(ecgraph.middle(x, 1), [[1, 1, 3], [3, 3, 3]])
    np.testing.assert_array_equal(ecgraph.middle(np.full((2, 2), 0.3), 2), 0.3)


def test_rows_that_grow_evenly_are_predicted_from_their_first_rate():
    rng = np.random.default_rng(1)
    start, rate = rng.random((2, 5, 3))
    pair = ecgraph.Forward(period=4, bits=2, tune=False, rate="sent")
    sent = [pair.sent(t, start + t * rate) for t in range(8)]
    for t in (0, 3, 4, 5, 6, 7):
        np.testing.assert_allclose(sent[t][0], start + t * rate, rtol=1e-12)
    exact, predicted = 4 * 15, 2 + 8
    assert [size for _, size in sent][3:] == [2 * exact] + [predicted] * 3 + [2 * exact]
    assert sent[0][1] == exact
    for t in (1, 2):  # no rate is known: no row is predicted
        assert sent[t][1] > predicted and not np.allclose(sent[t][0], start + t * rate)
    # Later rates are of T epochs and divided by T - 1.
    np.testing.assert_allclose(pair.d, rate * 4 / 3)


def test_each_row_takes_the_nearest_of_code_prediction_and_their_mean():
    pair = ecgraph.Forward(period=100, bits=1, tune=False, rate="sent")
    pair.sent(0, np.array([[0.0, 0.0], [0.9, 3.0], [0.0, 2.0], [9.0, 9.0]]))
    h = np.array([[0.0, 0.1], [0.0, 4.0], [0.6, 2.4], [1.0, 1.0]])  # codes 1 and 3
    want = [[0.0, 0.0], [0.9, 3.0], [0.5, 2.5], [1.0, 1.0]]  # prediction twice, mean, code
    got, size = pair.sent(1, h)
    np.testing.assert_allclose(got, want)
    assert size == 1 + 1 + 8  # 2 rows of 2 bits, 4 selectors, two numbers


def test_bits_follow_the_share_of_rows_that_are_coded():
    def bits(coded, first, tune=True):
        """After a message in which `coded` of 10 rows are not what they were."""
        h = np.random.default_rng(0).random((10, 3))
        pair = ecgraph.Forward(period=100, bits=first, tune=tune, rate="sent")
        pair.sent(0, h)
        pair.sent(1, np.where(np.arange(10)[:, None] < coded, 5 + h, h))
        return pair.bits

    assert [bits(n, 2) for n in (4, 5, 8, 9)] == [4, 2, 2, 1]
    assert [bits(0, 8), bits(9, 1), bits(0, 2, tune=False)] == [8, 1, 2]


def test_two_knobs_change_the_bytes_alone():
    """How a rate comes to the reader; and that features, which never change, are asked for again."""
    data, how = case(3, 3, OPERATORS[0])
    run, computed, refetch = (
        ecgraph.train(*data, period=3, **how | knob)
        for knob in ({}, dict(rate="computed"), dict(features="refetch"))
    )
    assert run.losses == computed.losses == refetch.losses
    exact = {l: run.sent[0][l, "forward"] for l in range(3)}
    assert (run.sent[2][1, "forward"], computed.sent[2][1, "forward"]) == (2 * exact[1], exact[1])
    assert refetch.sent[2][0, "forward"] == 2 * exact[0] > refetch.sent[1][0, "forward"] > 0
    assert run.sent[1][0, "forward"] == run.sent[2][0, "forward"] == 0
