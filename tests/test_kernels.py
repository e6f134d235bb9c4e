"""The sparse product against scipy, its adjoint, and the kernels against one another."""

import inspect
import sys

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.dgl import load_dgl
from harness.base.errors import InputError
from harness.core.kernels import numba_kernel
from harness.core.kernels.numba_kernel import balanced_bounds
from harness.core.kernels.spmm import SparseOperator, make_kernel, spmm
from harness.data.partition.shard import Csr
from tests.launching import fresh_python

NAMES = ["numba", "torch"] + (["dgl"] if load_dgl() is not None else [])


@pytest.fixture(autouse=True)
def threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def every_size_counts_as_large(monkeypatch):
    """Small blocks too take DGL's kernel and the parallel loops."""
    monkeypatch.setattr(numba_kernel, "SERIAL_BELOW", 0)


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
    if draw(st.booleans()):
        block = Csr(block.indptr.astype(np.int64), block.indices, columns)
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
    arguments = dict(
        block=block, row=row, column=column, self_loops=self_loops, symmetric=symmetric, values=values
    )
    return arguments, scipy.sparse.csr_matrix(matrix), draw(st.sampled_from([1, 3, 16, 41, 130])), rng


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=50)
@given(
    problem=problems(), dtype=st.sampled_from([torch.float32, torch.float64]), threads=st.sampled_from([1, 2])
)
def test_product_and_adjoint_equal_scipy(every_size_counts_as_large, name, problem, dtype, threads):
    arguments, matrix, width, rng = problem
    torch.set_num_threads(threads)
    operator = SparseOperator(**arguments, kernel=make_kernel(name))
    tolerance = dict(rtol=2e-5, atol=2e-4) if dtype == torch.float32 else dict(rtol=1e-12, atol=1e-12)
    for apply, dense in ((operator.forward, matrix), (operator.adjoint, matrix.T)):
        x = torch.from_numpy(rng.normal(size=(dense.shape[1], 2 * width))).to(dtype)[:, ::2]
        expected = dense @ x.numpy().astype(np.float64)
        np.testing.assert_allclose(apply(x).numpy(), expected, **tolerance)
        base = torch.from_numpy(rng.normal(size=(dense.shape[0], width))).to(dtype)
        total = base.clone()
        assert apply(x, out=total, accumulate=True) is total
        np.testing.assert_allclose(total.numpy(), base.numpy() + expected, **tolerance)


def test_both_directions_of_a_symmetric_graph_share_one_matrix_of_torch():
    """A GPU's memory holds the entries once, whatever the number of scales and types."""
    rng = np.random.default_rng(0)
    block, _ = random_block(rng, 9, 9, 30, symmetric=True)
    scale = rng.random(9).astype(np.float32)
    kernel = make_kernel("torch")
    operator = SparseOperator(block, scale, scale, self_loops=True, symmetric=True, kernel=kernel)
    x = torch.randn(9, 3)
    torch.testing.assert_close(operator.forward(x), operator.adjoint(x))
    operator.forward(x.double())
    held = operator._forward._matrices
    assert operator._forward is operator._adjoint and len(held) == 2
    for parts in (torch.Tensor.crow_indices, torch.Tensor.col_indices):
        assert len({parts(matrix).data_ptr() for matrix, _ in held.values()}) == 1


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


@given(degrees=st.lists(st.integers(0, 50), max_size=60), parts=st.integers(1, 8))
def test_bounds_cover_every_row_and_share_the_entries(degrees, parts):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    bounds = balanced_bounds(indptr, parts)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(degrees), parts + 1)
    assert (np.diff(bounds) >= 0).all()
    load = indptr[bounds[1:]] - indptr[bounds[:-1]] + np.diff(bounds)
    assert load.max(initial=0) <= (sum(degrees) + len(degrees)) / parts + max(degrees, default=0) + 1


def test_a_loop_by_one_thread_and_by_several_is_cached_under_two_names():
    forms = inspect.getclosurevars(numba_kernel._product).nonlocals
    assert forms["serial"].py_func.__qualname__ != forms["parallel"].py_func.__qualname__


def test_kernel_names_are_checked():
    with pytest.raises(InputError, match='did you mean "numba"'):
        make_kernel("nunba")
    for name in ("numba", "dgl"):
        with pytest.raises(InputError, match="CPU only"):
            make_kernel(name, "cuda:0")


def test_without_dgl_auto_is_numba_and_dgl_is_refused(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "dgl"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    assert make_kernel("auto").name == "numba"
    with pytest.raises(InputError, match="^kernel=dgl needs dgl 2.1.0"):
        make_kernel("dgl")
    assert "dgl" not in sys.modules


IMPORT_DGL = """
import os
from harness.base.dgl import load_dgl
from harness.core.kernels.spmm import make_kernel
before = dict(os.environ)
dgl = load_dgl()
assert dict(os.environ) == before
import torch
graph = dgl.graph((torch.tensor([0, 1, 1]), torch.tensor([2, 2, 0])), num_nodes=3).int()
assert dgl.ops.copy_u_sum(graph, torch.tensor([[1.0], [2.0], [4.0]])).flatten().tolist() == [2.0, 0.0, 3.0]
assert make_kernel("dgl").name == "dgl"
"""


@pytest.mark.skipif("dgl" not in NAMES, reason="DGL cannot be loaded here")
def test_dgl_loads_without_a_word_or_a_file_and_sums_right(tmp_path):
    done = fresh_python(IMPORT_DGL, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and done.stderr == ""
    assert not (tmp_path / ".dgl").exists()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@given(problem=problems())
def test_cuda_equals_scipy(problem):
    arguments, matrix, width, rng = problem
    operator = SparseOperator(**arguments, kernel=make_kernel("auto", "cuda"), device="cuda")
    for apply, dense in ((operator.forward, matrix), (operator.adjoint, matrix.T)):
        x = torch.from_numpy(rng.normal(size=(dense.shape[1], width)))
        np.testing.assert_allclose(apply(x.cuda()).cpu().numpy(), dense @ x.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.skipif("dgl" not in NAMES, reason="DGL cannot be loaded here")
def test_wide_rows_beyond_the_cache_do_not_reach_dgl():
    """DGL 2.1.0 ends the process on an input of 54 MB."""
    rows = 30_000
    entries = np.random.default_rng(0).integers(0, rows, (rows, 4), dtype=np.int32)
    block = Csr(np.arange(rows + 1, dtype=np.int32) * 4, np.sort(entries, axis=1).ravel(), rows)
    x = torch.randn(rows, 448)
    got, want = (SparseOperator(block, kernel=make_kernel(name)).forward(x) for name in ("dgl", "numba"))
    assert torch.equal(got, want)
