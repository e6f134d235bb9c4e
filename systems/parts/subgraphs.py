"""Random subgraphs of a worker's graph, each made from its number alone, and how often a set of them holds
every vertex and every edge."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from harness.base.splitmix import GOLDEN, mix
from harness.data.partition.shard import Csr
from systems.parts.neighbours import hop_key


def induced(graph: Csr, rows: np.ndarray, place: np.ndarray | None = None) -> tuple[Csr, np.ndarray]:
    """The edges between the vertices `rows` [q] int32, numbered in the order given, which is one or two
    ascending runs; and the place of each of these edges among those of `graph`. Columns ascend in every row.

    place   [n] int32, all -1 before and after; None: a new one
    """
    place = np.full(graph.num_rows, -1, np.int32) if place is None else place
    place[rows] = np.arange(len(rows), dtype=np.int32)
    indptr, edges = _edges_between(graph.indptr, graph.indices, rows, place)
    columns = place[graph.indices[edges]]
    place[rows] = -1
    values = None if graph.values is None else np.asarray(graph.values)[edges]
    return Csr(indptr, columns, len(rows), values), edges


@numba.njit(cache=True, nogil=True)
def _edges_between(indptr, indices, rows, place):
    """The edges of each row to vertices that have a place: from the row's edges in ascending order, first
    those whose place is in the first ascending run of `rows`, then the others, so that places ascend."""
    first = len(rows)
    for i in range(1, len(rows)):
        if rows[i] < rows[i - 1]:
            first = i
            break
    starts = np.zeros(len(rows) + 1, indptr.dtype)
    for i in range(len(rows)):
        count = 0
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            count += place[indices[e]] >= 0
        starts[i + 1] = starts[i] + count
    edges = np.empty(starts[-1], np.int64)
    at = 0
    for i in range(len(rows)):
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if 0 <= place[indices[e]] < first:
                edges[at] = e
                at += 1
        for e in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if place[indices[e]] >= first:
                edges[at] = e
                at += 1
    return starts, edges


class Sampler:
    """Draws sets of a graph's n vertices. A set depends on (seed, worker, number) and on nothing else.

    walk   roots, uniformly and with replacement, each followed by `length` steps to a uniformly drawn
           in-neighbour; a walk ends where there is none
    edge   both ends of edges, with replacement, an edge (v, u) in proportion to 1 / d_v + 1 / d_u
    node   vertices, with replacement, in proportion to d_v

    d counts in-neighbours, at least 1. budget: vertices drawn per set, of which some are drawn twice; None:
    every set is all vertices. Where a graph has no edge, `edge` and `node` draw vertices uniformly.
    """

    def __init__(self, graph: Csr, kind: str, budget: int | None, length: int, seed: int, worker: int):
        self.graph, self.budget, self.length = graph, budget, length
        self.seed, self.worker, self.kind = seed, worker, kind
        degrees = np.diff(graph.indptr)
        if kind == "walk" or not len(graph.indices):
            return
        shares = np.maximum(degrees, 1).astype(np.float64)
        if kind == "edge":
            inverse = 1.0 / np.maximum(degrees, 1)
            shares = np.repeat(inverse, degrees) + inverse[graph.indices]
        self.sums = np.cumsum(shares)

    def vertices(self, number: int) -> np.ndarray:
        """[q] int32 the vertices of a set, ascending."""
        n = self.graph.num_rows
        if self.budget is None or not n:
            return np.arange(n, dtype=np.int32)
        key = np.uint64(hop_key(self.seed, number, self.worker, 0))
        if self.kind == "walk" or not len(self.graph.indices):
            steps = self.length if self.kind == "walk" else 0
            roots = -(-self.budget // (steps + 1))
            drawn = _walk(self.graph.indptr, self.graph.indices, key, roots, steps)
        else:
            times = self.budget if self.kind == "node" else -(-self.budget // 2)
            drawn = _in_proportion(self.sums, key, times)
            if self.kind == "edge":
                ends = np.searchsorted(self.graph.indptr, drawn, side="right") - 1
                drawn = np.concatenate([self.graph.indices[drawn], ends])
        return np.unique(drawn).astype(np.int32)


@numba.njit(cache=True, nogil=True)
def _below(key, number, most):
    """Draw `number` of a key: a whole number from 0 to most - 1."""
    bits = mix(key + np.uint64(number) * np.uint64(GOLDEN)) >> np.uint64(32)
    return np.int64((bits * np.uint64(most)) >> np.uint64(32))


@numba.njit(cache=True, nogil=True)
def _walk(indptr, indices, key, roots, steps):
    found = np.empty(roots * (steps + 1), np.int64)
    at = 0
    for root in range(roots):
        v = _below(key, root * (steps + 1), len(indptr) - 1)
        found[at] = v
        at += 1
        for step in range(steps):
            neighbours = indptr[v + 1] - indptr[v]
            if not neighbours:
                break
            v = np.int64(indices[indptr[v] + _below(key, root * (steps + 1) + 1 + step, neighbours)])
            found[at] = v
            at += 1
    return found[:at]


@numba.njit(cache=True, nogil=True)
def _in_proportion(sums, key, times):
    """[times] places i, each with probability (sums[i] - sums[i - 1]) / sums[-1]."""
    found = np.empty(times, np.int64)
    for k in range(times):
        share = np.float64(mix(key + np.uint64(k) * np.uint64(GOLDEN)) >> np.uint64(11)) / 2.0**53
        found[k] = min(np.searchsorted(sums, share * sums[-1], side="right"), len(sums) - 1)
    return found


@dataclass
class Counts:
    """How many of `sets` sets of vertices hold each vertex [n], and both ends of each edge [E], int32."""

    sets: int
    vertices: np.ndarray
    edges: np.ndarray

    @staticmethod
    def of(sampler: Sampler, coverage: float) -> Counts:
        """Count over the sets 0, 1, ...: the fewest that have more than coverage * n vertices together. That
        is one set where a set is the whole graph, and none where the graph has no vertex."""
        graph, sets, together = sampler.graph, 0, 0
        vertices, edges = np.zeros(graph.num_rows, np.int32), np.zeros(graph.num_entries, np.int32)
        enough = 0 if sampler.budget is None else coverage * graph.num_rows
        seen = np.zeros(graph.num_rows, bool)
        while graph.num_rows and together <= enough:
            found = sampler.vertices(sets)
            seen[found] = True
            vertices[found] += 1
            _count_edges(graph.indptr, graph.indices, found, seen, edges)
            seen[found] = False
            together, sets = together + len(found), sets + 1
        return Counts(sets, vertices, edges)


@numba.njit(cache=True, nogil=True)
def _count_edges(indptr, indices, rows, seen, counts):
    for v in rows:
        for e in range(indptr[v], indptr[v + 1]):
            counts[e] += seen[indices[e]]
