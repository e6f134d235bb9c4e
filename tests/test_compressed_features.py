"""Features kept as compressed rows from the file to the product: what NumPy gives for the dense table, the
same losses and bytes by every system, and the memory of a real graph.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness import api
from harness.base.errors import InputError
from harness.comm import sparse as wire
from harness.data import raw, sources
from harness.data.csr import sparse_rows
from harness.data.graph import Graph, validate
from harness.data.npz import read
from harness.data.partition import io
from harness.data.partition.build import build_shards
from harness.data.partition.shard import Csr, rows_of
from tests import jobs, systems
from tests.graphs import random_graph
from tests.systems import Settings
from tests.test_plan_dry import assert_alike, dry


def compressed(table: np.ndarray) -> Csr:
    at = np.nonzero(table)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(table, axis=1))])
    return sparse_rows(indptr, at[1], table[at], table.shape[1], "words").astype(table.dtype)


@st.composite
def tables(draw) -> np.ndarray:
    """[rows, columns] from empty to full, of ones or of many values."""
    shape = draw(st.integers(0, 9)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    values = np.ones(shape) if draw(st.booleans()) else rng.integers(-4, 5, shape)
    there = rng.random(shape) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    return (values * there).astype(draw(st.sampled_from([np.float32, np.float64])))


@given(tables(), st.data())
def test_compressed_rows_are_the_table_s(table, data):
    rows = compressed(table)
    assert (rows.shape, rows.dtype, len(rows)) == (table.shape, table.dtype, len(table))
    assert rows.nbytes == rows.indptr.nbytes + rows.indices.nbytes + (
        0 if rows.values is None else rows.values.nbytes
    )
    np.testing.assert_array_equal(rows.dense(), table, strict=True)
    ids = data.draw(st.lists(st.integers(0, len(table) - 1), max_size=12) if len(table) else st.just([]))
    first, last = data.draw(st.tuples(st.integers(0, 10), st.integers(0, 10)))
    mask = np.random.default_rng(len(ids)).random(len(table)) < 0.5
    for chosen in (np.array(ids, np.int32), slice(first, last), mask):
        np.testing.assert_array_equal(rows[chosen], table[chosen], strict=True)
        np.testing.assert_array_equal(rows_of(rows, chosen).dense(), rows_of(table, chosen), strict=True)
    np.testing.assert_array_equal(rows.astype(np.float32).dense(), table.astype(np.float32), strict=True)
    assert rows.new_zeros(3, 2).dense().tolist() == np.zeros((3, 2)).tolist()


@given(tables(), st.sampled_from(["auto", "sparse"]), st.sampled_from([None, torch.bfloat16]))
def test_compressed_rows_travel_as_the_same_message(table, form, dtype):
    message, given_as = wire.encoded(compressed(table), form, dtype), torch.from_numpy(table)
    assert torch.equal(message, wire.encoded(given_as, form, dtype))
    kind = dtype or given_as.dtype
    found = wire._joined([wire._decoded(message, table.shape, kind)], kind, given_as.dtype)
    np.testing.assert_array_equal(found.dense(), given_as.to(kind).to(given_as.dtype).numpy(), strict=True)


# -- from the file to the shard --


def words(rows: int, width: int) -> np.ndarray:
    rng = np.random.default_rng(4)
    return (rng.integers(1, 3, (rows, width)) * (rng.random((rows, width)) < 0.03)).astype(np.float32)


def both() -> Iterator[Graph]:
    """A graph with few words per vertex, dense and compressed."""
    graph, table = random_graph(40, 5, seed=6), words(40, 300)
    yield graph.replace(features=table)
    yield graph.replace(features=compressed(table))


def test_features_that_a_file_keeps_sparse_stay_so_where_they_are_large(tmp_path, monkeypatch):
    table, path = compressed(words(30, 50)), tmp_path / "words.npz"
    attr = {"data": table.entries(), "indices": table.indices, "indptr": table.indptr, "shape": table.shape}
    given = {"edges": np.array([[0, 1], [1, 2]]), "labels": np.arange(30) % 2}
    np.savez(path, **given, **{f"attr_{name}": value for name, value in attr.items()})
    small = read(path, None).features
    assert isinstance(small, np.ndarray)
    monkeypatch.setattr(raw, "LARGE", small.nbytes)
    large = read(path, None).features
    assert isinstance(large, Csr)
    np.testing.assert_array_equal(large.dense(), small, strict=True)
    # Its dense table, which is never made, may be larger than such a file may unpack to.
    monkeypatch.setattr(raw, "SPARED", small.nbytes - 1)
    monkeypatch.setattr(raw, "EXPANSION", 0)
    assert isinstance(read(path, None).features, Csr)


def test_rows_are_divided_by_their_sums_in_either_form():
    dense, sparse = both()
    for graph in (dense, sparse):
        sources._normalise(graph)
    np.testing.assert_allclose(sparse.features.dense(), dense.features, rtol=1e-6)
    sparse.features.values[5] = -1
    with pytest.raises(InputError, match=r"-1.0 at vertex \d+"):
        sources._normalise(sparse)


def test_a_graph_and_its_shards_are_stored_compressed(tmp_path):
    dense, sparse = both()
    io.save_graph(sparse, tmp_path / "graph.safetensors")
    loaded = io.load_graph(tmp_path / "graph.safetensors")
    np.testing.assert_array_equal(loaded.features.dense(), dense.features, strict=True)
    for one, other in zip(
        *(build_shards(g, (np.arange(40) % 3).astype(np.int32), 3) for g in (dense, loaded))
    ):
        io.save(other, tmp_path)
        again = io.load(tmp_path, other.rank)
        assert isinstance(again.features, Csr)
        np.testing.assert_array_equal(again.features.dense(), one.features, strict=True)


@pytest.mark.parametrize(
    "part, at, value, said",
    [
        ("values", 3, np.nan, r"of vertex \d+ hold NaN"),
        ("indices", 3, 300, "are no compressed rows of columns 0 to 299"),
        ("indices", slice(0, 2), 7, "are no compressed rows"),
        ("indptr", 2, 999, "are no compressed rows"),
    ],
)
def test_compressed_rows_that_cannot_be_are_one_sentence(part, at, value, said):
    _, graph = both()
    getattr(graph.features, part)[at] = value
    with pytest.raises(InputError, match=f"features {said}"):
        validate(graph)


# -- training --

# One of each way in which a system takes the rows of X.
RUNS = [
    ("vanilla", {"features": "refetch"}, {"model": systems.small("sage", residual=True)}),
    ("vanilla", {}, {"model": systems.small("gat", input_dropout=0.3)}),
    ("lean", {}, {"rows": "needed"}),
    ("zero_halo", {}, {}),
    ("local", {}, {}),
    ("cdfgnn", {}, {}),
    ("cagnet", {}, {"features_wire": "sparse"}),
    ("pscgcn", {"features": "refetch", "cache": 0.5, "refresh": 2}, {}),
    ("capgnn", {"features": "refetch"}, {}),
    ("gas", {}, {}),
    ("graphsaint", {}, {}),
    ("distdgl", {"batch": 8, "service": "exchange", "features": "refetch"}, {}),
]


@pytest.mark.parametrize(
    "name, knobs, how", RUNS, ids=[f"{name}-{knobs}{list(how)}" for name, knobs, how in RUNS]
)
def test_training_is_the_same_bit_for_bit_in_either_form(pool, name, knobs, how):
    settings = Settings(epochs=3, dtype="float32", **how)
    dense, sparse = (
        systems.run(pool, graph, systems.block(name, **knobs), 3, settings=settings) for graph in both()
    )
    assert sparse.losses == dense.losses and sparse.scores == dense.scores
    assert [sparse.sent(epoch) for epoch in range(3)] == [dense.sent(epoch) for epoch in range(3)]


def test_rows_that_travel_dense_do_so_in_blocks_and_a_dry_run_knows_them(pool):
    _, graph = both()
    settings = Settings(epochs=2, dtype="float32", scored="every epoch")
    block = systems.block("vanilla")
    whole, blocks = (
        systems.run(pool, graph, block, 3, settings=settings, job=job)
        for job in (jobs.train, jobs.train_in_blocks_of_a_row)
    )
    assert blocks.losses == whole.losses and blocks.sent(0) == whole.sent(0)
    assert_alike(whole, dry(block, settings, systems.shards_of(graph, whole.assignment, 3)))


@pytest.mark.real
@pytest.mark.nightly(60)
def test_wordnet_is_trained_in_little_memory(real_data, tmp_path):
    """5.1 GiB with a dense table."""
    made = api.run(
        "system=vanilla", "dataset=wordnet", "workers=2", "partition=random", "epochs=2",
        f"data_dir={real_data}", f"results={tmp_path}", f"cache={tmp_path}/cache",
    )  # fmt: skip
    assert made.epochs.groupby("worker")["peak_rss_bytes"].max().sum() <= 1.5 * 2**30
