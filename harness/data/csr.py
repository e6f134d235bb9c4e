"""Builds the CSR of in-edges, in 32-bit indices: rows ascend, and a repeated edge appears once.

Edges u -> v that are listed several times become one edge with the sum of their weights. With `symmetrise`,
an edge is undirected and has one weight: where both directions are listed their weights must agree, and where
one is listed the other takes its weight. An edge of weight 0 stays an edge, and its source's row is still
sent, since partitions do not look at weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit

from harness.base.errors import InputError
from harness.data.partition.shard import Csr

if TYPE_CHECKING:
    from scipy import sparse

# Weights inside these bounds have sums, and reciprocals of sums, that float32 can hold. A bound counts as
# inside, also as the float32 nearest to it.
SMALLEST, LARGEST = np.float32(1e-30), np.float32(1e30)


class InEdges(NamedTuple):
    """Row v of (indptr, indices): v's in-neighbours, ascending, each once; see harness.data.graph.Graph."""

    indptr: np.ndarray  # [V+1] int32, int64 from 2^31 edges on
    indices: np.ndarray  # [E] int32
    symmetric: bool  # v -> u is there, with the same weight, wherever u -> v is
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
    weights      [E] numbers of 0 or more, or None for 1

    Raises InputError where the lists differ in length or are not of integers, an endpoint is not a vertex, a
    weight cannot be used, or `symmetrise` meets an edge whose two directions differ in weight."""
    if src.shape != dst.shape or src.ndim != 1:
        raise InputError(
            f"{where}: sources have shape {src.shape} and targets {dst.shape}; give two lists of the same"
            " length"
        )
    src, dst = (_vertices(ends, num_vertices, where, "features") for ends in (src, dst))
    weights = _checked_weights(weights, len(src))
    if not self_loops:
        kept = src != dst
        src, dst, weights = src[kept], dst[kept], None if weights is None else weights[kept]
    # Repeated entries add up: bools to True, however often; weights in float64, to be rounded once.
    values = np.ones(len(src), np.bool_) if weights is None else weights.astype(np.float64)
    rows = _rows_of(src, dst, values, num_vertices)
    if weights is not None:
        rows.data = rows.data.astype(np.float32)
    reverse = rows.T.tocsr()
    parts = ("indptr", "indices", "data")
    symmetric = all(np.array_equal(getattr(rows, part), getattr(reverse, part)) for part in parts)
    if symmetrise and not symmetric:
        rows = rows + reverse if weights is None else _with_reverse(rows)
        symmetric = True
    indptr = rows.indptr.astype(np.int32 if rows.nnz < 2**31 else np.int64)
    carried = None if weights is None or np.all(rows.data == 1) else rows.data
    return InEdges(indptr, rows.indices.astype(np.int32, copy=False), symmetric, carried)


def from_csr(indptr: np.ndarray, indices: np.ndarray, *, where: str = "edges", **how: Any) -> InEdges:
    """The in-edge CSR of a stored adjacency matrix whose row u holds the targets v of the edges u -> v, in
    any order.

    `where` and `how` are arguments of `from_edges`. Errors as there; InputError also where indptr does not
    rise to len(indices)."""
    check_rows(indptr, len(indices), f"{where}: indptr")
    num_vertices = len(indptr) - 1
    targets = _vertices(indices, num_vertices, where, "indptr")
    degrees = np.diff(indptr).astype(np.int64, copy=False)  # numpy repeats by no uint64
    src = np.repeat(np.arange(num_vertices, dtype=np.int32), degrees)
    return from_edges(src, targets, num_vertices, where=where, **how)


def check_rows(indptr: np.ndarray, entries: int, where: str) -> None:
    """Raise InputError unless indptr begins at 0, never falls and ends at `entries`."""
    if indptr.ndim != 1 or len(indptr) < 1 or indptr.dtype.kind not in "iu":
        raise InputError(
            f"{where} has type {indptr.dtype} and shape {indptr.shape}; give integers, one more than rows"
        )
    if indptr[0] != 0 or indptr[-1] != entries or np.any(indptr[1:] < indptr[:-1]):
        raise InputError(f"{where} must rise from 0 to {entries}, the number of entries")


def rows_ascend(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether every row is strictly ascending."""
    rising = indices[1:] > indices[:-1]
    starts = indptr[(indptr > 0) & (indptr < len(indices))]
    rising[starts - 1] = True  # from the last entry of a row to the first of the next
    return bool(rising.all())


def is_symmetric(indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None) -> bool:
    """Whether every edge has its reverse, with the same weight. Rows must ascend."""
    starts, rows, place = transpose_entries(indptr, indices, len(indptr) - 1, weights is not None)
    same = np.array_equal(starts, indptr) and np.array_equal(rows, indices)
    return same and (weights is None or np.array_equal(weights[place], weights))


def incidence(
    low: np.ndarray, high: np.ndarray, num_vertices: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The incidence lists of the undirected edges low[m] - high[m]: (indptr [V+1] int64, neighbour [2M]
    int32, edge [2M] int32). Entries indptr[v] to indptr[v+1] are v's edges, ascending by edge id: `edge`
    holds the id, `neighbour` the other end."""
    ends = np.stack([low, high], 1).reshape(-1)
    order = np.argsort(ends, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=num_vertices))])
    # The ends of edge m are at the places 2m and 2m + 1: flipping the last bit leads to the other end.
    return indptr, ends[order ^ 1], (order >> 1).astype(np.int32)


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
    """The endpoints as [E] int32. `rows_of` names what has one row per vertex: where an endpoint is out of
    range, that may be what is too short, so the message names it."""
    if ids.dtype.kind not in "iu":
        raise InputError(f"{where}: endpoints of type {ids.dtype} are not vertex numbers; give integers")
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_vertices:
        bad = ids[(ids < 0) | (ids >= num_vertices)][0]
        raise InputError(
            f"{where}: endpoint {bad} is not a vertex; vertices are 0 to {num_vertices - 1}, one per row of "
            f"{rows_of}"
        )
    return np.ascontiguousarray(ids, dtype=np.int32)


def _checked_weights(weights: np.ndarray | None, edges: int) -> np.ndarray | None:
    """[E] float32 of given weights; None where there are none or all are 1.

    Raises InputError where there is not one number per edge, or one of them is negative, not finite, or so
    large or small that sums of weights leave the range of float32."""
    if weights is None:
        return None
    if weights.ndim == 2 and weights.shape[1] == 1:
        weights = weights[:, 0]
    if weights.shape != (edges,) or weights.dtype.kind not in "iufb":
        raise InputError(
            f"edge_weight of type {weights.dtype} and shape {weights.shape} does not fit {edges} edges: give"
            " one number per edge"
        )
    wide = weights.astype(np.float64)
    with np.errstate(over="ignore"):
        held = weights.astype(np.float32)
    bad = ~((wide == 0) | ((held >= SMALLEST) & (held <= LARGEST)))  # NaN, which fails all, is bad
    if bad.any():
        edge = int(np.argmax(bad))
        raise InputError(
            f"edge_weight={wide[edge]:g} of edge {edge} cannot be used: give 0, or {SMALLEST:g} to"
            f" {LARGEST:g}"
        )
    return None if np.all(wide == 1) else held


def conflict(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray
) -> tuple[int, int, float, float] | None:
    """(u, v, weight of u -> v, weight of v -> u) of the first edge whose reverse has another weight; None
    where there is none."""
    dst, src, at, both = _reverses(indptr, indices)
    differ = both & (weights[at] != weights)
    if not differ.any():
        return None
    edge = int(np.argmax(differ))
    return int(src[edge]), int(dst[edge]), float(weights[edge]), float(weights[at][edge])


def _with_reverse(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """The edges, and the reverse of each with the same weight.

    Raises InputError where the two directions of an edge are listed with different weights."""
    indptr, indices, weights = rows.indptr, rows.indices, rows.data
    if found := conflict(indptr, indices, weights):
        u, v, there, back = found
        raise InputError(
            f"edge {u} -> {v} has edge_weight={there:g} and {v} -> {u} has {back:g}: give both the"
            " same weight, or keep directions with directed=true in the file"
        )
    dst, src, _, both = _reverses(indptr, indices)
    lacking = ~both
    return _rows_of(
        np.concatenate([src, dst[lacking]]),
        np.concatenate([dst, src[lacking]]),
        np.concatenate([weights, weights[lacking]]),
        len(indptr) - 1,
    )


def _reverses(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, ...]:
    """[E] each: target and source of every edge, the place of its reverse, and whether that is there."""
    n = len(indptr) - 1
    dst, src = np.repeat(np.arange(n), np.diff(indptr)), indices.astype(np.int64)
    # Rows ascend, so the edges' keys do, and a reverse edge is found among them by bisection.
    keys, reverse = dst * n + src, src * n + dst
    at = np.minimum(np.searchsorted(keys, reverse), len(keys) - 1)
    return dst, src, at, keys[at] == reverse


def _rows_of(src: np.ndarray, dst: np.ndarray, values: np.ndarray, n: int) -> sparse.csr_matrix:
    """The in-edges of n vertices by target, rows ascending; values of repeated edges add up."""
    from scipy import sparse  # a graph that is cached starts without it

    return sparse.coo_matrix((values, (dst, src)), shape=(n, n)).tocsr()


@njit(cache=True, nogil=True)
def transpose_entries(indptr, indices, num_columns, keep_order):
    """(indptr, indices, order) of the transpose of a block of compressed rows, by a counting sort by column:
    rows of the result ascend. `order` holds each entry's old place; without `keep_order` it is empty."""
    starts = np.zeros(num_columns + 1, indptr.dtype)
    for j in indices:
        starts[j + 1] += 1
    for j in range(num_columns):
        starts[j + 1] += starts[j]
    place = starts[:-1].copy()
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
