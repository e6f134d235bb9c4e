"""Edge weights: what they mean in a file; that partitions carry them and do not look at them; and that
training with them is training on the weighted graph.
"""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.adjacency import Adjacency
from harness.core.kernels.spmm import make_kernel
from harness.data import csr
from harness.data.graph import validate
from harness.data.partition import io
from harness.data.partition.assign import Random, assign
from harness.data.partition.build import build_shards
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.cache import Cache, shards_for
from harness.data.partition.config import EDGE_METHODS
from harness.data.partition.vertexcut import assign_edges
from harness.data.sources import Source
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import systems
from tests.oracles import dense
from tests.oracles.samples import random_graph, with_edge_weights
from tests.pieces import EDGE_CUTS


def a_weighted_graph(seed: int, vertices: int = 20, directed: bool = False):
    return with_edge_weights(random_graph(seed, vertices=vertices, directed=directed), seed)


@given(seed=st.integers(0, 999), directed=st.booleans())
def test_degrees_and_the_three_normalisations_are_their_formulas(seed, directed):
    graph = a_weighted_graph(seed, 16, directed)
    a = dense.adjacency(graph)
    np.testing.assert_allclose(graph.in_degrees(), a.sum(1))
    (shard,) = build_shards(graph, np.zeros(16, np.int32), 1)
    for normalisation, want in (
        ("symmetric", (a + np.eye(16)) / np.sqrt(np.outer(1 + a.sum(1), 1 + a.sum(1)))),
        ("row", (a + np.eye(16)) / (1 + a.sum(1))[:, None]),
        ("mean", np.divide(a, a.sum(1)[:, None], out=np.zeros_like(a), where=a.sum(1)[:, None] > 0)),
    ):
        got = Adjacency(shard, normalisation, make_kernel("numba"), torch.device("cpu"))
        np.testing.assert_allclose(got.apply(torch.eye(16), None).numpy(), want, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            got.out_edges()[0].forward(torch.eye(16)).numpy(), want.T, rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    "method, directed", [("random", False), *((method, True) for method in (*EDGE_CUTS, *EDGE_METHODS))]
)
def test_partitions_do_not_look_at_weights_and_shards_carry_them(tmp_path, method, directed):
    graph = a_weighted_graph(9, 30, directed)
    plain = graph.replace(weights=None)
    a, seen = dense.adjacency(graph), np.zeros((30, 30))
    if method in EDGE_METHODS:
        edges, same = (assign_edges(g, method, 3, 1) for g in (graph, plain))
        np.testing.assert_array_equal(edges.owner, same.owner)
        shards = list(build_replicas(graph, edges))
    else:
        owners, same = (assign(g, EDGE_CUTS[method], 3, 1) for g in (graph, plain))
        np.testing.assert_array_equal(owners, same)
        shards = list(build_shards(graph, owners, 3))
    for made in shards:
        io.save(made, tmp_path)
        shard = io.load(tmp_path, made.rank)
        assert shard.weighted
        if shard.cut == "vertex":
            blocks = [(shard.edges, shard.vertices, shard.vertices, a)]
        else:
            blocks = [
                (shard.inner_edges, shard.inner, shard.inner, a),
                (shard.halo_edges, shard.inner, shard.halo, a),
            ]
            if directed:
                blocks.append((shard.out_halo_edges, shard.inner, shard.out_halo, a.T))
        for block, rows, columns, matrix in blocks:
            at = rows[np.repeat(np.arange(block.num_rows), np.diff(block.indptr))], columns[block.indices]
            np.testing.assert_array_equal(block.values, matrix[at].astype(np.float32))
            if matrix is a:
                seen[at] += block.values
    np.testing.assert_allclose(seen, a)


def test_a_graph_whose_weights_are_all_1_is_the_graph_without_weights(tmp_path):
    """To the bit: the same shards and statistics in the same files."""
    graph = random_graph(2, vertices=20)
    src, dst = graph.indices, np.repeat(np.arange(20), np.diff(graph.indptr))
    given = {"features": graph.features, "labels": graph.labels.clip(0), "edges": np.stack([src, dst])}
    files = {}
    for name, more in (("plain", {}), ("ones", {"edge_weight": np.ones(len(src))})):
        np.savez(tmp_path / f"{name}.npz", **given, **more)
        config = Source(name="mine", source="npz", path=str(tmp_path / f"{name}.npz"))
        loaded = config.load(tmp_path, 1)
        assert loaded.weights is None
        spec = config.fingerprint(tmp_path, 1)
        cache = Cache(tmp_path / f"cache-{name}")
        folder = shards_for(cache, spec, lambda: loaded, Random(), 2, 1)  # noqa: B023
        files[name] = {f.name: f.read_bytes() for f in folder.iterdir() if f.name != "spec.json"}
    assert files["plain"] == files["ones"] and len(files["plain"]) == 3


@st.composite
def weighted_lists(draw):
    n = draw(st.integers(1, 8))
    pair = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.sampled_from([0.0, 0.5, 1.0, 2.5]))
    listed = draw(st.lists(pair, min_size=1, max_size=30))
    src, dst, weights = (np.array(column) for column in zip(*listed))
    return n, src, dst, weights


def added_up(n: int, src, dst, weights) -> tuple[np.ndarray, np.ndarray]:
    """[V, V]: each edge's weight, and whether it is there."""
    want, there = np.zeros((n, n)), np.zeros((n, n), bool)
    np.add.at(want, (dst, src), weights)
    there[dst, src] = True
    # Where all are 1 there are no weights at all: a repeated edge counts once.
    return there.astype(float) if (weights == 1).all() else want, there


@given(weighted_lists(), st.booleans())
def test_repeated_edges_add_up(edges, stored):
    n, src, dst, weights = edges
    want, there = added_up(*edges)
    if stored:
        order = np.argsort(src, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(src, minlength=n))])
        got = csr.from_csr(indptr, dst[order], symmetrise=False, weights=weights[order])
    else:
        got = csr.from_edges(src, dst, n, symmetrise=False, weights=weights)
    rows = np.repeat(np.arange(n), np.diff(got.indptr))
    assert got.indices.dtype == got.indptr.dtype == np.int32
    assert (there[rows, got.indices]).all() and len(rows) == there.sum()
    values = np.ones(len(rows)) if got.weights is None else got.weights
    np.testing.assert_allclose(values, want[rows, got.indices])
    assert csr.rows_ascend(got.indptr, got.indices)
    assert got.symmetric == (np.array_equal(want, want.T) and np.array_equal(there, there.T))


@given(weighted_lists())
def test_an_undirected_edge_has_one_weight(edges):
    n, src, dst, weights = edges
    want, there = added_up(*edges)
    if ((want != want.T) & there & there.T).any():
        with pytest.raises(InputError, match="give both the same weight"):
            csr.from_edges(src, dst, n, symmetrise=True, weights=weights)
        return
    got = csr.from_edges(src, dst, n, symmetrise=True, weights=weights)
    want = np.where(there, want, want.T)
    rows = np.repeat(np.arange(n), np.diff(got.indptr))
    assert got.symmetric and len(rows) == (there | there.T).sum()
    np.testing.assert_allclose(1 if got.weights is None else got.weights, want[rows, got.indices])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_at_the_bounds_can_be_used(dtype):
    weights = np.array([1e-30, 1e30], dtype)
    got = csr.from_edges(np.array([0, 1]), np.array([1, 2]), 3, symmetrise=False, weights=weights)
    np.testing.assert_array_equal(got.weights, weights.astype(np.float32))


def test_a_graph_refuses_weights_of_another_shape_or_sign():
    graph = a_weighted_graph(1)
    with pytest.raises(InputError, match="one float32 per edge"):
        validate(graph.replace(weights=graph.weights[1:]))
    with pytest.raises(InputError, match="finite ones of 0 or more"):
        validate(graph.replace(weights=-graph.weights))


def test_what_weights_have_no_sense_for_refuses_them():
    weighted = dataclasses.replace(facts_of("gcn"), weighted=True)
    attention = dataclasses.replace(facts_of("gat"), weighted=True)
    for name, facts, mend in (
        ("vanilla", attention, "give model=gcn"),
        ("pscgcn", weighted, "give another system"),
        ("capgnn", weighted, "give system.rapa=false"),
    ):
        system = make_system(systems.block(name))
        assert mend in system.supports(facts)
        assert system.supports(dataclasses.replace(facts, weighted=False)) is None
