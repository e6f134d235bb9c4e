"""The sparse product against scipy, its adjoint, and the kernels against one another."""

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.base.dgl import load_dgl
from harness.base.errors import InputError
from harness.comm.recorder import Recorder
from harness.comm.rows import scatter_add_rows
from harness.core.kernels import numba_kernel
from harness.core.kernels.numba_kernel import balanced_bounds
from harness.core.kernels.spmm import SparseOperator, make_kernel, spmm, transpose
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems(), threads=st.sampled_from([1, 2]))
def test_product_and_adjoint_equal_scipy(every_size_counts_as_large, name, dtype, problem, threads):
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
    b = SparseOperator(
        halo, scale, None, values=rng.random(halo.num_entries).astype(np.float32), kernel=kernel
    )
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    base = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, y: spmm(b, y, spmm(a, x)), (x, y))
    assert torch.autograd.gradcheck(lambda y, base: spmm(b, y, base), (y, base))


def test_both_directions_of_a_symmetric_graph_share_one_matrix_of_torch():
    """A GPU's memory holds the entries once, whatever the number of scales and types."""
    rng = np.random.default_rng(0)
    block, _ = random_block(rng, 9, 9, 30, symmetric=True)
    scale = rng.random(9).astype(np.float32)
    kernel = make_kernel("torch")
    operator = SparseOperator(block, scale, scale, self_loops=True, symmetric=True, kernel=kernel)
    x = torch.randn(9, 3)
    torch.testing.assert_close(operator.forward(x), operator.adjoint(x))
    held = operator._forward._matrices
    assert operator._forward is operator._adjoint and len(held) == 1
    operator.forward(x.double())
    for parts in (torch.Tensor.crow_indices, torch.Tensor.col_indices):
        assert len({parts(matrix).data_ptr() for matrix, _ in held.values()}) == 1
    assert len(held) == 2


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(degrees=st.lists(st.integers(0, 50), max_size=60), parts=st.integers(1, 8))
def test_bounds_cover_every_row_and_share_the_entries(degrees, parts):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    bounds = balanced_bounds(indptr, parts)
    assert (
        bounds[0] == 0
        and bounds[-1] == len(degrees)
        and len(bounds) == parts + 1
        and np.all(np.diff(bounds) >= 0)
    )
    load = indptr[bounds[1:]] - indptr[bounds[:-1]] + np.diff(bounds)
    assert load.max(initial=0) <= (sum(degrees) + len(degrees)) / parts + max(degrees, default=0) + 1


def test_row_pointers_of_64_bits_and_views_are_taken():
    rng = np.random.default_rng(4)
    block, matrix = random_block(rng, 30, 30, 200)
    wide = Csr(block.indptr.astype(np.int64), block.indices, 30)
    x = torch.randn(30, 40)[:, ::2]
    for name in NAMES:
        operator = SparseOperator(wide, kernel=make_kernel(name))
        np.testing.assert_allclose(operator.forward(x).numpy(), matrix @ x.numpy(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(operator.adjoint(x).numpy(), matrix.T @ x.numpy(), rtol=1e-4, atol=1e-5)


def test_a_symmetric_block_is_not_transposed():
    rng = np.random.default_rng(5)
    block, _ = random_block(rng, 30, 30, 200, symmetric=True)
    prepared = []

    class Counting(type(make_kernel("numba"))):
        def prepare(self, *arguments):
            prepared.append(arguments)
            return super().prepare(*arguments)

    for symmetric, expected in ((True, 1), (False, 2)):
        prepared.clear()
        operator = SparseOperator(block, kernel=Counting(), symmetric=symmetric)
        for _ in range(2):
            operator.adjoint(torch.randn(30, 2))
        assert len(prepared) == expected


def test_the_transposition_of_a_block_is_no_part_of_the_product():
    """Once, when the block's adjoint is asked for first, in the layer that runs."""
    block, _ = random_block(np.random.default_rng(0), 30, 30, 90)
    kernel = make_kernel("numba")
    kernel.recorder = recorder = Recorder()
    recorder.begin_epoch(0)
    with recorder.train():
        operator = SparseOperator(block, kernel=kernel)
        recorder.segment("compute", "backward", 1)
        for _ in range(2):
            operator.adjoint(torch.randn(30, 2))
    line = [(s.kind, s.name, s.layer, len(s.work)) for s in recorder.epoch.spans if s.name != "begin"]
    assert line == [
        ("compute", "backward", 1, 0), ("rest", "transpose", 1, 0), ("compute", "backward", 1, 2),
    ]  # fmt: skip


def test_scatter_add_rows():
    out, rows = torch.randn(20, 7), torch.randn(9, 7)
    index = torch.randperm(20)[:9].int()
    expected = out.index_add(0, index, rows)
    scatter_add_rows(out, index, rows)
    assert torch.equal(out, expected)


def test_kernel_names_are_checked():
    with pytest.raises(InputError, match='did you mean "numba"'):
        make_kernel("nunba")
    for name in ("numba", "dgl"):
        with pytest.raises(InputError, match="CPU only"):
            make_kernel(name, "cuda:0")


WITHOUT_DGL = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "dgl":
            raise ImportError(name)
sys.meta_path.insert(0, Blocker())
from harness.base.errors import InputError
from harness.core.kernels.spmm import make_kernel
assert make_kernel("auto").name == "numba"
assert not any(name.split(".")[0] == "dgl" for name in sys.modules)
try:
    make_kernel("dgl")
except InputError as error:
    print(error)
"""


def test_without_dgl_auto_is_numba_and_dgl_is_refused():
    done = fresh_python(WITHOUT_DGL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kernel=dgl needs dgl 2.1.0") and done.stderr == ""


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


def test_numba_leaves_the_number_of_torch_threads_alone():
    done = fresh_python(
        "import torch\n"
        "torch.set_num_threads(3)\n"
        "from harness.core.kernels.parallel import use_threads\n"
        "assert use_threads() == 3\n"
        "assert torch.get_num_threads() == 3\n",
        NUMBA_NUM_THREADS="4",
    )
    assert done.returncode == 0, done.stderr


FORK = """
import multiprocessing, numpy as np, torch
import harness.run.preload
from harness.core.dropout import dropout
from harness.core.kernels.spmm import SparseOperator, make_kernel
from harness.data.partition.shard import Csr
for name in NAMES:
    make_kernel(name)

def work(name, threads, queue):
    torch.set_num_threads(threads)
    block = Csr(np.arange(0, 20 * 2001, 20, dtype=np.int32), np.arange(40000, dtype=np.int32) % 2000, 2000)
    operator = SparseOperator(block, kernel=make_kernel(name), self_loops=True)
    x = dropout(torch.ones(2000, 64), torch.arange(2000, dtype=torch.int32), 0.5, 1)
    product, adjoint = operator.forward(x).sum().item(), operator.adjoint(x).sum().item()
    queue.put((product, adjoint, (x @ x.t()).sum().item() > 0))

context = multiprocessing.get_context("fork")
for name in NAMES:
    queue = context.SimpleQueue()
    workers = [context.Process(target=work, args=(name, threads, queue)) for threads in (1, 2, 2)]
    for worker in workers:
        worker.start()
    results = {queue.get() for _ in workers}
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0, name
    assert len(results) == 1, (name, results)
"""


@pytest.mark.nightly(20)
def test_workers_forked_from_a_process_that_only_loaded_compute_the_same():
    done = fresh_python(f"NAMES = {NAMES!r}\n" + FORK)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(problem=problems())
def test_cuda_equals_scipy(problem):
    arguments, matrix, width, rng = problem
    operator = SparseOperator(**arguments, kernel=make_kernel("auto", "cuda"), device="cuda")
    for apply, dense in ((operator.forward, matrix), (operator.adjoint, matrix.T)):
        x = torch.from_numpy(rng.normal(size=(dense.shape[1], width)))
        np.testing.assert_allclose(apply(x.cuda()).cpu().numpy(), dense @ x.numpy(), rtol=1e-12, atol=1e-12)


def test_wide_rows_beyond_the_cache_do_not_reach_dgl():
    """DGL 2.1.0 ends the process on such a product (29 k rows of 448 floats, 13 M entries)."""
    rng = np.random.default_rng(0)
    rows = 30_000
    indptr = np.arange(rows + 1, dtype=np.int32) * 100
    block = Csr(indptr, np.sort(rng.integers(0, rows, (rows, 100), dtype=np.int32), axis=1).ravel(), rows)
    x = torch.randn(rows, 448)
    got, want = (SparseOperator(block, kernel=make_kernel(name)).forward(x) for name in ("dgl", "numba"))
    assert torch.equal(got, want)
