"""The fewest messages for a worker's cut edges: as many as a maximum matching has, and they serve each edge
once.
"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from harness.data.partition.shard import Csr
from systems.parts.cover import least_cover, rows_alone


@st.composite
def blocks(draw):
    """Cut edges into up to 12 rows from up to 5 owners; some have no vertices, or none with an edge."""
    counts = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5))
    n, m = draw(st.integers(0, 12)), sum(counts)
    density = draw(st.sampled_from([0.0, 0.1, 0.3, 0.7, 1.0]))
    dense = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).random((n, m)) < density
    return dense, counts


def csr(dense: np.ndarray) -> Csr:
    made = sparse.csr_matrix(dense)
    return Csr(made.indptr.astype(np.int32), made.indices.astype(np.int32), dense.shape[1])


def matching(dense: np.ndarray) -> int:
    """Edges of a maximum matching, by augmenting paths (Kuhn)."""
    n, m = dense.shape
    mate = [-1] * m

    def augment(v: int, seen: set[int]) -> bool:
        for u in np.flatnonzero(dense[v]).tolist():
            if u not in seen:
                seen.add(u)
                if mate[u] < 0 or augment(mate[u], seen):
                    mate[u] = v
                    return True
        return False

    return sum(augment(v, set()) for v in range(n))


def served(cover, block: Csr) -> np.ndarray:
    """How often each entry of the block is served."""
    return np.bincount(cover.entries, minlength=block.num_entries) + cover.rows[block.indices]


def messages(cover) -> int:
    return int(cover.rows.sum()) + len(cover.target)


@given(blocks())
def test_a_cover_serves_each_edge_once_with_as_few_messages_as_a_matching_has_edges(given):
    dense, counts = given
    block, ends = csr(dense), np.cumsum(counts)
    cover = least_cover(block, counts)
    assert (served(cover, block) == 1).all()
    assert messages(cover) == sum(matching(dense[:, end - c : end]) for end, c in zip(ends, counts))
    row = np.repeat(np.arange(len(dense)), np.diff(block.indptr))
    for target, owner, first, last in zip(cover.target, cover.owner, cover.starts, cover.starts[1:]):
        entries = cover.entries[first:last]
        assert last > first and (row[entries] == target).all(), "a sum that nobody needs is no message"
        columns = block.indices[entries]
        assert (columns < ends[owner]).all() and (columns >= ends[owner] - counts[owner]).all()
        assert (np.diff(columns) > 0).all()
    order = list(zip(cover.owner.tolist(), cover.target.tolist()))
    assert order == sorted(set(order))
    alone = rows_alone(block, counts)
    assert (served(alone, block) == 1).all() and len(alone.starts) == 1
    assert (alone.rows == dense.any(0)).all() and messages(alone) == dense.any(0).sum() >= messages(cover)
