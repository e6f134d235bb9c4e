"""The sparse product against scipy, its adjoint, and the kernels against one another."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.dgl_kernel import load_dgl
from harness.core.kernels import SparseOperator, make_kernel, spmm, transpose
from harness.core.numba_kernel import balanced_bounds
from harness.partition.shard import Csr

NAMES = ["numba", "torch"] + (["dgl"] if load_dgl() is not None else [])


def random_block(rng, rows, columns, entries, symmetric=False):
    """A random Csr and the scipy matrix of its pattern."""
    dense = np.zeros((rows, columns))
    if rows and columns:
        dense[rng.integers(0, rows, entries), rng.integers(0, columns, entries)] = 1
    if symmetric:
        dense = np.maximum(dense, dense.T)
    matrix = scipy.sparse.csr_matrix(dense)
    matrix.sort_indices()
    return Csr(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), columns), matrix


@st.composite
def problems(draw):
    """An operator's arguments, and the same as one scipy matrix."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    square = draw(st.booleans())
    rows = draw(st.integers(1, 40))
    columns = rows if square else draw(st.integers(0, 40))
    symmetric = square and draw(st.booleans())
    block, matrix = random_block(rng, rows, columns, draw(st.sampled_from([0, 1, 60, 500])), symmetric)
    values = None
    if draw(st.booleans()):
        values = rng.normal(size=block.num_entries).astype(np.float32)
        matrix = scipy.sparse.csr_matrix((values, matrix.indices, matrix.indptr), matrix.shape)
    self_loops = square and draw(st.booleans())
    if self_loops:
        matrix = matrix + scipy.sparse.eye(rows)
    row = rng.normal(size=rows).astype(np.float32) if draw(st.booleans()) else None
    column = rng.normal(size=columns).astype(np.float32) if draw(st.booleans()) else None
    for scale, side in ((row, 0), (column, 1)):
        if scale is not None:
            diagonal = scipy.sparse.diags(scale.astype(np.float64))
            matrix = diagonal @ matrix if side == 0 else matrix @ diagonal
    arguments = dict(block=block, row=row, column=column, self_loops=self_loops, symmetric=symmetric, values=values)
    return arguments, scipy.sparse.csr_matrix(matrix), draw(st.sampled_from([1, 3, 16, 41, 130])), rng


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None)
@given(problem=problems(), threads=st.sampled_from([1, 2]))
def test_product_and_adjoint_equal_scipy(name, dtype, problem, threads):
    arguments, matrix, width, rng = problem
    torch.set_num_threads(threads)
    operator = SparseOperator(**arguments, kernel=make_kernel(name))
    tolerance = dict(rtol=2e-5, atol=2e-4) if dtype == torch.float32 else dict(rtol=1e-12, atol=1e-12)
    for apply, dense in ((operator.forward, matrix), (operator.adjoint, matrix.T)):
        x = torch.from_numpy(rng.normal(size=(dense.shape[1], width))).to(dtype)
        expected = dense @ x.numpy().astype(np.float64)
        np.testing.assert_allclose(apply(x).numpy(), expected, **tolerance)
        base = torch.from_numpy(rng.normal(size=(dense.shape[0], width))).to(dtype)
        total = base.clone()
        assert apply(x, out=total, accumulate=True) is total
        np.testing.assert_allclose(total.numpy(), base.numpy() + expected, **tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_with_and_without_a_base(name):
    rng = np.random.default_rng(0)
    inner, _ = random_block(rng, 6, 6, 12)
    halo, _ = random_block(rng, 6, 4, 9)
    scale = rng.random(6).astype(np.float32)
    kernel = make_kernel(name)
    a = SparseOperator(inner, scale, scale, self_loops=True, kernel=kernel)
    b = SparseOperator(halo, scale, None, values=rng.random(halo.num_entries).astype(np.float32), kernel=kernel)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    base = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: spmm(b, y, spmm(a, x)), (x, y))
    assert torch.autograd.gradcheck(lambda y, base: spmm(b, y, base), (y, base))


def test_a_base_is_consumed_only_where_it_is_a_product():
    rng = np.random.default_rng(0)
    block, _ = random_block(rng, 6, 6, 12)
    operator = SparseOperator(block, kernel=make_kernel("numba"))
    x = torch.randn(6, 3, requires_grad=True)
    first = spmm(operator, x)
    assert spmm(operator, x, first).data_ptr() == first.data_ptr()
    for base in (torch.randn(6, 3), x):
        before = base.detach().clone()
        spmm(operator, x, base)
        assert torch.equal(base, before)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits_every_time_and_for_any_number_of_threads(name):
    rng = np.random.default_rng(1)
    block, _ = random_block(rng, 300, 300, 30000)
    operator = SparseOperator(block, rng.random(300).astype(np.float32), kernel=make_kernel(name))
    x = torch.randn(300, 41)
    results = []
    for threads in (1, 2, 2):
        torch.set_num_threads(threads)
        results.append(operator.forward(x))
    assert torch.equal(results[0], results[1]) and torch.equal(results[1], results[2])


def test_transpose_twice_is_the_block_and_carries_its_values():
    rng = np.random.default_rng(2)
    block, matrix = random_block(rng, 20, 31, 200)
    values = rng.random(block.num_entries).astype(np.float32)
    turned, turned_values = transpose(block, values)
    expected = scipy.sparse.csr_matrix((values, matrix.indices, matrix.indptr), matrix.shape).T.tocsr()
    expected.sort_indices()
    assert np.array_equal(turned.indptr, expected.indptr) and np.array_equal(turned.indices, expected.indices)
    assert np.array_equal(turned_values, expected.data)
    back, back_values = transpose(turned, turned_values)
    assert np.array_equal(back.indices, block.indices) and np.array_equal(back_values, values)
    assert turned.indices.dtype == np.int32 and turned.indptr.dtype == np.int32


@given(degrees=st.lists(st.integers(0, 50), max_size=60), parts=st.integers(1, 8))
def test_bounds_cover_every_row_and_share_the_entries(degrees, parts):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    bounds = balanced_bounds(indptr, parts)
    assert bounds[0] == 0 and bounds[-1] == len(degrees) and len(bounds) == parts + 1 and np.all(np.diff(bounds) >= 0)
    load = indptr[bounds[1:]] - indptr[bounds[:-1]] + np.diff(bounds)
    assert load.max(initial=0) <= (sum(degrees) + len(degrees)) / parts + max(degrees, default=0) + 1
