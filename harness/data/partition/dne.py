"""DNE, distributed neighbourhood expansion (Hanai et al., VLDB 2019), its rounds played in one process.

All workers grow at once. In a round each worker takes from its boundary the `SHARE` of vertices that have the
fewest free edges (where the boundary is empty, a random vertex) and takes all of their free edges. Then each
free edge both of whose ends are on one worker goes to that worker; where several workers have both ends, to
the one with the fewest edges. Workers act in the order of their ids, so where two reach for the same edge,
the lower id gets it.

Balance: a worker stops at the edge that fills it to `imbalance` times the mean."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from harness.base.bounds import number
from harness.data.csr import incidence
from harness.data.partition.config import VertexCutPartitioner

SHARE = 0.1
IMBALANCE = 1.1


@dataclass
class Dne(VertexCutPartitioner):
    """DNE: all workers grow at once, each from the boundary of what it has (harness.data.partition.dne).

    imbalance  the most edges of a worker, over the mean
    """

    imbalance: float = number(IMBALANCE, 1)

    unkeyed: ClassVar = {"imbalance": IMBALANCE}

    def edge_owners(self, low, high, num_vertices, parts, seed):
        capacity = int(np.ceil(self.imbalance * len(low) / parts))
        lottery = np.random.default_rng(seed).permutation(num_vertices).astype(np.int32)
        return _grow(*incidence(low, high, num_vertices), lottery, parts, capacity)


@njit(cache=True, nogil=True)
def _grow(indptr, neighbour, edge, lottery, parts, capacity):
    """Owners [M] of the edges of `incidence`. `lottery` is the order in which random vertices are drawn."""
    # What is copied here is copied in loops: an assignment of slices takes 2 s to compile.
    n, edges = len(indptr) - 1, len(edge) // 2
    owner = np.full(edges, -1, np.int32)
    free = indptr[1:] - indptr[:-1]  # edges of a vertex that no worker owns
    holds = np.zeros((n, parts), np.bool_)
    sizes, lengths = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    boundaries = np.empty((parts, 64), np.int32)
    arrivals = np.empty(64, np.int32)  # vertices new to a worker in this round
    drawn, left = 0, edges
    while left:
        arrived = 0
        # Expansion: each worker that has room takes the free edges of the vertices it chooses. Both ends of
        # such an edge join its boundary if they are new to it.
        for p in range(parts):
            if sizes[p] >= capacity:
                continue
            chosen = _choose(boundaries[p], lengths, p, free)
            if len(chosen) == 0:
                while drawn < n and free[lottery[drawn]] == 0:
                    drawn += 1
                if drawn == n:
                    break
                chosen = lottery[drawn : drawn + 1].copy()
            for v in chosen:
                for k in range(indptr[v], indptr[v + 1]):
                    e, u = edge[k], neighbour[k]
                    if owner[e] >= 0 or sizes[p] >= capacity:
                        continue
                    owner[e] = p
                    sizes[p] += 1
                    left -= 1
                    free[v] -= 1
                    free[u] -= 1
                    for w in (v, u):
                        if not holds[w, p]:
                            holds[w, p] = True
                            if lengths[p] == boundaries.shape[1]:
                                longer = np.empty((parts, 2 * boundaries.shape[1]), np.int32)
                                for i in range(parts):
                                    for j in range(lengths[i]):
                                        longer[i, j] = boundaries[i, j]
                                boundaries = longer
                            boundaries[p, lengths[p]] = w
                            lengths[p] += 1
                            if arrived == len(arrivals):
                                more = np.empty(2 * arrived, np.int32)
                                for i in range(arrived):
                                    more[i] = arrivals[i]
                                arrivals = more
                            arrivals[arrived] = w
                            arrived += 1
        # Closing: a free edge between two vertices of a worker costs no new replica there. Only edges of
        # vertices that arrived in this round can have become such.
        for i in range(arrived):
            v = arrivals[i]
            if free[v] == 0:
                continue
            for k in range(indptr[v], indptr[v + 1]):
                e, u = edge[k], neighbour[k]
                if owner[e] >= 0:
                    continue
                best = -1
                for p in range(parts):
                    if (
                        holds[v, p]
                        and holds[u, p]
                        and sizes[p] < capacity
                        and (best < 0 or sizes[p] < sizes[best])
                    ):
                        best = p
                if best >= 0:
                    owner[e] = best
                    sizes[best] += 1
                    left -= 1
                    free[v] -= 1
                    free[u] -= 1
    return owner


@njit(cache=True, nogil=True)
def _choose(boundary, lengths, p, free):
    """Take the SHARE of vertices with the fewest free edges out of worker p's boundary, ties by arrival.
    Vertices without a free edge are dropped."""
    end = 0
    for i in range(lengths[p]):
        if free[boundary[i]] > 0:
            boundary[end] = boundary[i]
            end += 1
    # Keys that end in the place keep ties in order of arrival.
    keys = np.empty(end, np.int64)
    for i in range(end):
        keys[i] = (free[boundary[i]] << 32) | i
    keys.sort()
    ranked = np.empty(end, np.int32)
    for i in range(end):
        ranked[i] = boundary[keys[i] & 0xFFFFFFFF]
    take = int(np.ceil(SHARE * end))
    for i in range(take, end):
        boundary[i - take] = ranked[i]
    lengths[p] = end - take
    return ranked[:take]
