"""CoFree-GNN: what it sends, where it is exact, and its masks of edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.data.partition.shard import Csr
from harness.data.partition.vertexcut import assign_edges
from harness.run.config import make_system
from systems.cofree import kept
from tests import systems
from tests.oracles import bytes as count
from tests.oracles.samples import random_graph, with_edge_weights
from tests.systems import Settings


@pytest.mark.parametrize("features", ["once", "refetch"])
@pytest.mark.parametrize("drop_edges", [0, 2])
def test_bytes_are_weights_and_the_features_of_mirrors(pool, features, drop_edges):
    block = systems.block("cofree", features=features, drop_edges=drop_edges)
    how = Settings(dtype="float32", epochs=3)
    outcome = systems.run(pool, random_graph(12, vertices=40), block, 4, settings=how)
    mirrors = len(outcome.assignment.replicas()[1]) - 40
    weights = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(3):
        sent = {key: size for key, (_, size) in outcome.sent(epoch).items()}
        assert sent.pop((-1, "backward", "weights")) == count.all_reduce(weights, 4)
        purpose = "features" if features == "once" else "halo"
        due = features == "refetch" or epoch == 0
        assert sent == ({(0, "forward", purpose): 4 * outcome.widths[0] * mirrors} if due else {})


@pytest.mark.parametrize("multilabel, weighted", [(False, True), (True, False)])
@pytest.mark.parametrize("degrees", ["global", "local"])
def test_where_no_vertex_is_cut_it_is_full_graph_training(pool, multilabel, weighted, degrees):
    """Of two graphs beside each other each worker has one."""
    graph = random_graph(5, vertices=24, multilabel=multilabel)
    rows = np.repeat(np.arange(24), np.diff(graph.indptr))
    left = rows // 12 == graph.indices // 12
    ends = np.concatenate([[0], np.cumsum(left)])
    graph = graph.replace(indptr=ends[graph.indptr].astype(np.int32), indices=graph.indices[left])
    graph = with_edge_weights(graph, 6) if weighted else graph
    cut = assign_edges(graph, "ebv", 2, 0)
    cut.owner[:] = cut.low // 12
    outcome = systems.run(pool, graph, systems.block("cofree", degrees=degrees), 2, assignment=cut)
    assert len(cut.replicas()[1]) == 24
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, Settings()))


def test_masks_that_drop_nothing_change_nothing(pool):
    graph, how = random_graph(9, vertices=30), Settings(epochs=4)
    one, other = (
        systems.run(pool, graph, systems.block("cofree", drop_edges=k, drop_rate=0.0), 3, settings=how)
        for k in (0, 2)
    )
    np.testing.assert_allclose(one.losses, other.losses, rtol=1e-12)


@given(seed=st.integers(0, 10**6), mask=st.integers(0, 5), rate=st.floats(0, 1))
def test_a_mask_keeps_both_directions_of_an_edge_or_neither(seed, mask, rate):
    """Whoever holds them, under whatever local numbers."""
    n = 9
    whole = Csr(np.arange(n + 1, dtype=np.int32) * n, np.tile(np.arange(n, dtype=np.int32), n), n)
    ids = np.arange(n, dtype=np.int32)
    found = dense(kept(whole, ids, seed, mask, rate))
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(dense(kept(whole, ids[::-1], seed, mask, rate)), found[::-1, ::-1])
    assert not found.any() if rate == 1 else rate or found.all()


def test_masks_drop_their_share_of_edges_and_differ():
    n = 300
    whole = Csr(np.arange(n + 1, dtype=np.int32) * n, np.tile(np.arange(n, dtype=np.int32), n), n)
    masks = [dense(kept(whole, np.arange(n, dtype=np.int32), 3, mask, 0.3)) for mask in range(3)]
    pairs, lower = n * (n - 1) / 2, np.tril_indices(n, -1)
    for k, mask in enumerate(masks):
        assert abs(mask[lower].mean() - 0.7) < 5 * np.sqrt(0.21 / pairs)
        for other in masks[:k]:
            assert abs((mask == other)[lower].mean() - 0.58) < 5 * np.sqrt(0.25 / pairs)


def dense(block: Csr) -> np.ndarray:
    """[rows, columns] bool"""
    found = np.zeros((block.num_rows, block.num_columns), bool)
    found[np.repeat(np.arange(block.num_rows), np.diff(block.indptr)), block.indices] = True
    return found


def test_a_knob_that_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(InputError, match=r'degrees="in" .*global.*local'):
        make_system(systems.block("cofree", degrees="in"))
    with pytest.raises(InputError, match=r"drop_rate=2"):
        make_system(systems.block("cofree", drop_rate=2.0))
