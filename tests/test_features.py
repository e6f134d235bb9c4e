"""Features kept sparse: rows, products, gradients and dropout as of the dense ones, in training by every
system.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core.adjacency import Adjacency
from harness.core.features import (
    Features,
    SparseRows,
    compact,
    drop_rows,
    interleaved,
    rows_times,
    sparse_rows,
)
from harness.core.kernels.spmm import NumbaKernel
from harness.core.propagate import HaloDropout, propagate, propagate_gathered
from harness.core.system import Ready
from harness.data.partition.build import build_shards
from systems.parts.boundary import FeatureCache
from tests import systems
from tests.graphs import random_graph
from tests.oracles import dense
from tests.systems import Settings

KERNEL, CPU = NumbaKernel(), torch.device("cpu")


def bag_of_words(rows, width, share, seed=0, dtype=torch.float32):
    drawn = np.random.default_rng(seed)
    words = drawn.standard_normal((rows, width)) * (drawn.random((rows, width)) < share)
    return torch.from_numpy(words).to(dtype)


shapes = {
    "rows": st.integers(0, 9),
    "width": st.integers(0, 70),
    "share": st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    "seed": st.integers(0, 99),
    "dtype": st.sampled_from([torch.float32, torch.float64]),
}


@given(**shapes)
def test_sparse_rows_are_the_values_that_are_not_0(rows, width, share, seed, dtype):
    x = bag_of_words(rows, width, share, seed, dtype)
    found = sparse_rows(x, KERNEL)
    dense_rows = np.zeros((rows, width), x.numpy().dtype)
    at = np.repeat(np.arange(rows), np.diff(found.block.indptr))
    dense_rows[at, found.block.indices] = found.entries
    assert np.array_equal(dense_rows, x.numpy()) and (found.entries != 0).all()
    count = int(torch.count_nonzero(x))
    assert isinstance(compact(x, KERNEL, count), SparseRows)
    if count:
        assert compact(x, KERNEL, count - 1) is x, "too many values are left dense"


@given(p=st.sampled_from([0.0, 0.3, 0.9]), key=st.integers(0, 2**63), **shapes)
def test_dropout_of_sparse_rows_drops_what_it_drops_of_dense_ones(rows, width, share, seed, dtype, p, key):
    x = bag_of_words(rows, width, share, seed, dtype)
    ids = torch.from_numpy(np.random.default_rng(seed).permutation(10**6)[:rows].astype(np.int32))
    assert torch.equal(
        rows_times(drop_rows(sparse_rows(x, KERNEL), ids, p, key), torch.eye(width, dtype=dtype)),
        rows_times(drop_rows(x, ids, p, key), torch.eye(width, dtype=dtype)),
    )


def halves(model="symmetric", **features):
    """Two workers' shards of a graph with bags of words: worker 0's adjacency, X, X_halo and all ids."""
    graph = random_graph(60, 6, seed=3)
    x = bag_of_words(60, 400, 0.01).numpy()
    graph = dataclasses.replace(graph, features=x)
    shard = next(iter(build_shards(graph, (np.arange(60) % 2).astype(np.int32), 2)))
    own, halo = torch.from_numpy(x[shard.inner]), torch.from_numpy(x[shard.halo])
    return Adjacency(shard, model, KERNEL, CPU), own, halo, shard


@pytest.mark.parametrize("gathered", [False, True], ids=["returned", "gathered"])
@pytest.mark.parametrize("p", [0.0, 0.4])
def test_a_product_with_sparse_features_is_the_dense_one(p, gathered):
    adjacency, x, x_halo, shard = halves()
    drop = HaloDropout(p, torch.as_tensor(shard.inner), torch.as_tensor(shard.halo), key=5)

    def product():
        weight = torch.linspace(-1, 1, 400 * 8).view(400, 8).requires_grad_()
        if gathered:
            remote = torch.ones(len(shard.outward.halo), 8)
            z = propagate_gathered(adjacency, x, Ready(x_halo), weight, drop, lambda delta: Ready(remote))
        else:
            z = propagate(adjacency, x, Ready(x_halo), weight, drop)
        z.square().sum().backward()
        return z.detach(), weight.grad

    as_dense = product()
    adjacency.features = Features(x, adjacency.num_entries, KERNEL)
    assert adjacency.features.sparse and adjacency.layer_0(x.clone()) is None
    for found, wanted in zip(product(), as_dense):
        assert not torch.equal(found, torch.zeros_like(found))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_rows_with_many_values_stay_dense():
    full = torch.ones(5, 40)
    assert not Features(full, 0, KERNEL).sparse
    assert Features(bag_of_words(5, 400, 0.01), 0, KERNEL).halo(full) is full


@pytest.mark.parametrize(
    "name, model",
    [
        *(("vanilla", "gcn"), ("vanilla", "sage"), ("cagnet", "gcn")),
        *(("pscgcn", "sage"), ("capgnn", "gcn"), ("cdfgnn", "sage")),
    ],
)
def test_systems_at_their_exact_knob_train_on_sparse_features(pool, name, model):
    """Features fetched in every epoch, of which 1 in 50 values is not 0."""
    graph = random_graph(23, 5, num_features=300, seed=6)
    graph = dataclasses.replace(graph, features=bag_of_words(23, 300, 0.02).numpy())
    settings = Settings(model=systems.small(model), epochs=4)
    block = systems.block(name, **{**systems.EXACT[name][0], "features": "refetch"})
    outcome = systems.run(pool, graph, block, 3, settings=settings)
    history = dense.train(
        graph, outcome.weights[0], model=model, epochs=4, normalisation="symmetric", **settings.optimiser
    )
    systems.assert_trained_alike(outcome, history)
    # the sparse form's operations are far fewer than 2 n f_in f_out
    own = outcome.workers[0]["spans"][0][1]
    forward = sum(span.flops for span in own if (span.name, span.layer) == ("forward", 0))
    assert 0 < forward < 2 * 8 * 300 * 4


def test_halo_rows_in_memory_that_was_not_written_are_made_sparse_once():
    x, halo = bag_of_words(20, 60, 0.05), bag_of_words(9, 60, 0.05, seed=1)
    features = Features(x, 0, KERNEL)
    first = features.halo(halo.detach())
    assert isinstance(first, SparseRows) and features.halo(halo.detach()) is first
    weight = torch.randn(60, 3)
    halo[4] = x[4]
    again = features.halo(halo.detach())
    assert again is not first
    torch.testing.assert_close(rows_times(again, weight), halo @ weight)
    other = halo * 2
    torch.testing.assert_close(rows_times(features.halo(other), weight), other @ weight)
    del other  # its memory may be the next one's
    for factor in range(3, 9):
        another = halo * factor
        torch.testing.assert_close(rows_times(features.halo(another), weight), another @ weight)
        del another
    part = halo[:4]
    torch.testing.assert_close(rows_times(features.halo(part), weight), part @ weight)
    assert features.halo(halo[:3]).num_rows == 3
    full = torch.ones(9, 60)
    assert features.halo(full) is full and features.halo(full) is full


@given(
    kept=st.integers(0, 6),
    width=st.integers(1, 40),
    share=st.floats(0, 0.6),
    hit=st.lists(st.booleans(), max_size=12),
    seed=st.integers(0, 100),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_kept_and_arrived_rows_are_put_in_order_as_the_dense_ones(kept, width, share, hit, seed, dtype):
    hit = np.array([each and kept > 0 for each in hit], bool)
    store = bag_of_words(kept, width, share, seed, dtype)
    arrived = bag_of_words(int((~hit).sum()), width, share, seed + 1, dtype)
    slots = np.random.default_rng(seed).integers(0, max(kept, 1), int(hit.sum()))
    dense = torch.empty(len(hit), width, dtype=dtype)
    dense[torch.from_numpy(hit)], dense[torch.from_numpy(~hit)] = store[torch.from_numpy(slots)], arrived
    rows = interleaved(sparse_rows(store, KERNEL), slots, hit, arrived)
    if rows is None:
        assert 2 * int(torch.count_nonzero(arrived)) > arrived.numel()
        return
    expected = sparse_rows(dense, KERNEL)
    for name in ("indptr", "indices"):
        np.testing.assert_array_equal(getattr(rows.block, name), getattr(expected.block, name))
    np.testing.assert_array_equal(rows.entries, expected.entries)


def kept_features(x: torch.Tensor) -> FeatureCache:
    """A cache of halo rows of x, before any is kept."""
    features = SimpleNamespace(sparse=True)
    system = SimpleNamespace(
        shard=SimpleNamespace(num_halo=len(x), features=x), plan=SimpleNamespace(send_rows=torch.arange(0)),
        full=SimpleNamespace(kernel=KERNEL, features=features), features="refetch", cache=0.5,
        device=x.device, dtype=x.dtype,
    )  # fmt: skip
    return FeatureCache(system)


@given(st.lists(st.lists(st.integers(0, 11), unique=True), min_size=1, max_size=5), st.integers(0, 9))
def test_a_cache_that_is_renewed_completes_rows_without_their_zeros_as_dense_ones(chosen, seed):
    """After every renewal a graph is drawn, and completed after the next one."""
    x = bag_of_words(12, 40, 0.1, seed)
    cache, before = kept_features(x), None
    for places in chosen:
        kept = torch.zeros(12, dtype=torch.bool)
        kept[places] = True
        fresh = kept & ~cache.kept
        cache.replace(kept, fresh, x[fresh])
        assert torch.equal(cache.rows[cache.place[kept].long()], x[kept])
        hit = cache.kept.clone()
        drawn = SimpleNamespace(
            rows=cache.rows, sparse=cache.sparse, hit=hit, slots=cache.place[hit].long(), boundary=range(12)
        )
        for each in filter(None, (before, drawn)):
            rows = cache.complete_sparse(each, x[~each.hit])
            assert isinstance(rows, SparseRows) and torch.equal(cache.complete(each, x[~each.hit]), x)
            assert torch.equal(rows_times(rows, torch.eye(40)), x)
        before = drawn


@given(
    st.lists(st.lists(st.integers(0, 11), unique=True), min_size=1, max_size=6),
    st.lists(st.sampled_from([0.05, 0.9]), min_size=12, max_size=12),
)
def test_what_a_cache_keeps_without_zeros_depends_on_its_rows_alone(chosen, shares):
    """So that a run that goes on from a checkpoint has what one that was never stopped has."""
    x = torch.cat([bag_of_words(1, 40, share, seed) for seed, share in enumerate(shares)])
    cache = kept_features(x)
    for places in chosen:
        kept = torch.zeros(12, dtype=torch.bool)
        kept[places] = True
        fresh = kept & ~cache.kept
        cache.replace(kept, fresh, x[fresh])
        expected = cache.without_zeros(cache.rows)
        assert (cache.sparse is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(cache.sparse.block.indptr, expected.block.indptr)
            np.testing.assert_array_equal(cache.sparse.block.indices, expected.block.indices)
            np.testing.assert_array_equal(cache.sparse.entries, expected.entries)


@pytest.mark.parametrize("stop_at", [4, 5])  # before an epoch that renews, and before another
def test_sparse_cached_features_go_on_bit_for_bit(pool, stop_at):
    """A graph that was drawn before the stop is completed from rows of a renewal before the last."""
    graph = dataclasses.replace(
        random_graph(40, 6, num_features=300, seed=6), features=bag_of_words(40, 300, 0.02).numpy()
    )
    knobs = {"features": "refetch", "cache": 0.5, "refresh": 2, "rate": 0.6, "tau": 2}
    model = systems.small(dropout=0.4)
    runs = [
        systems.run(
            pool, graph, systems.block("pscgcn", **knobs), 3,
            settings=Settings(model=model, epochs=10, dtype="float32", **stop),
        )
        for stop in ({}, {"stop_at": stop_at})
    ]  # fmt: skip
    once, resumed = runs
    assert resumed.losses == once.losses
    for mine, theirs in zip(once.workers, resumed.workers, strict=True):
        # What is under way is waited for at a checkpoint: segments differ, and what they compute does not.
        computed, again = (
            [[work for span in spans if span.name == "forward" for work in span.work] for _, spans in epochs]
            for epochs in (mine["spans"], theirs["spans"])
        )
        assert computed == again


def test_a_cache_of_rows_that_are_mostly_not_0_stays_dense():
    x = torch.ones(4, 40)
    cache, every = kept_features(x), torch.ones(4, dtype=torch.bool)
    cache.replace(every, every, x)
    assert cache.sparse is None
    assert cache.complete_sparse(SimpleNamespace(sparse=cache.sparse), x[:0]) is None
    cache.load_state_dict(cache.state_dict())
    assert cache.sparse is None and torch.equal(cache.rows, x)
