"""No tiling changes a bit of the product; what is chosen follows from what was measured; measured once."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.core.kernels import huge_pages, numba_kernel, tiling, tiling_measured
from harness.core.kernels.spmm import NumbaKernel, SparseOperator
from harness.core.kernels.tiling import Tiling, Tilings, Timed, even_lines, fixed, shape_class
from harness.run import prepare
from tests.test_kernels import random_block
from tests.test_run_folder import run_in


@pytest.fixture
def parallel_loops_too(monkeypatch):
    monkeypatch.setattr(numba_kernel, "SERIAL_BELOW", 0)
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def in_entry_order(block, x, row, column, self_loops, values, base):
    """The product by its definition: one accumulator per column, entries ascending, every step rounded."""
    packed = x if column is None else column.astype(x.dtype)[:, None] * x
    out = np.empty((block.num_rows, x.shape[1]), x.dtype)
    for v in range(block.num_rows):
        total = packed[v].copy() if self_loops else np.zeros_like(packed[0])
        for e in range(block.indptr[v], block.indptr[v + 1]):
            term = packed[block.indices[e]]
            total = total + (term if values is None else term * x.dtype.type(values[e]))
        total = total if row is None else x.dtype.type(row[v]) * total
        adds = self_loops or block.indptr[v] < block.indptr[v + 1]
        out[v] = total if base is None else base[v] + total if adds else base[v]
    return out


@settings(max_examples=50)
@given(
    tiled=st.builds(
        Tiling,
        st.sampled_from([1, 2, 3, 4, 8]),
        st.sampled_from([0, 1, 3, 16]),
        st.sampled_from([0, 64, 999, 5000]),
    ),
    threads=st.sampled_from([1, 2]),
    width=st.sampled_from([1, 15, 41, 64, 130]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scaled=st.tuples(st.booleans(), st.booleans()),
    unpacked=st.booleans(),
    weighted=st.booleans(),
    square=st.booleans(),
    onto=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_tiling_gives_the_bits_of_adding_in_entry_order(
    parallel_loops_too,
    monkeypatch,
    tiled,
    threads,
    width,
    dtype,
    scaled,
    unpacked,
    weighted,
    square,
    onto,
    seed,
):
    # Rows without a scale and of a cache line or more: from where they lie, or packed like all others.
    monkeypatch.setattr(numba_kernel, "HELD", 0)
    monkeypatch.setattr(numba_kernel, "FEW", 1 << 20 if unpacked else 0)
    rng = np.random.default_rng(seed)
    rows, columns = (23, 23) if square else rng.integers(1, 40, 2)
    block, _ = random_block(rng, rows, columns, int(rng.integers(0, 300)))
    row, column = (
        rng.normal(size=n).astype(np.float32) if there else None for n, there in zip((rows, columns), scaled)
    )
    values = rng.normal(size=block.num_entries).astype(np.float32) if weighted else None
    torch.set_num_threads(threads)
    operator = SparseOperator(
        block, row, column, self_loops=square, values=values, kernel=NumbaKernel(Tilings(only=tiled))
    )
    turned = SparseOperator(block, values=values, kernel=NumbaKernel())
    turned.adjoint(torch.zeros(rows, 1))
    adjoint = turned._adjoint._block, turned._adjoint._values if weighted else None
    for apply, (b, v), scales, size in (
        (operator.forward, (block, values), (row, column), (columns, rows)),
        (operator.adjoint, adjoint, (column, row), (rows, columns)),
    ):
        # Sums of such numbers round at every step: another order would give other bits.
        x = torch.from_numpy(
            rng.normal(size=(size[0], width)) * 10.0 ** rng.integers(-3, 4, size[0])[:, None]
        )
        base = torch.from_numpy(rng.normal(size=(size[1], width))).to(dtype) if onto else None
        if onto:  # to which nothing may be added, not even 0
            base[rng.random(size[1]) < 0.5] = -0.0
        want = in_entry_order(
            b, x.to(dtype).numpy(), *scales, square, v, None if base is None else base.numpy().copy()
        )
        got = apply(x.to(dtype), out=base, accumulate=onto)
        assert got.numpy().tobytes() == want.tobytes()


@given(lines=st.integers(1, 100), columns=st.integers(1, 10**7), entries=st.integers(0, 10**9))
def test_the_fixed_table_covers_every_shape(lines, columns, entries):
    chosen = fixed(columns, entries, lines)
    assert chosen.lines in tiling.LINES
    passes = -(-lines // chosen.lines)
    assert passes * chosen.lines - lines < max(chosen.lines, 4), "no pass is all waste"
    if entries < tiling.LEAST_ENTRIES:
        assert chosen.lines == even_lines(lines)
    for block in (0, 64, 10**6):
        rows = Tiling(chosen.lines, block=block).block_rows(columns)
        assert 0 <= rows < columns


def test_shapes_fall_into_the_nearest_class_and_small_ones_into_none():
    assert shape_class(11_648, 11_648, 5_730_584) == "11585x512"
    assert shape_class(10_000_000, 10_000_000, 10**9) == "262144x32"
    assert shape_class(10_000, 4_500, 1_290_000) == "4096x512"
    assert shape_class(1000, 2_000, 10**6) is None and shape_class(10_000, 50_000, 500_000) is None


def test_the_least_passes_times_nanoseconds_is_chosen():
    ns = {1: 0.1, 2: 3.0, 3: 4.0, 4: 7.0, 8: 11.0}
    timed = [Timed(Tiling(lines, 32, 64 * lines), each) for lines, each in ns.items()]
    found, shape = Tilings({"11585x512": timed}), (11_648, 11_648, 5_730_584)
    for lines, want in ((1, 1), (2, 2), (3, 3), (4, 2), (6, 3), (8, 8), (9, 3), (16, 8)):
        assert found.choose(*shape, lines) == Tiling(want, 32, 64 * want), lines
    assert Tilings.of_json(found.as_json()).choose(*shape, 8) == Tiling(8, 32, 512)
    other = (4_000, 300_000, 10**7)
    assert found.choose(*other, 8) == fixed(*other[1:], 8), "another class: the table"


def test_a_run_is_prepared_with_what_its_products_need(tmp_path, monkeypatch):
    """Measured by a machine's first run, found in the cache by its second; not for a kernel that has no
    tilings."""
    monkeypatch.setattr(tiling, "LEAST_ENTRIES", 1)
    monkeypatch.setattr(tiling, "LEAST_COLUMNS", 1)
    monkeypatch.setattr(tiling_measured, "ENTRIES", 512)
    shared = (f"cache={tmp_path}/cache", "dataset.scale=0.005", "workers=2")

    def tilings(machine: str, *more: str) -> dict:
        return prepare._shards(run_in(tmp_path / "a", *shared, *more), machine)[2]["tilings"]

    measured = tilings("here")
    assert tilings("here", "seed=1", "epochs=3") == measured and tilings("here", "kernel=torch") == {}
    for timed in measured.values():
        assert [row["lines"] for row in timed] == list(tiling.LINES)
        assert all(row["ns"] > 0 and row["ahead"] in (0, *tiling_measured.DISTANCES) for row in timed)
    tilings("there")
    kept = list((tmp_path / "cache" / "tilings").glob("*/tilings.json"))
    assert len(kept) == 2 * len(measured) > 0


def test_memory_of_huge_pages_is_a_threads_own_and_grows():
    memory, kind = huge_pages.HugePages(), np.dtype(np.float64)
    first = memory.array((3, 5), kind)
    assert first.shape == (3, 5) and first.dtype == kind and first.ctypes.data % huge_pages.PAGE == 0
    with ThreadPoolExecutor(1) as threads:
        assert not np.shares_memory(first, threads.submit(memory.array, (3, 5), kind).result())
    assert np.shares_memory(first, memory.array((2, 5), kind))
    larger = memory.array((huge_pages.PAGE,), kind)
    larger[:] = 1.0
    assert not np.shares_memory(first, larger)
