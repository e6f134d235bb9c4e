"""The quantiser: bounded error, exact where it must be, unbiased when stochastic, and as many bytes as it
says.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.core import quantise as quantising
from harness.core.quantise import (
    BITS,
    ColumnCode,
    RowCode,
    code_with_torch,
    codes_with_torch,
    dequantise,
    dequantise_scaled,
    quantise,
    quantise_scaled,
    rounding_error,
    row_bytes,
    scaled_bytes,
)

ROWS = hnp.arrays(
    np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.floats(-1e3, 1e3, width=32)
)
DTYPES = st.sampled_from([torch.float32, torch.float64])


def noise_for(x: torch.Tensor, stochastic: bool) -> torch.Tensor | float:
    drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(1), dtype=x.dtype)
    return drawn if stochastic else 0.5


@given(ROWS, st.sampled_from(BITS), DTYPES, st.booleans())
def test_codes_are_torchs_to_the_bit_and_the_error_is_at_most_a_step(rows, bits, dtype, stochastic):
    x = torch.from_numpy(rows).to(dtype)
    noise = noise_for(x, stochastic)
    wire = quantise(x, bits, noise)
    assert wire.dtype == torch.uint8 and wire.shape == (len(x), row_bytes(x.shape[1], bits, dtype))
    low, high = x.aminmax(dim=1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    codes = code_with_torch(x, low, torch.where(step > 0, step, torch.ones_like(step)), bits, noise)
    assert torch.equal(wire[:, : -2 * dtype.itemsize], codes)
    got = dequantise(wire, x.shape[1], bits, dtype)
    assert torch.equal(got, low + codes_with_torch(codes, x.shape[1], bits).to(dtype) * step)
    slack = (1e-5 if dtype == torch.float32 else 1e-12) * x.abs().amax(1, keepdim=True)
    assert ((got - x).abs() <= (1.0 if stochastic else 0.5) * step + slack).all()


@pytest.mark.parametrize("bits", BITS)
def test_largest_error_is_half_of_a_step_between_two_of_the_codes(bits):
    steps = 2**bits - 1
    row = torch.tensor([[0.0, 0.5, steps], [2.0, 2.0, 2.0]], dtype=torch.float64)  # half-way to the next code
    got = rounding_error(row, quantise(row, bits), bits)
    assert got == pytest.approx(2**bits / steps)  # in half steps of 2^B, as the paper has its bound
    assert rounding_error(row[:, :1], quantise(row[:, :1], bits), bits) == 0
    assert rounding_error(row[:0], quantise(row[:0], bits), bits) == 0


@given(ROWS, st.sampled_from(BITS))
def test_ends_of_a_row_and_constant_rows_are_exact(rows, bits):
    x = torch.from_numpy(rows)
    got = dequantise(quantise(x, bits), x.shape[1], bits, x.dtype)
    torch.testing.assert_close(got.amin(1), x.amin(1), rtol=0, atol=0)
    torch.testing.assert_close(got.amax(1), x.amax(1), rtol=1e-12, atol=1e-12)
    constant = x[:, :1].expand_as(x).contiguous()
    assert torch.equal(dequantise(quantise(constant, bits), x.shape[1], bits, x.dtype), constant)


@pytest.mark.parametrize("bits", [1, 8])
def test_stochastic_rounding_is_unbiased_and_its_variance_is_the_formula(bits):
    """Over many draws the mean is the row, and the variance of a uniform position between two levels is a
    sixth of a step squared.
    """
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(1, 400, generator=rng, dtype=torch.float64)
    repeats = 4000
    noise = torch.rand(repeats, 400, generator=rng, dtype=torch.float64)
    got = dequantise(quantise(x.expand(repeats, -1), bits, noise), 400, bits, x.dtype)
    step = float(x.max() - x.min()) / (2**bits - 1)
    assert float((got.mean(0) - x[0]).abs().max()) < 6 * step / 2 / repeats**0.5
    assert float(((got - x) ** 2).mean()) == pytest.approx(step**2 / 6, rel=0.15)


@given(ROWS, st.sampled_from([4, 8]), DTYPES, st.integers(-30, 30), st.booleans())
def test_compiled_scales_are_torchs_to_the_bit_the_error_is_at_most_a_step_and_zeros_stay(
    rows, bits, dtype, power, stochastic
):
    x = torch.from_numpy(rows * 10.0**power).to(dtype)
    noise = noise_for(x, stochastic)
    wire = quantise_scaled(x, bits, noise)
    assert wire.dtype == torch.uint8 and wire.shape == (len(x), scaled_bytes(x.shape[1], bits))
    scale = quantising._rounded_up(x.abs().amax(1, keepdim=True))
    low, step = quantising._range(scale, bits, dtype)
    codes = code_with_torch(x, low, torch.where(step > 0, step, torch.ones_like(step)), bits, noise)
    assert torch.equal(wire, torch.cat([codes, scale.view(torch.uint8)], 1))
    restored = low + codes_with_torch(codes, x.shape[1], bits).to(dtype) * step
    got = dequantise_scaled(wire, x.shape[1], bits, dtype)
    assert torch.equal(got, restored)
    most = x.abs().amax(1, keepdim=True)
    step = most * (1 + 2**-7) / (2 ** (bits - 1) - 1)  # bfloat16 has 8 bits of a number
    assert ((got - x).abs() <= (1.0 if stochastic else 0.5) * step + 1e-5 * most).all()
    if not stochastic:
        assert (got[x == 0] == 0).all()


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("scale", [1e-30, 1.0039063])
def test_with_one_scale_stochastic_rounding_is_unbiased_at_both_ends(bits, scale):
    """Over many draws the mean is the row, its largest value too: the scale is rounded up, never down."""
    generator, n = torch.Generator().manual_seed(2), 40_000
    row = scale * torch.tensor([[-1.0, -0.37, 0.0, 0.001, 0.5, 1.0]], dtype=torch.float64)
    noise = torch.rand(n, 6, generator=generator, dtype=torch.float64)
    got = dequantise_scaled(quantise_scaled(row.expand(n, 6), bits, noise), 6, bits, torch.float64)
    step = scale * (1 + 2**-7) / (2 ** (bits - 1) - 1)
    torch.testing.assert_close(got.mean(0), row[0], rtol=0, atol=6 * step / 2 / n**0.5)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_value_that_is_no_number_is_none_for_the_receiver(bits):
    """The values behind it do not hide it."""
    rows = torch.ones(5, 3)
    rows[1, 2] = torch.nan
    for code, across in ((ColumnCode, 0), (RowCode, 1)):
        coder = code([5], 3, bits)
        got = coder.dequantise(coder.quantise(rows, torch.full([15], 0.5)), torch.float32)
        assert torch.equal(got.isnan().any(across), rows.isnan().any(across)) and got.isnan()[1, 2]


@given(ROWS, st.sampled_from([4, 8]), DTYPES, st.integers(0, 9))
def test_columns_of_messages_are_the_rows_of_their_transposes(rows, bits, dtype, cut):
    x = torch.from_numpy(rows).to(dtype)
    counts = [min(cut, len(x)), 0, len(x) - min(cut, len(x))]
    noise = noise_for(x, stochastic=True).flatten()
    code = ColumnCode(counts, x.shape[1], bits)
    wire = code.quantise(x, noise)
    parts = zip(x.split(counts), noise.split([count * x.shape[1] for count in counts]))
    want = [quantise_scaled(part.t(), bits, u.view(part.t().shape)) for part, u in parts if len(part)]
    assert torch.equal(wire, torch.cat([each.flatten() for each in want]))
    assert len(wire) == sum(code.sizes)
    got = code.dequantise(wire, dtype)
    sizes = [count for count in counts if count]
    told = [dequantise_scaled(each, count, bits, dtype).t() for each, count in zip(want, sizes)]
    assert torch.equal(got, torch.cat(told))
    by_row = RowCode(counts, x.shape[1], bits)
    wire = by_row.quantise(x, noise)
    assert len(wire) == sum(by_row.sizes) and torch.equal(
        by_row.dequantise(wire, dtype),
        dequantise_scaled(quantise_scaled(x, bits, noise.view_as(x)), x.shape[1], bits, dtype),
    )
