"""EC-Graph: its buckets, its choices and its tuner; its oracle by hand."""

from unittest.mock import MagicMock

import numba
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core.kernels import quantise_loops as loops
from harness.run.config import make_system
from systems.ecgraph import (
    Prediction,
    chosen,
    coded,
    compensated,
    fill,
    message,
    message_bytes,
    middles,
    nearest,
    parted,
    read_middles,
)
from tests import systems
from tests.oracles import ecgraph
from tests.test_supergnn import ROWS

BITS = st.sampled_from([1, 2, 4, 8])


@given(rows=ROWS, bits=BITS)
def test_the_middle_of_a_bucket_is_at_most_half_a_bucket_away_and_travels_as_codes(rows, bits):
    x = torch.from_numpy(rows)
    codes, ends = coded(x, bits)
    got = middles(codes, ends, bits)
    half = (x.max() - x.min()) / 2**bits / 2
    assert ((got - x).abs() <= half * (1 + 1e-9) + 1e-12 * x.abs().max()).all()
    wire = message(codes, bits, ends)
    assert len(wire) == message_bytes(x.numel(), bits, 8) == -(-x.numel() * bits // 8) + 16
    told, sent = parted(wire, x.numel(), bits, x.dtype)
    assert torch.equal(told.view(x.shape), codes) and torch.equal(sent, ends)


def test_equal_values_are_their_own_middle_and_equals_are_coded():
    x = torch.full((3, 2), 0.1)
    codes, ends = coded(x, 2)
    c = middles(codes, ends, 2)
    assert torch.equal(c, x)
    assert nearest(x, x, c).tolist() == chosen(x, Prediction(x, x, 0), 2)[0].tolist() == [0, 0, 0]
    c = torch.tensor([[0.1, 0.1], [0.3, 0.3], [0.0, 0.0]])
    assert nearest(x, torch.full_like(x, 0.2), c).tolist() == [0, 1, 2]


@given(rows=ROWS, bits=BITS, away=st.floats(-9, 9), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_compiled_loops_choose_what_is_nearest_and_give_what_torch_operations_do(rows, bits, away, dtype):
    x = torch.from_numpy(rows).to(dtype)
    rate = torch.linspace(-1, 1, x.numel(), dtype=dtype).view_as(x) * away
    prediction = Prediction(x, rate.contiguous(), 3)
    p = prediction.rows()
    codes, ends = coded(x, bits)
    c = middles(codes, ends, bits)
    choices, got, wire, count = chosen(x, prediction, bits)
    ways = torch.stack([c, p, (c + p) / 2])
    errors = (ways - x).abs().sum(2)
    row = torch.arange(len(x))
    assert torch.equal(got, ends) and count == (choices != 1).sum()
    slack = 1e-5 if dtype == torch.float32 else 1e-12
    assert (errors[choices.long(), row] <= errors.amin(0) + slack * (x.abs() + p.abs()).sum(1)).all()
    h = torch.empty_like(x)
    fill(h, prediction, wire, choices, ends, bits)
    assert torch.equal(h, ways[choices.long(), row])

    left = x.clone()
    wire = compensated(left, bits)
    assert torch.equal(wire, message(codes, bits, ends)) and torch.equal(left, x - c)
    read_middles(h, wire, bits)
    assert torch.equal(h, c)


def test_what_an_exact_first_epoch_does_not_call_is_compiled_before_it(monkeypatch):
    seen: dict[str, set] = {}

    def spied(name):
        real, types = getattr(loops, name), seen.setdefault(name, set())
        return lambda *values: types.add(tuple(map(numba.typeof, values))) or real(*values)

    for name in ("nearest", "code", "restore", "restore_nearest"):
        monkeypatch.setattr(loops, name, spied(name))
    make_system(systems.block("ecgraph")).setup(MagicMock(device="cpu"))
    before = {name: set(types) for name, types in seen.items()}
    x = torch.arange(12.0).view(6, 2)
    for rows, p in zip(x.split([2, 4]), Prediction(x.flip(1), x, 3).split([2, 4])):
        choices, ends, wire, _ = chosen(rows, p, 4)
        choices, ends = parted(message(choices, 2, ends), len(rows), 2, x.dtype)
        fill(torch.empty_like(rows), p, wire, choices, ends, 4)
    assert seen == before and all(seen.values())


@pytest.mark.parametrize(
    "bits, valued, tune, want",
    [(2, 4, True, 4), (8, 0, True, 8), (2, 5, True, 2), (2, 8, True, 2), (2, 9, True, 1), (1, 10, True, 1),
     (2, 0, False, 2)],
)  # fmt: skip
def test_bits_double_below_half_and_are_halved_above_four_fifths(bits, valued, tune, want):
    assert make_system(systems.block("ecgraph", tune=tune)).next_bits(bits, valued, 10) == want


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


def test_middles_of_buckets_by_hand():
    x = np.array([[0.0, 1.0, 2.5], [3.0, 3.9, 4.0]])
    np.testing.assert_array_equal(ecgraph.middle(x, 2), [[0.5, 1.5, 2.5], [3.5, 3.5, 3.5]])
    np.testing.assert_array_equal(ecgraph.middle(x, 1), [[1, 1, 3], [3, 3, 3]])
    np.testing.assert_array_equal(ecgraph.middle(np.full((2, 2), 0.3), 2), 0.3)


def test_each_row_takes_the_nearest_of_code_prediction_and_their_mean():
    pair = ecgraph.Forward(period=100, bits=1, tune=False, rate="sent")
    pair.sent(0, np.array([[0.0, 0.0], [0.9, 3.0], [0.0, 2.0], [9.0, 9.0]]))
    h = np.array([[0.0, 0.1], [0.0, 4.0], [0.6, 2.4], [1.0, 1.0]])  # codes 1 and 3
    want = [[0.0, 0.0], [0.9, 3.0], [0.5, 2.5], [1.0, 1.0]]  # prediction twice, mean, code
    got, size = pair.sent(1, h)
    np.testing.assert_allclose(got, want)
    assert size == 1 + 1 + 8  # 2 rows of 2 bits, 4 selectors, two numbers
