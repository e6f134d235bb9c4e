"""Fennel's streaming edge-cut: Tsourakakis, Gkantsidis, Radunovic, Vojnovic, "FENNEL: Streaming Graph
Partitioning for Massive Scale Graphs", WSDM 2014.

Vertices come one at a time, and each stays where it is put. With S_i what part i of k has then, N(v) the
neighbours of v, n vertices and m edges, v goes to the part of the highest

    |N(v) & S_i| - alpha gamma |S_i|^(gamma - 1)        alpha = m k^(gamma - 1) / n^gamma

of those with fewer than nu n / k vertices: many neighbours there, and few vertices. It takes one pass over
the edges and, beside the undirected pattern, no memory but the owners, where METIS needs several times the
graph.

Decisions
- edges are those of the undirected pattern without self-loops.
- of parts that score alike, the smallest takes the vertex; of several as small, the first.
- nu n / k is rounded down, but no part is full before it has n / k vertices, rounded up."""

from dataclasses import dataclass

import numba
import numpy as np

from harness.base.bounds import number, word
from harness.data.graph import Graph
from harness.data.partition.assign import pattern
from harness.data.partition.config import EdgeCutPartitioner


@dataclass
class Fennel(EdgeCutPartitioner):
    """Fennel: vertices in one stream, each to the part with many of its neighbours and few vertices.

    gamma   how the price of a part grows with its vertices; more than 1
    nu      the most vertices of a part, over the mean; 1 or more
    order   in which vertices come: "random", by the seed, or "given", by their ids
    """

    gamma: float = number(1.5, 1, 10, above=True)
    nu: float = number(1.1, 1)
    order: str = word("random", "given")

    def seed_of(self, parts: int, seed: int) -> int | None:
        return super().seed_of(parts, seed) if self.order == "random" else None

    def vertex_owners(self, graph: Graph, parts: int, seed: int) -> np.ndarray:
        n = graph.num_vertices
        starts, neighbours = pattern(graph, np.dtype(np.int64))
        order = np.random.default_rng(seed).permutation(n) if self.order == "random" else np.arange(n)
        alpha = len(neighbours) / 2 * parts ** (self.gamma - 1) / n**self.gamma
        most = max(-(-n // parts), int(self.nu * n / parts))
        return _stream(starts, neighbours, order, parts, alpha, self.gamma, most)


@numba.njit(cache=True)
def _stream(starts, neighbours, order, parts, alpha, gamma, most):
    """Owners [V] int32: each vertex of `order` in turn, to the best part with fewer than `most`."""
    owners = np.full(len(order), -1, np.int32)
    sizes, there = np.zeros(parts, np.int64), np.zeros(parts, np.int64)
    for v in order:
        there[:] = 0
        for e in range(starts[v], starts[v + 1]):
            owner = owners[neighbours[e]]
            if owner >= 0:
                there[owner] += 1
        best, highest = -1, -np.inf
        for i in range(parts):
            if sizes[i] >= most:
                continue
            score = there[i] - alpha * gamma * sizes[i] ** (gamma - 1)
            if score > highest or (score == highest and sizes[i] < sizes[best]):
                best, highest = i, score
        owners[v] = best
        sizes[best] += 1
    return owners
