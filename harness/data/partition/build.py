"""From a graph and an assignment to shards, one worker at a time so that memory stays bounded.

Each worker's pass reads its own rows only; the whole build is O(V P + E)."""

from collections.abc import Iterator
from typing import Any

import numba
import numpy as np

from harness.data.csr import transpose_entries
from harness.data.graph import Graph
from harness.data.partition.shard import Csr, Shard, rows_of

Edges = tuple[np.ndarray, np.ndarray, np.ndarray]  # compressed rows: starts, columns, weights (`values_of`)


def build_shards(graph: Graph, assignment: np.ndarray, parts: int) -> Iterator[Shard]:
    """The shards of `parts` workers, in rank order. assignment [V] int32 names each vertex's owner."""
    n = graph.num_vertices
    sizes, order, local = numbered(assignment, parts)
    degrees = degrees_of(graph)
    inward = graph.indptr, graph.indices, values_of(graph)
    outward: Edges | None = None
    if not graph.symmetric:
        out_indptr, out_indices, place = transpose_entries(*inward[:2], n, graph.weights is not None)
        outward = out_indptr, out_indices, inward[2][place]
    # The halo of every worker is found first, since a worker's send list is made of its peers' halos.
    inners = np.split(order, np.cumsum(sizes)[:-1])
    halos = [_halo(*inward[:2], assignment, inners[p], p, parts) for p in range(parts)]
    column = np.full(n, -1, np.int32)

    def along(edges: Edges, rank: int, halo: np.ndarray, counts: np.ndarray, prefix: str) -> dict[str, Any]:
        """The fields of a worker's edges in one direction, and of the halo at their other ends."""
        inner = inners[rank]
        column[halo] = np.arange(len(halo), dtype=np.int32)
        found = {
            "inner_edges": block(edges, inner, assignment, rank, local, len(inner)),
            "halo": halo,
            "halo_counts": counts,
            "halo_rows": local[halo],
            "halo_degrees": degrees[halo],
            "halo_edges": block(edges, inner, assignment, rank, column, len(halo), others=True),
        }
        return {prefix + name: value for name, value in found.items()}

    for rank, inner in enumerate(inners):
        sends = [of_worker(*halo, rank) for halo in halos]
        directed: dict[str, Any] = {}
        if outward is not None:
            out_halo = _halo(*outward[:2], assignment, inner, rank, parts)
            directed = along(outward, rank, *out_halo, "out_")
        yield Shard(
            **held(graph, rank, sizes, inner, inner, degrees),
            inner=inner,
            send_rows=local[np.concatenate(sends)],
            send_counts=np.array([len(s) for s in sends], np.int64),
            **along(inward, rank, *halos[rank], ""),
            **directed,
        )


def numbered(owner: np.ndarray, parts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How many vertices each worker owns [P]; all of them by owner, ascending inside an owner [V]; and each
    one's local row at its owner [V]."""
    sizes = np.bincount(owner, minlength=parts).astype(np.int64)
    order = np.argsort(owner, kind="stable").astype(np.int32)
    row = np.empty(len(owner), np.int32)
    row[order] = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return sizes, order, row


def held(
    graph: Graph, rank: int, sizes: np.ndarray, owned: np.ndarray, rows: np.ndarray, degrees: np.ndarray
) -> dict[str, Any]:
    """The fields of `AnyShard` of a worker that owns the vertices `owned` [n] and holds the features and
    degrees of the vertices `rows` [k]. degrees [V], as `degrees_of` gives them."""
    splits = {name: getattr(graph, name) for name in ("train", "val", "test")}
    return {
        "rank": rank,
        "graph_name": graph.name,
        "sizes": sizes,
        "num_classes": graph.num_classes,
        "symmetric": graph.symmetric,
        "features": rows_of(graph.features, rows),
        "labels": graph.labels[owned],
        **{name: mask[owned] for name, mask in splits.items()},
        "degrees": degrees[rows],
        "split_counts": np.array([mask.sum() for mask in splits.values()], np.int64),
    }


def degrees_of(graph: Graph) -> np.ndarray:
    """[V] the degrees that shards hold: int32 counts, or float64 sums of weights."""
    degrees = graph.in_degrees()
    return degrees if graph.weights is not None else degrees.astype(np.int32)


def values_of(graph: Graph) -> np.ndarray:
    """[E] float32 weights for compiled loops, which cannot take None: an empty array where all are 1."""
    return np.empty(0, np.float32) if graph.weights is None else graph.weights


def of_worker(vertices: np.ndarray, counts: np.ndarray, rank: int) -> np.ndarray:
    """Those of `vertices` that belong to `rank`; they are grouped by worker, counts[p] of them p's."""
    start = int(counts[:rank].sum())
    return vertices[start : start + int(counts[rank])]


def _halo(indptr, indices, assignment, inner, rank, parts) -> tuple[np.ndarray, np.ndarray]:
    """Remote neighbours of `inner`: ids by owner, ascending inside an owner, and how many of each owner."""
    seen = np.zeros(len(assignment), np.bool_)
    mark_neighbours(indptr, indices, assignment, inner, rank, seen)
    halo = np.flatnonzero(seen).astype(np.int32)
    owners = assignment[halo]
    return halo[np.argsort(owners, kind="stable")], np.bincount(owners, minlength=parts).astype(np.int64)


@numba.njit(cache=True, nogil=True)
def mark_neighbours(indptr, indices, assignment, vertices, rank, seen):
    """Mark in `seen` [V] the in-neighbours of `vertices` that worker `rank` does not own."""
    for v in vertices:
        for e in range(indptr[v], indptr[v + 1]):
            if assignment[indices[e]] != rank:
                seen[indices[e]] = True


def block(
    edges: Edges,
    vertices: np.ndarray,
    owner: np.ndarray,
    rank: int,
    column: np.ndarray,
    num_columns: int,
    *,
    others: bool = False,
    by_entry: bool = False,
) -> Csr:
    """The rows `vertices` of `edges`, without self-loops: their entries that belong to `rank`, or those that
    belong to the `others`.

    owner    [V] whose each neighbour is; `by_entry` [E] whose each entry is
    column   [V] the number that a neighbour has as a column of the block
    """
    starts, columns, values = _entries(*edges, vertices, owner, by_entry, rank, others, column)
    starts = starts.astype(np.int32) if starts[-1] < 2**31 else starts
    return Csr(starts, columns, num_columns, values if len(edges[2]) else None)


@numba.njit(cache=True, nogil=True)
def _entries(indptr, indices, weights, vertices, owner, by_entry, rank, others, column):
    """Starts, columns and values of the rows of `block`; values are empty where `weights` are."""
    # Counted first: arrays for all entries of the rows could take twice the memory.
    starts = np.zeros(len(vertices) + 1, np.int64)
    for i in range(len(vertices)):
        v, found = vertices[i], 0
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            found += u != v and (owner[e if by_entry else u] != rank) == others
        starts[i + 1] = starts[i] + found
    columns = np.empty(starts[-1], np.int32)
    values = np.empty(len(columns) if len(weights) else 0, np.float32)
    end = 0
    for v in vertices:
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u != v and (owner[e if by_entry else u] != rank) == others:
                columns[end] = column[u]
                if len(weights):
                    values[end] = weights[e]
                end += 1
    return starts, columns, values
