"""Features kept sparse: rows, products, gradients and dropout as of the dense ones, in training by every
system.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.core.features import Features, SparseRows, compact, drop_rows, rows_times, sparse_rows
from harness.core.kernels.spmm import NumbaKernel
from systems.parts.boundary import FeatureCache
from tests import systems
from tests.graphs import random_graph
from tests.oracles import dense
from tests.systems import Settings

KERNEL = NumbaKernel()


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


def test_halo_rows_are_made_sparse_once_until_their_memory_is_written():
    x, halo = bag_of_words(20, 60, 0.05), bag_of_words(9, 60, 0.05, seed=1)
    features, weight = Features(x, 0, KERNEL), torch.randn(60, 3)
    first = features.halo(halo.detach())
    assert isinstance(first, SparseRows) and features.halo(halo.detach()) is first
    halo[4] = x[4]
    assert features.halo(halo.detach()) is not first
    torch.testing.assert_close(rows_times(features.halo(halo), weight), halo @ weight)
    torch.testing.assert_close(rows_times(features.halo(halo[:4]), weight), halo[:4] @ weight)
    for factor in range(2, 9):
        other = halo * factor  # in memory that was another's before
        torch.testing.assert_close(rows_times(features.halo(other), weight), other @ weight)
        del other
    full = torch.ones(9, 60)
    assert features.halo(full) is full, "rows with many values stay dense"


def kept_features(x: torch.Tensor) -> FeatureCache:
    """A cache of halo rows of x, before any is kept."""
    features = SimpleNamespace(sparse=True)
    system = SimpleNamespace(
        shard=SimpleNamespace(num_halo=len(x), features=x), plan=SimpleNamespace(send_rows=torch.arange(0)),
        full=SimpleNamespace(kernel=KERNEL, features=features), features="refetch", cache=0.5,
        device=x.device, dtype=x.dtype,
    )  # fmt: skip
    return FeatureCache(system)


@given(
    chosen=st.lists(st.lists(st.integers(0, 11), unique=True), min_size=1, max_size=5),
    shares=st.lists(st.sampled_from([0.05, 0.05, 0.9]), min_size=12, max_size=12),
)
def test_a_cache_completes_rows_as_dense_ones_and_keeps_sparse_what_its_rows_say(chosen, shares):
    """After every renewal a graph is drawn, and completed after the next one. What is kept sparse depends on
    the rows alone, so a run that goes on from a checkpoint has what one that was never stopped has."""
    x = torch.cat([bag_of_words(1, 40, share, seed) for seed, share in enumerate(shares)])
    cache, before = kept_features(x), None
    for places in chosen:
        kept = torch.zeros(12, dtype=torch.bool)
        kept[places] = True
        fresh = kept & ~cache.kept
        cache.replace(kept, fresh, x[fresh])
        assert torch.equal(cache.rows[cache.place[kept].long()], x[kept])
        expected = cache.without_zeros(cache.rows)
        assert (cache.sparse is None) == (expected is None)
        if expected is not None:
            np.testing.assert_array_equal(cache.sparse.block.indptr, expected.block.indptr)
            np.testing.assert_array_equal(cache.sparse.block.indices, expected.block.indices)
            np.testing.assert_array_equal(cache.sparse.entries, expected.entries)
        hit = cache.kept.clone()
        drawn = SimpleNamespace(
            rows=cache.rows, sparse=cache.sparse, hit=hit, slots=cache.place[hit].long(), boundary=range(12)
        )
        for each in filter(None, (before, drawn)):
            assert torch.equal(cache.complete(each, x[~each.hit]), x)
            rows = cache.complete_sparse(each, x[~each.hit])
            if rows is None:
                assert max(shares) > 0.5
            else:
                assert torch.equal(rows_times(rows, torch.eye(40)), x)
        before = drawn


def test_sparse_cached_features_go_on_bit_for_bit(pool):
    """Before an epoch that renews, and before another: a graph that was drawn before the stop is completed
    from rows of a renewal before the last."""
    graph = dataclasses.replace(
        random_graph(40, 6, num_features=300, seed=6), features=bag_of_words(40, 300, 0.02).numpy()
    )
    block = systems.block("pscgcn", features="refetch", cache=0.5, refresh=2, rate=0.6, tau=2)
    how = Settings(model=systems.small(dropout=0.4), epochs=8, dtype="float32")
    once, *resumed = (
        systems.run(pool, graph, block, 3, settings=dataclasses.replace(how, stop_at=stop))
        for stop in (None, 4, 5)
    )
    for each in resumed:
        assert each.losses == once.losses
