"""The oracle of EC-Graph against full-graph training; its codes, predictions and choices by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles import bytes as count
from tests.oracles import dense, ecgraph
from tests.oracles.samples import CASES, DEEP, assert_same_run, case


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
