"""Rows that have changed: the compiled loop says of every row what torch's operations say, whatever its
values are.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from systems.parts.changes import changed, changed_with_torch

SHAPES = hnp.array_shapes(min_dims=2, max_dims=2, max_side=9)
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
VALUES = st.one_of(SPECIAL, st.floats(-2, 2, width=32))


@given(st.data(), SHAPES, st.sampled_from([torch.float32, torch.float64]), st.sampled_from([0, 0.01, 0.5]))
def test_compiled_as_by_torch(data, shape, dtype, epsilon):
    x, kept = (torch.from_numpy(data.draw(hnp.arrays(np.float64, shape, elements=VALUES))) for _ in range(2))
    x, kept = x.to(dtype), kept.to(dtype)
    same = torch.from_numpy(data.draw(hnp.arrays(np.bool_, shape[0])))
    x[same] = kept[same]
    for got, expected in zip(changed(x, kept, epsilon), changed_with_torch(x, kept, epsilon), strict=True):
        assert torch.equal(got, expected)


@pytest.mark.parametrize(
    "x, kept, fresh, zero",
    [
        ([1.0, 0.0], [1.0, 0.0], False, False),
        ([1.2, 0.0], [1.0, 0.0], False, False),  # within a quarter of the largest
        ([1.0, 0.3], [1.0, 0.0], True, False),
        ([0.0, 0.0], [0.0, -0.0], False, True),
        ([0.0, 0.0], [1.0, 0.0], True, False),
        ([np.nan, 0.0], [np.nan, 0.0], True, False),
    ],
)
def test_rule(x, kept, fresh, zero):
    got = changed(torch.tensor([x]), torch.tensor([kept]), 0.25)
    assert [each.item() for each in got] == [fresh, zero]


def test_the_limit_is_rounded_as_the_rows_are():
    """As a number of 64 bits 0.1 is less than that of 32, which a row at the limit has."""
    x, kept = torch.tensor([[1.0, 0.1]]), torch.tensor([[1.0, 0.0]])
    assert not changed(x, kept, 0.1)[0].item() and not changed_with_torch(x, kept, 0.1)[0].item()
    assert changed(torch.nextafter(x, torch.tensor(2.0)), kept, 0.1)[0].item()


def test_no_rows_and_rows_of_a_view():
    assert [len(each) for each in changed(torch.zeros(0, 3), torch.zeros(0, 3), 0.1)] == [0, 0]
    x = torch.arange(12.0).view(4, 3)
    assert changed(x[1:], x[1:].clone(), 0.1)[0].tolist() == [False] * 3
    assert changed(x.T, torch.zeros(3, 4), 0.1)[0].tolist() == [True] * 3
