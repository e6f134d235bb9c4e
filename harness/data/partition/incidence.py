"""Both ends' view of undirected edges, for partitioners that grow along them."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def incidence(
    low: np.ndarray, high: np.ndarray, num_vertices: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr [V+1] int64, neighbour [2M] int32, edge [2M] int32): each vertex's edges, by edge id."""
    indptr = np.zeros(num_vertices + 1, np.int64)
    for e in range(len(low)):
        indptr[low[e] + 1] += 1
        indptr[high[e] + 1] += 1
    for v in range(num_vertices):
        indptr[v + 1] += indptr[v]
    cursor = indptr[:-1].copy()
    neighbour = np.empty(2 * len(low), np.int32)
    edge = np.empty(2 * len(low), np.int32)
    for e in range(len(low)):
        u, v = low[e], high[e]
        neighbour[cursor[u]], edge[cursor[u]] = v, e
        neighbour[cursor[v]], edge[cursor[v]] = u, e
        cursor[u] += 1
        cursor[v] += 1
    return indptr, neighbour, edge
