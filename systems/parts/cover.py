"""The fewest messages that serve the cut edges of a worker: a least vertex cover, exact.

A cut edge u -> v between two workers is served by u's row, which the receiver aggregates, or by v's partial
sum of the rows of one sender, which the sender aggregates. Rows and sums that serve every edge are a vertex
cover of the bipartite graph of cut edges (vertices v of the receiver on one side, remote vertices u on the
other), and the fewest are as many as the edges of a maximum matching (Koenig's theorem). The matching is
scipy's, by Hopcroft and Karp; the cover follows from it by alternating paths, in linear time. The graphs of
all senders are disjoint and are matched in one pass: a vertex v has a sum of its own for each sender.

Notation: n rows of the receiver, m remote vertices in halo order (grouped by owner), P owners.
"""

from dataclasses import dataclass

import numpy as np

from harness.data.partition.shard import Csr


@dataclass
class Cover:
    """Which messages serve a block of cut edges.

    rows     [m] bool: the remote vertices whose rows travel
    target   [d] int64: the receiver's row of each partial sum, ascending by owner, then by row
    owner    [d] int64: the worker that makes each of them
    entries  [e] int64: places in the block's entries that a partial sum adds up, grouped by sum
    starts   [d + 1] int64: where each sum's entries begin
    """

    rows: np.ndarray
    target: np.ndarray
    owner: np.ndarray
    entries: np.ndarray
    starts: np.ndarray


def rows_alone(block: Csr, counts: list[int]) -> Cover:
    """Every remote vertex that an edge leaves sends its row: what an exchange without partial sums does."""
    rows = np.zeros(block.num_columns, bool)
    rows[block.indices] = True
    return Cover(rows, *_sums(block, counts, rows, np.zeros(0, np.int64), np.zeros(0, np.int64)))


def least_cover(block: Csr, counts: list[int]) -> Cover:
    """The fewest messages for the edges of block [n, m], whose rows are ascending; counts [P] are the remote
    vertices of each owner, which add up to m.
    """
    owners = np.repeat(np.arange(len(counts)), counts)
    starts, row, owner = _groups(block, owners)
    mate = _matching(starts, block.indices, block.num_columns)
    rows, summed = _koenig(starts, block.indices, mate, block.num_columns)
    return Cover(rows, *_sums(block, counts, rows, row[summed], owner[summed]))


def _groups(block: Csr, owners: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The runs of entries of one row from one owner: where they start [g + 1], their rows and owners [g]."""
    row = np.repeat(np.arange(block.num_rows, dtype=np.int32), np.diff(block.indptr))
    owner = owners[block.indices]
    new = np.ones(len(row), bool)
    new[1:] = (row[1:] != row[:-1]) | (owner[1:] != owner[:-1])
    first = np.flatnonzero(new)
    return np.append(first, len(row)), row[first].astype(np.int64), owner[first]


def _matching(starts: np.ndarray, indices: np.ndarray, columns: int) -> np.ndarray:
    """[g] int32: the column that a maximum matching gives each group, -1 for none."""
    from scipy import sparse  # most runs need no plan, and start without it
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if not len(indices):
        return np.full(len(starts) - 1, -1, np.int32)
    ones = np.ones(len(indices), np.int8)
    graph = sparse.csr_matrix((ones, indices, starts.astype(np.int32)), shape=(len(starts) - 1, columns))
    return maximum_bipartite_matching(graph, perm_type="column")


def _koenig(
    starts: np.ndarray, indices: np.ndarray, mate: np.ndarray, columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """Columns [columns] and groups [g] of a least cover, as bool.

    An alternating path goes from a group that is matched to nothing to any column, and from a column to the
    group that it is matched to. Groups that no such path reaches and columns that one does cover every edge,
    and each of them is an end of another edge of the matching.
    """
    from scipy import sparse
    from scipy.sparse.csgraph import breadth_first_order

    groups, matched = len(mate), np.flatnonzero(mate >= 0)
    # Nodes: the groups, then the columns, then one from which paths begin.
    start, ends = groups + columns, [np.repeat(np.arange(groups), np.diff(starts)), groups + mate[matched]]
    tails = np.concatenate([*ends, np.full(groups - len(matched), groups + columns)])
    heads = np.concatenate([groups + indices.astype(np.int64), matched, np.flatnonzero(mate < 0)])
    paths = sparse.csr_matrix((np.ones(len(tails), np.int8), (tails, heads)), shape=(start + 1, start + 1))
    reached = np.zeros(start + 1, bool)
    reached[breadth_first_order(paths, start, return_predecessors=False)] = True
    return reached[groups:-1], ~reached[:groups]


def _sums(
    block: Csr, counts: list[int], rows: np.ndarray, target: np.ndarray, owner: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`target`, `owner`, `entries` and `starts` of a cover: an edge that a row serves is in no sum."""
    order = np.lexsort((target, owner))
    target, owner = target[order], owner[order]
    left = np.flatnonzero(~rows[block.indices])  # edges that sums serve
    owners = np.repeat(np.arange(len(counts)), counts)
    row = np.searchsorted(block.indptr, left, side="right") - 1
    # Edges and sums are both sorted by owner, then by row: each edge that is left belongs to one sum.
    key = owners[block.indices[left]] * np.int64(block.num_rows) + row
    by_sum = np.argsort(key, kind="stable")
    starts = np.searchsorted(key[by_sum], owner * np.int64(block.num_rows) + target)
    return target, owner, left[by_sum], np.append(starts, len(left))
