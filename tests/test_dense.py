"""Dense products: every form of them is x @ w and has its gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core import dense


@pytest.fixture(autouse=True)
def asked_anew():
    """Which library multiplies is found out once per process."""
    found = dense.onednn
    found.cache_clear()
    yield
    found.cache_clear()


def checked(n, f_in, f_out, fixed, dtype=torch.float32):
    """A product and its gradients beside numpy's in float64."""
    generator = torch.Generator().manual_seed(n * 1000 + f_in * 100 + f_out)
    x, w, g = (
        torch.randn(shape, generator=generator, dtype=dtype)
        for shape in ((n, f_in), (f_in, f_out), (n, f_out))
    )
    ours_x, ours_w = x.clone().requires_grad_(), w.clone().requires_grad_()
    z = dense.times_weight(ours_x, ours_w, fixed)
    z.backward(g)
    near = {"rtol": 1e-4, "atol": 1e-4 * (n + f_in) ** 0.5}
    np.testing.assert_allclose(z.detach(), x.double() @ w.double(), **near)
    np.testing.assert_allclose(ours_x.grad, g.double() @ w.double().t(), **near)
    np.testing.assert_allclose(ours_w.grad, x.double().t() @ g.double(), **near)
    assert ours_w.grad.stride() == w.stride(), "an optimiser steps on gradients that lie as the weights do"


@given(
    st.integers(0, 40),
    st.integers(1, 40),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_a_product_and_its_gradients_are_numpys(n, f_in, f_out, fixed, dtype):
    checked(n, f_in, f_out, fixed, dtype)


def test_the_other_librarys_product_is_the_same_within_rounding(monkeypatch):
    """Also of rows that do not lie together."""
    monkeypatch.setattr(dense, "cpu_field", lambda name: "AuthenticAMD")
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        pytest.skip("this torch has not both libraries")
    assert dense.onednn() is not None, "torch calls its product by oneDNN otherwise"
    checked(dense.LEAST_ROWS, 50, 41, True)
    x, w = torch.randn(2 * dense.LEAST_ROWS, 30)[::2, 3:], torch.randn(27, 8)
    torch.testing.assert_close(dense.times_weight(x, w, True), x @ w)


def test_only_fixed_shapes_of_enough_rows_in_float32_go_to_the_other_library(monkeypatch):
    asked = []

    def product(x, w):
        asked.append(tuple(x.shape))
        return x @ w.t()

    monkeypatch.setattr(dense, "onednn", lambda: product)
    w, many = torch.randn(5, 4), torch.randn(dense.LEAST_ROWS, 5)
    dense.times_weight(many, w)
    dense.times_weight(many[1:], w, True)
    dense.times_weight(many.double(), w.double(), True)
    assert not asked
    dense.times_weight(many, w, True)
    assert asked == [(dense.LEAST_ROWS, 5)]


def test_an_intel_processor_keeps_mkl(monkeypatch):
    monkeypatch.setattr(dense, "cpu_field", lambda name: "GenuineIntel")
    assert dense.onednn() is None
