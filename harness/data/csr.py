"""Building the CSR of in-edges: counting sorts, linear in the edges, in 32-bit indices.

Two counting sorts make every row ascending without a comparison: bucket the edges by source, then deal the
sources out in ascending order to the rows of their targets. A repeated edge then sits beside its twin and is
dropped on the way. The largest moment holds about 24 bytes per edge beside the caller's arrays (symmetrising
an asymmetric graph)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from harness.base.errors import InputError
from harness.data import weighted
from harness.data.partition.shard import Csr


class InEdges(NamedTuple):
    """Row v of (indptr, indices): v's in-neighbours, ascending, each once; see harness.data.graph.Graph."""

    indptr: np.ndarray  # [V+1] int32, int64 from 2^31 edges on
    indices: np.ndarray  # [E] int32
    symmetric: bool  # weights too
    weights: np.ndarray | None = None  # [E] float32; None where all are 1


def from_edges(
    src: np.ndarray,
    dst: np.ndarray,
    num_vertices: int,
    *,
    symmetrise: bool,
    self_loops: bool = True,
    where: str = "edges",
    weights: np.ndarray | None = None,
) -> InEdges:
    """The in-edge CSR of the edges src[i] -> dst[i].

    src, dst     [E] integers
    num_vertices rows of the graph's features
    symmetrise   add the reverse of every edge
    self_loops   keep v -> v where it occurs
    where        what messages call these edges
    weights      [E] numbers of 0 or more, or None for 1; see harness.data.weighted for repeats and reverses

    Raises InputError where an array is not of integers, an endpoint is not a vertex or a weight cannot be
    used."""
    if src.shape != dst.shape or src.ndim != 1:
        raise InputError(
            f"{where}: sources have shape {src.shape} and targets {dst.shape}; give two lists of the same"
            " length"
        )
    src, dst = (_vertices(ends, num_vertices, where, "features") for ends in (src, dst))
    weights = weighted.checked(weights, len(src))
    if weights is not None:
        entries = weighted.summed(src, dst, weights, num_vertices, self_loops)
        return _in_weighted_edges(*entries, symmetrise)
    indptr, targets = _bucket(src, dst, num_vertices)
    return _in_edges(indptr, targets, symmetrise, self_loops)


def from_csr(
    indptr: np.ndarray,
    indices: np.ndarray,
    *,
    symmetrise: bool,
    self_loops: bool = True,
    where: str = "edges",
    weights: np.ndarray | None = None,
) -> InEdges:
    """The in-edge CSR of a stored adjacency matrix whose row u holds the targets v of the edges u -> v, in
    any order.

    Arguments and errors as `from_edges`; InputError also where indptr does not rise to len(indices)."""
    check_rows(indptr, len(indices), f"{where}: indptr")
    num_vertices = len(indptr) - 1
    targets = _vertices(indices, num_vertices, where, "indptr")
    if weights is not None:
        src = np.repeat(np.arange(num_vertices, dtype=np.int32), np.diff(indptr))
        return from_edges(
            src,
            targets,
            num_vertices,
            symmetrise=symmetrise,
            self_loops=self_loops,
            where=where,
            weights=weights,
        )
    return _in_edges(indptr.astype(np.int64), targets, symmetrise, self_loops)


def check_rows(indptr: np.ndarray, entries: int, where: str) -> None:
    """Raise InputError unless indptr begins at 0, never falls and ends at `entries`."""
    if indptr.ndim != 1 or len(indptr) < 1 or indptr.dtype.kind not in "iu":
        raise InputError(
            f"{where} has type {indptr.dtype} and shape {indptr.shape}; give integers, one more than rows"
        )
    if indptr[0] != 0 or indptr[-1] != entries or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"{where} must rise from 0 to {entries}, the number of entries")


def is_symmetric(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether u -> v is there exactly when v -> u is; rows ascend without repeats. One pass, [V] extra."""
    return bool(_is_symmetric(indptr, indices))


def rows_ascend(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether every row is strictly ascending."""
    return bool(_rows_ascend(indptr, indices))


def sparse_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, num_columns: int, where: str
) -> Csr:
    """[rows, num_columns] float32 of a sparse matrix's parts, without zeros; repeated entries add up.

    Raises InputError where the parts do not fit each other."""
    if (
        indices.shape != values.shape
        or indices.ndim != 1
        or indices.dtype.kind not in "iu"
        or values.dtype.kind not in "iufb"
    ):
        raise InputError(
            f"{where}: {indices.shape} column indices of type {indices.dtype} for {values.shape} values of"
            f" type {values.dtype}; give one integer index per value"
        )
    check_rows(indptr, len(indices), f"{where}: row pointer")
    if len(indices) and not 0 <= indices.min() <= indices.max() < num_columns:
        bad = indices[(indices < 0) | (indices >= num_columns)][0]
        raise InputError(f"{where}: column {bad} is out of range; columns are 0 to {num_columns - 1}")
    from scipy import sparse  # most graphs have dense features and start without it

    shape = len(indptr) - 1, num_columns
    found = sparse.csr_array((values.astype(np.float32), indices, indptr), shape, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    starts = found.indptr.astype(np.int32) if found.nnz < 2**31 else found.indptr
    kept = None if np.all(found.data == 1) else found.data
    return Csr(starts, found.indices.astype(np.int32, copy=False), num_columns, kept)


def _vertices(ids: np.ndarray, num_vertices: int, where: str, rows_of: str) -> np.ndarray:
    """[E] int32. `rows_of` has a row per vertex: where it is too short, the edges are not at fault."""
    if ids.dtype.kind not in "iu":
        raise InputError(f"{where}: endpoints of type {ids.dtype} are not vertex numbers; give integers")
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_vertices:
        bad = ids[(ids < 0) | (ids >= num_vertices)][0]
        raise InputError(
            f"{where}: endpoint {bad} is not a vertex; vertices are 0 to {num_vertices - 1}, one per row of "
            f"{rows_of}"
        )
    return np.ascontiguousarray(ids, dtype=np.int32)


def _in_edges(indptr: np.ndarray, targets: np.ndarray, symmetrise: bool, self_loops: bool) -> InEdges:
    indptr, indices = _transpose(indptr, targets, self_loops)
    symmetric = is_symmetric(indptr, indices)
    if symmetrise and not symmetric:
        indptr, indices = _union(indptr, indices, *_transpose(indptr, indices, True))
        symmetric = True
    return InEdges(indptr if len(indices) >= 2**31 else indptr.astype(np.int32), indices, symmetric)


def _in_weighted_edges(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray, symmetrise: bool
) -> InEdges:
    symmetric = weighted.is_symmetric(indptr, indices, weights)
    if symmetrise and not symmetric:
        indptr, indices, weights = weighted.with_reverse(indptr, indices, weights)
        symmetric = True
    indptr = indptr if len(indices) >= 2**31 else indptr.astype(np.int32)
    return InEdges(indptr, indices, symmetric, None if np.all(weights == 1) else weights)


@njit(cache=True, nogil=True)
def _begin(keys, starts):
    """A counting sort's first pass: fill `starts` [n + 1], zeros, with where the entries of each key begin;
    returns its cursor [n]."""
    for i in range(len(keys)):
        starts[keys[i] + 1] += 1
    for v in range(len(starts) - 1):
        starts[v + 1] += starts[v]
    return starts[:-1].copy()


@njit(cache=True, nogil=True)
def transpose_entries(indptr, indices, num_columns, keep_order):
    """(indptr, indices, order) of the transpose of a block of compressed rows, by a counting sort by column:
    rows of the result ascend. `order` holds each entry's old place, or nothing."""
    starts = np.zeros(num_columns + 1, indptr.dtype)
    place = _begin(indices, starts)
    rows = np.empty(len(indices), indices.dtype)
    order = np.empty(len(indices) if keep_order else 0, indptr.dtype)
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            j = indices[e]
            rows[place[j]] = v
            if keep_order:
                order[place[j]] = e
            place[j] += 1
    return starts, rows, order


@njit(cache=True, nogil=True)
def _bucket(src, dst, n):
    """Compressed rows of `dst` by `src`, in the edges' own order."""
    indptr = np.zeros(n + 1, np.int64)
    cursor = _begin(src, indptr)
    out = np.empty(len(src), np.int32)
    for i in range(len(src)):
        out[cursor[src[i]]] = dst[i]
        cursor[src[i]] += 1
    return indptr, out


@njit(cache=True, nogil=True)
def _transpose(indptr, indices, self_loops):
    """The transpose, rows ascending, repeats dropped, and self-loops too where they are not wanted."""
    n = len(indptr) - 1
    start = np.zeros(n + 1, np.int64)
    cursor = _begin(indices, start)
    out = np.empty(len(indices), np.int32)
    for u in range(n):
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            c = cursor[v]
            if (c > start[v] and out[c - 1] == u) or (v == u and not self_loops):
                continue
            out[c] = u
            cursor[v] = c + 1
    # Close the gaps the dropped edges left; nothing moves where there were none.
    end = 0
    for v in range(n):
        first, last = start[v], cursor[v]
        start[v] = end
        if end == first:
            end = last
        else:
            for k in range(first, last):
                out[end] = out[k]
                end += 1
    start[n] = end
    return start, out[:end]


@njit(cache=True, nogil=True)
def _union(indptr_a, a, indptr_b, b):
    """Row by row the union of two CSRs with ascending rows."""
    n = len(indptr_a) - 1
    indptr = np.zeros(n + 1, np.int64)
    out = np.empty(0, np.int32)
    for fill in range(2):
        end = 0
        for v in range(n):
            i, last_i, j, last_j = indptr_a[v], indptr_a[v + 1], indptr_b[v], indptr_b[v + 1]
            while i < last_i or j < last_j:
                take_a = j == last_j or (i < last_i and a[i] <= b[j])
                take_b = i == last_i or (j < last_j and b[j] <= a[i])
                if fill:
                    out[end] = a[i] if take_a else b[j]
                i += take_a
                j += take_b
                end += 1
            indptr[v + 1] = end
        if not fill:
            out = np.empty(end, np.int32)
    return indptr, out


@njit(cache=True, nogil=True)
def _is_symmetric(indptr, indices):
    # Walking rows v in ascending order, each row u must be met by exactly its own entries, in its own order.
    cursor = indptr[:-1].copy()
    for v in range(len(indptr) - 1):
        for k in range(indptr[v], indptr[v + 1]):
            u = indices[k]
            c = cursor[u]
            if c == indptr[u + 1] or indices[c] != v:
                return False
            cursor[u] = c + 1
    return True


@njit(cache=True, nogil=True)
def _rows_ascend(indptr, indices):
    for v in range(len(indptr) - 1):
        for k in range(indptr[v] + 1, indptr[v + 1]):
            if indices[k - 1] >= indices[k]:
                return False
    return True
