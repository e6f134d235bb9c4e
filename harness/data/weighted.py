"""Edge weights: what is accepted, what repeated and reverse edges mean, and the rows of weighted edges.

Repeated edges u -> v are one edge with the sum of their weights. An undirected edge has one weight: where
both of its directions are listed they must agree, and where only one is listed the other takes its weight. An
edge of weight 0 stays an edge: its row travels, since partitions do not look at weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.base.errors import InputError

if TYPE_CHECKING:
    from scipy import sparse

# Weights inside these bounds have sums, and reciprocals of sums, that float32 can hold.
SMALLEST, LARGEST = 1e-30, 1e30


def checked(weights: np.ndarray | None, edges: int) -> np.ndarray | None:
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
    bad = ~((wide == 0) | ((wide >= SMALLEST) & (wide <= LARGEST)))  # of NaN too
    if bad.any():
        edge = int(np.argmax(bad))
        raise InputError(
            f"edge_weight={wide[edge]:g} of edge {edge} cannot be used: give 0, or {SMALLEST:g} to"
            f" {LARGEST:g}"
        )
    return None if np.all(wide == 1) else weights.astype(np.float32)


def conflict(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray
) -> tuple[int, int, float, float] | None:
    """The first u, v whose edges differ in weight, and the weights of u -> v and v -> u; None without any."""
    dst, src, at, both = _reverses(indptr, indices)
    differ = both & (weights[at] != weights)
    if not differ.any():
        return None
    edge = int(np.argmax(differ))
    return int(src[edge]), int(dst[edge]), float(weights[edge]), float(weights[at][edge])


def with_reverse(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """The edges and the reverse of each, which has its weight.

    Raises InputError where the two directions of an edge are there with different weights."""
    indptr, indices, weights = rows.indptr, rows.indices, rows.data
    if found := conflict(indptr, indices, weights):
        u, v, there, back = found
        raise InputError(
            f"edge {u} -> {v} has edge_weight={there:g} and {v} -> {u} has {back:g}: give both the"
            " same weight,"
            " or keep directions with directed=true in the file"
        )
    dst, src, _, both = _reverses(indptr, indices)
    lacking = ~both
    return rows_of(
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


def rows_of(src: np.ndarray, dst: np.ndarray, values: np.ndarray, n: int) -> sparse.csr_matrix:
    """The in-edges of n vertices by target, rows ascending; values of repeated edges add up."""
    from scipy import sparse  # a graph that is cached starts without it

    return sparse.coo_matrix((values, (dst, src)), shape=(n, n)).tocsr()
