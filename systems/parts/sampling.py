"""Sampling halo rows, and sampling in-edges: Theorem 2's probabilities, Bernoulli draws by counter, and what
was drawn as sparse operators.

Edges of a worker's n inner rows are numbered as one CSR over n + m columns, inner vertices first, halo
vertices after; self-loops are not among them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numba
import numpy as np
import torch

from harness.base.splitmix import GOLDEN, mix
from harness.core.adjacency import Adjacency, Propagation
from harness.core.kernels.spmm import SparseOperator
from harness.data.partition.shard import Csr, Shard
from systems.parts.some_columns import columns_of


@dataclass
class Edges:
    """The edges into a worker's inner rows, as one CSR.

    indptr [n + 1] int64, columns [E] int32; ids [n + m] global ids of the columns, the first n those of
    the rows.
    """

    indptr: np.ndarray
    columns: np.ndarray
    ids: np.ndarray
    num_inner: int

    @staticmethod
    def of(shard: Shard) -> Edges:
        """The edges of a shard, inner and halo blocks merged row by row."""
        blocks, n = (shard.inner_edges, shard.halo_edges), shard.num_inner
        rows = np.concatenate([np.repeat(np.arange(n, dtype=np.int32), np.diff(b.indptr)) for b in blocks])
        columns = np.concatenate([blocks[0].indices, blocks[1].indices + np.int32(n)])
        columns = columns[np.argsort(rows, kind="stable")]  # a row's inner columns first
        indptr = blocks[0].indptr.astype(np.int64) + blocks[1].indptr
        # What a later epoch is the first to call is compiled here, outside the train clock.
        _water_fill(indptr[:1], columns, np.empty(0), 1.0, np.empty(0))
        return Edges(indptr, columns, np.concatenate([shard.inner, shard.halo]), n)

    def probabilities(self, weight: np.ndarray, rate: float) -> np.ndarray:
        """p [E] of Theorem 2 for column weights sqrt(a_j) ||y_j|| [n + m]: proportional to the weight, at
        most 1, adding up to rate * in-degree in every row; rate for each edge of a row whose weights are all
        0."""
        p = np.empty(len(self.columns))
        _water_fill(self.indptr, self.columns, np.ascontiguousarray(weight, np.float64), rate, p)
        return p

    def draw(self, p: np.ndarray, key: int) -> np.ndarray:
        """Which edges are drawn [E] bool: (i, j) with probability p_ij, by (key, global i, global j) alone,
        so the same for any partition.
        """
        return _draw(self.indptr, self.columns, self.ids, p, np.uint64(key & (2**64 - 1)))

    def inclusion(self, p: np.ndarray) -> np.ndarray:
        """1 - prod_i (1 - p_ij) of every halo vertex j  [m]."""
        missed = np.ones(len(self.ids))
        np.multiply.at(missed, self.columns, 1.0 - p)
        return 1.0 - missed[self.num_inner :]


@numba.njit(cache=True, nogil=True)
def _water_fill(indptr, columns, weight, rate, p):
    """p <- `Edges.probabilities`, row by row: the row's budget is shared out by weight; edges that would get
    1 or more get 1, and what is left of the budget is shared out among the others, until none is capped."""
    for v in range(len(indptr) - 1):
        start, end = indptr[v], indptr[v + 1]
        budget, free = rate * (end - start), end - start
        for e in range(start, end):
            p[e] = -1.0
        while free:
            total = 0.0
            for e in range(start, end):
                if p[e] < 0:
                    total += weight[columns[e]]
            filled = 0
            if total > 0:
                for e in range(start, end):
                    if p[e] < 0 and weight[columns[e]] * budget >= total:
                        # full: counted out of the budget after this round, which compares against one total
                        p[e] = 2.0
                        filled += 1
            if not filled:
                for e in range(start, end):
                    if p[e] < 0:
                        p[e] = weight[columns[e]] * budget / total if total > 0 else budget / free
                free = 0
            else:
                for e in range(start, end):
                    if p[e] == 2.0:
                        p[e] = 1.0
                budget, free = budget - filled, free - filled


@numba.njit(cache=True, nogil=True)
def _draw(indptr, columns, ids, p, key):
    mask = np.empty(len(columns), np.bool_)
    base = mix(key)
    for v in range(len(indptr) - 1):
        row = mix(base + np.uint64(ids[v]) * np.uint64(GOLDEN))
        for e in range(indptr[v], indptr[v + 1]):
            bits = mix(row + np.uint64(ids[columns[e]]) * np.uint64(GOLDEN))
            mask[e] = (bits >> np.uint64(11)) * (1.0 / 9007199254740992.0) < p[e]
    return mask


@numba.njit(cache=True, nogil=True)
def _places(mask):
    """Where `mask` is true, ascending. Every place is written, and overwritten by the next unless it counts:
    a branch that goes by chance is mispredicted."""
    places, k = np.empty(len(mask) + 1, np.int64), 0
    for e in range(len(mask)):
        places[k] = e
        k += mask[e]
    return places[:k]


@numba.njit(cache=True, nogil=True)
def _compress(indptr, columns, mask, factor, n, m):
    """The drawn edges as an inner and a halo block, and the halo columns that they touch, which are numbered
    anew in their order.
    """
    rows, inner_entries = len(indptr) - 1, 0
    drawn_edges = _places(mask)
    place = np.full(m, -1, np.int32)
    for e in drawn_edges:
        if columns[e] < n:
            inner_entries += 1
        else:
            place[columns[e] - n] = 0
    touched = np.flatnonzero(place >= 0)
    for k in range(len(touched)):
        place[touched[k]] = k
    inner_indptr, halo_indptr = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
    inner, inner_values = np.empty(inner_entries, np.int32), np.empty(inner_entries, factor.dtype)
    halo_entries = len(drawn_edges) - inner_entries
    halo, halo_values = np.empty(halo_entries, np.int32), np.empty(halo_entries, factor.dtype)
    i = h = 0
    for v in range(rows):
        while i + h < len(drawn_edges) and drawn_edges[i + h] < indptr[v + 1]:
            e = drawn_edges[i + h]
            if columns[e] < n:
                inner[i], inner_values[i] = columns[e], factor[e]
                i += 1
            else:
                halo[h], halo_values[h] = place[columns[e] - n], factor[e]
                h += 1
        inner_indptr[v + 1], halo_indptr[v + 1] = i, h
    return touched, inner_indptr, inner, inner_values, halo_indptr, halo, halo_values


class SampledAdjacency(Propagation):
    """Drawn edges in the place of `harness.core.adjacency.Adjacency`: A_ij / p_ij on them, the self-loop
    always kept.

    mask       [E] bool; factor [E] what each drawn edge's weight is multiplied by
    drawn      [k] int64, the halo vertices that drawn edges touch, in halo order; the halo block has these k
               columns
    """

    drawn: torch.Tensor

    def __init__(self, full: Adjacency, edges: Edges, mask: np.ndarray, factor: np.ndarray):
        n, m = edges.num_inner, len(edges.ids) - edges.num_inner
        touched, *parts = _compress(edges.indptr, edges.columns, mask, factor, n, m)
        drawn = torch.from_numpy(touched).to(full.device, non_blocking=True)
        row, column, halo_column = full.scales()
        made = partial(SparseOperator, kernel=full.kernel, device=full.device)
        near = Csr(parts[0], parts[1], n, parts[2])
        halo = None
        if len(drawn):
            far = Csr(parts[3], parts[4], len(drawn), parts[5])
            halo = made(far, row, None if halo_column is None else halo_column[touched])
        super().__init__(made(near, row, column, self_loops=full.self_loops), halo, drawn)
        self.features = full.features


class HaloSampler:
    """Makes A_ih over the halo rows drawn in an epoch, whose entries are those of the whole A_ih in their
    order.

    Only these entries are multiplied, forward and backward. To make the block reads every entry of A_ih once,
    which costs about as much as a product of width 1 or 2.
    """

    def __init__(self, full: Adjacency, shard: Shard):
        self.full, self.block = full, shard.halo_edges
        self.row, _, self.column = full.scales()

    def propagation(self, drawn: torch.Tensor) -> Propagation:
        """A_ii, and A_ih over the halo rows drawn [k] int64, ascending, on the CPU."""
        which = drawn.numpy()
        taken, column = columns_of(self.block, which), None if self.column is None else self.column[which]
        halo = SparseOperator(taken, self.row, column, kernel=self.full.kernel, device=self.full.device)
        made = Propagation(self.full.inner, halo, drawn.to(self.full.device, non_blocking=True))
        made.features = self.full.features
        return made
