"""From an assignment of a graph's edges to the shards of a vertex-cut, one worker at a time to bound memory.

Each worker's pass reads the rows of its own replicas only, so a vertex's row is read once per replica."""

from collections.abc import Iterator

import numpy as np
from numba import njit

from harness.data.graph import Graph
from harness.data.partition.build import block, degrees_of, held, numbered, of_worker, values_of
from harness.data.partition.config import VertexCutPartitioner
from harness.data.partition.shard import ReplicaShard
from harness.data.partition.vertexcut import EdgeAssignment


def build_replicas(
    graph: Graph, edges: EdgeAssignment, masters: str = VertexCutPartitioner.masters
) -> Iterator[ReplicaShard]:
    """The shards of `edges.parts` workers, in rank order. `masters` is the rule that chooses masters."""
    parts, n = edges.parts, graph.num_vertices
    indptr, worker = edges.replicas()
    master = edges.masters(masters, (indptr, worker))
    owner = _entry_owners(graph.indptr, graph.indices, edges.low, edges.high, edges.owner.astype(np.int16))
    sizes, _, row = numbered(master, parts)
    degrees, entries = degrees_of(graph), (graph.indptr, graph.indices, values_of(graph))

    # The mirrors of every worker are found first: what a worker knows of the copies of its masters
    # (`copy_rows`, `copy_counts`) is made of its peers' mirrors.
    vertex = np.repeat(np.arange(n, dtype=np.int32), np.diff(indptr))
    there = [vertex[worker == p] for p in range(parts)]
    own = [v[master[v] == p] for p, v in enumerate(there)]
    mirrors = [_by_master(v[master[v] != p], master) for p, v in enumerate(there)]
    # [holder, master's worker]
    counts = np.array([np.bincount(master[m], minlength=parts) for m in mirrors], np.int64)
    column = np.full(n, -1, np.int32)

    for rank in range(parts):
        vertices = np.concatenate([own[rank], mirrors[rank]])
        column[vertices] = np.arange(len(vertices), dtype=np.int32)
        copies = [of_worker(mirrors[p], counts[p], rank) for p in range(parts)]
        yield ReplicaShard(
            **held(graph, rank, sizes, own[rank], vertices, degrees),
            vertices=vertices,
            mirror_counts=counts[rank],
            mirror_rows=row[mirrors[rank]],
            copy_rows=row[np.concatenate(copies)],
            copy_counts=counts[:, rank].copy(),
            edges=block(entries, vertices, owner, rank, column, len(vertices), by_entry=True),
        )


def _by_master(vertices: np.ndarray, master: np.ndarray) -> np.ndarray:
    return vertices[np.argsort(master[vertices], kind="stable")]


@njit(cache=True, nogil=True)
def _entry_owners(indptr, indices, low, high, owner):
    """[E] int16: the worker of every entry of the graph's CSR, -1 for a self-loop.

    Rows of the CSR and pairs (low, high) both ascend. So a search for the pair of an entry goes on where the
    last one of that row, or of that low end, has stopped, and passes each pair once."""
    n = len(indptr) - 1
    starts = np.zeros(n + 1, np.int64)
    for e in range(len(low)):
        starts[low[e] + 1] += 1
    for v in range(n):
        starts[v + 1] += starts[v]
    seen = starts[:-1].copy()  # of the pairs in which u is the low end, the next to be met from the high end
    found = np.full(len(indices), -1, np.int16)
    for v in range(n):
        k = starts[v]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u > v:
                while high[k] != u:
                    k += 1
                found[e] = owner[k]
            elif u < v:
                while high[seen[u]] != v:
                    seen[u] += 1
                found[e] = owner[seen[u]]
    return found
