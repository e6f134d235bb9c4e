"""CoFree-GNN: its masks of edges, and the bytes of copies by hand."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.data.partition.shard import Csr
from systems.cofree import kept
from tests.oracles import cofree


@given(seed=st.integers(0, 10**6), mask=st.integers(0, 5), rate=st.floats(0, 1))
def test_a_mask_keeps_both_directions_of_an_edge_or_neither(seed, mask, rate):
    """Whoever holds them, under whatever local numbers."""
    n = 9
    whole = Csr(np.arange(n + 1, dtype=np.int32) * n, np.tile(np.arange(n, dtype=np.int32), n), n)
    ids = np.arange(n, dtype=np.int32)
    found = kept(whole, ids, seed, mask, rate).dense()
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(kept(whole, ids[::-1], seed, mask, rate).dense(), found[::-1, ::-1])
    assert not found.any() if rate == 1 else rate or found.all()


def test_masks_drop_their_share_of_edges_and_differ():
    n = 300
    whole = Csr(np.arange(n + 1, dtype=np.int32) * n, np.tile(np.arange(n, dtype=np.int32), n), n)
    masks = [kept(whole, np.arange(n, dtype=np.int32), 3, mask, 0.3).dense() for mask in range(3)]
    pairs, lower = n * (n - 1) / 2, np.tril_indices(n, -1)
    for k, mask in enumerate(masks):
        assert abs(mask[lower].mean() - 0.7) < 5 * np.sqrt(0.21 / pairs)
        for other in masks[:k]:
            assert abs((mask == other)[lower].mean() - 0.58) < 5 * np.sqrt(0.25 / pairs)


def test_bytes_are_the_features_of_copies():
    edges = SimpleNamespace(parts=2, low=[0, 1, 0], high=[1, 2, 3], owner=[0, 1, 0])
    master = np.array([0, 1, 1, 0])  # vertex 1 has a copy at worker 0
    sizes = [
        cofree.epoch_bytes(edges, master, 5, features=features, first=first)
        for features in ("once", "refetch")
        for first in (True, False)
    ]
    assert sizes == [20, 0, 20, 20]
