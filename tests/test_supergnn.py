"""SuperGNN: what its rounding gives, and that it sends what a least cover of all cut edges says."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core.quantise import dequantise_even, quantise_even
from tests import systems
from tests.oracles import supergnn
from tests.oracles.samples import random_graph
from tests.systems import Settings
from tests.test_systems_oracle_lean import least

CODED = st.sampled_from([2, 4, 8])
ROWS = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1e3, 1e3, width=32)
)


@given(rows=ROWS, bits=CODED, shift=st.sampled_from([0.0, 1e6]))
def test_a_row_is_rounded_to_the_nearest_value_that_its_constants_have(rows, bits, shift):
    """Constants of bfloat16 may leave a row's ends outside what they span: these take the outmost codes."""
    x = torch.from_numpy(rows + shift)
    wire = quantise_even(x, bits)
    assert wire.shape == (len(x), -(-x.shape[1] * bits // 8) + 4) and wire.dtype == torch.uint8
    got = dequantise_even(wire, x.shape[1], bits, x.dtype)

    def rounded(value):
        return value.to(torch.bfloat16).to(x.dtype)

    low, step = rounded(x.amin(1)), rounded((x.amax(1) - x.amin(1)) / (2**bits - 1))
    step[step == 0] = 1
    values = low[:, None] + torch.arange(2**bits) * step[:, None]  # [rows, codes]
    least = (values[:, None] - x[:, :, None]).abs().amin(2)
    torch.testing.assert_close((got - x).abs(), least, rtol=1e-9, atol=1e-9)


def test_halves_go_to_the_even_code_and_equal_values_stay():
    row = torch.tensor([[0.0, 0.5, 1.5, 2.5, 3.0], [0.5, 0.5, 0.5, 0.5, 0.5]])
    got = dequantise_even(quantise_even(row, 2), 5, 2, row.dtype)
    assert got.tolist() == [[0.0, 0.0, 2.0, 2.0, 3.0], [0.5] * 5]


@pytest.mark.parametrize("features", ["once", "refetch"])
@settings(max_examples=4)
@given(seed=st.integers(0, 10_000), parts=st.integers(2, 4), bits=st.sampled_from([2, 4, 8, 16, 32]))
def test_bytes_are_those_of_a_least_cover_of_all_cut_edges(pool, features, seed, parts, bits):
    """In every layer and both ways: as few messages as `least` finds, of rows as wide as the layer takes."""
    graph = random_graph(seed, vertices=24)
    how = Settings(systems.small("gcn", 3, 9), dtype="float32", epochs=2)
    block = systems.block("supergnn", bits=bits, features=features)
    outcome = systems.run(pool, graph, block, parts, settings=how)
    want = supergnn.epoch_bytes(graph, outcome.assignment, outcome.widths, least, bits=bits)
    first = 0 if features == "refetch" else 1
    for epoch in range(how.epochs):
        forward, backward = (systems.bytes_by_layer(outcome, epoch, way) for way in ("forward", "backward"))
        np.testing.assert_array_equal(forward[first:], want[first:])
        np.testing.assert_array_equal(backward, [0, *want[1:]])


def test_the_oracles_codes_by_hand():
    x = np.array([[0.0, 1.0, 3.0, 2.5], [7.0, 7.0, 7.0, 7.0], [-1.0, -0.5, 0.1, 5.0]])
    # s = 1, 1 and 2; 2.5, 0.5 / 2 and 1.1 / 2 are 2, 0 and 1
    np.testing.assert_array_equal(supergnn.rounded(x, 2), [[0, 1, 3, 2], [7, 7, 7, 7], [-1, -1, 1, 5]])
    # z = 1.0078125 for 1.005, and s = 1 for 3.002 / 3: what lies below z is z.
    np.testing.assert_array_equal(supergnn.rounded(np.array([[1.005, 4.007]]), 2), [[1.0078125, 4.0078125]])
    assert supergnn.rounded(np.array([[0.1, 1.0]]), 16).tolist() == [[0.10009765625, 1.0]]
    assert [supergnn.message_bytes(3, 9, b) for b in (2, 4, 8, 16, 32)] == [21, 27, 39, 54, 108]
