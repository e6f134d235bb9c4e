"""Statistics of an edge-cut, gathered shard by shard; of a vertex-cut see `vertexcut.statistics`."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.data.graph import Graph
from harness.data.partition.build import mark_neighbours
from harness.data.partition.shard import Csr, Shard


def facts(graph: Graph, parts: int) -> dict[str, Any]:
    """What every partition of a graph among `parts` workers says of it, as plain JSON values."""
    return {
        "graph": graph.name,
        "vertices": graph.num_vertices,
        "workers": parts,
        "features": int(graph.num_features),
        "classes": graph.num_classes,
        "symmetric": bool(graph.symmetric),
        "multilabel": graph.multilabel,
        "train": int(graph.train.sum()),
        **({} if graph.weights is None else {"weighted": True}),
        "majority": majority(graph),
    }


def majority(graph: Graph) -> dict[str, float | None]:
    """The accuracy of giving every vertex the same answer, by split; None for a split without vertices.

    One label per vertex: the share of the most frequent class. Several: the micro-F1 of predicting the k
    most frequent labels for every vertex, with the best k: 2 TP / (predicted + true), TP the sum of their
    counts."""
    found = {}
    for split in ("train", "val", "test"):
        labels = graph.labels[getattr(graph, split)]
        counts = labels.sum(0, np.int64) if graph.multilabel else np.bincount(labels)
        found[split] = constant_score(counts, len(labels), graph.multilabel)
    return found


def constant_score(counts: np.ndarray, vertices: int, multilabel: bool) -> float | None:
    """The best score of a constant answer, as `majority` defines it, from the count of each label
    [C] among `vertices`; None where there are none."""
    if not vertices:
        return None
    if not multilabel:
        return float(counts.max() / vertices)
    found = np.sort(counts)[::-1].cumsum()
    predicted = vertices * np.arange(1, len(counts) + 1)
    return float((2 * found / (predicted + max(counts.sum(), 1))).max())


def statistics(graph: Graph, shards: Iterable[Shard]) -> dict[str, Any]:
    """Plain JSON values, from all shards in rank order; lists are by worker. Self-loops are counted nowhere.

    inner, halo      vertices of each worker
    sent_rows        rows each worker sends in one halo exchange
    inner_edges, halo_edges   in-edges of each worker's inner vertices, from inner and from halo vertices
    edge_cut         directed edges whose ends have different owners; edge_cut_share of all
    overlap          mean of R(v), the number of halos that v is in (CaPGNN's overlap ratio, eq. 2), over the
                     vertices that are in any halo
    shared_halo      vertices that are in the halos of two workers or more
    replication      (inner + halo) / V
    remote_weight    share of the GCN matrix D^-1/2 (A + I) D^-1/2 that stands between vertices of different
                     workers
    vertex_balance, edge_balance   the largest worker over the mean
    """
    ratio = np.zeros(graph.num_vertices, np.int32)  # R(v)
    weights = np.zeros(2)  # of the GCN matrix: between workers, and in all
    each: dict[str, list[int]] = {
        name: [] for name in ("inner", "halo", "sent_rows", "inner_edges", "halo_edges")
    }
    # Plain numbers only: a shard kept here would stay in memory while the next one is built.
    for shard in shards:
        weights += _weights(shard)
        ratio[shard.halo] += 1  # a vertex stands once in a halo
        entries = shard.inner_edges.num_entries, shard.halo_edges.num_entries
        counts = shard.num_inner, shard.num_halo, len(shard.send_rows), *entries
        for numbers, count in zip(each.values(), counts):
            numbers.append(count)
    vertices, parts = graph.num_vertices, len(each["inner"])
    edges = [near + far for near, far in zip(each["inner_edges"], each["halo_edges"])]
    total, cut, in_halo = sum(edges), sum(each["halo_edges"]), ratio[ratio > 0]
    return {
        **facts(graph, parts),
        "edges": total,
        **each,
        "edge_cut": cut,
        "edge_cut_share": cut / max(total, 1),
        "overlap": float(in_halo.mean()) if len(in_halo) else 0.0,
        "shared_halo": int((in_halo > 1).sum()),
        "replication": (vertices + sum(each["halo"])) / vertices,
        "remote_weight": float(weights[0] / weights[1]),
        "vertex_balance": max(each["inner"]) * parts / vertices,
        "edge_balance": max(edges) * parts / max(total, 1),
    }


def two_hops(graph: Graph, owner: np.ndarray, parts: int) -> dict[str, Any]:
    """Halos of two hops: the remote in-neighbours of a worker's vertices, and the remote in-neighbours of
    these (CaPGNN, section 3.4).

    halo_two_hops         vertices in the two-hop halo of each worker
    shared_halo_two_hops  vertices that are in the two-hop halos of two workers or more

    owner [V] names each vertex's worker. Takes O(P E) steps and O(V) memory."""
    sizes, found = [], np.zeros(graph.num_vertices, np.int32)
    for part in range(parts):
        one_hop = np.zeros(graph.num_vertices, np.bool_)
        mark_neighbours(graph.indptr, graph.indices, owner, np.flatnonzero(owner == part), part, one_hop)
        both = one_hop.copy()
        mark_neighbours(graph.indptr, graph.indices, owner, np.flatnonzero(one_hop), part, both)
        sizes.append(int(both.sum()))
        found += both
    return {"halo_two_hops": sizes, "shared_halo_two_hops": int((found > 1).sum())}


def _weights(shard: Shard) -> np.ndarray:
    """The sums of the worker's rows of D^-1/2 (A + I) D^-1/2 over its halo, and over all columns  [2]."""
    own, halo = ((degrees + 1.0) ** -0.5 for degrees in (shard.degrees, shard.halo_degrees))

    def total(edges: Csr, columns: np.ndarray) -> float:
        rows = np.repeat(own, np.diff(edges.indptr))
        values = columns[edges.indices]
        return float(rows @ (values if edges.values is None else values * edges.values))

    remote = total(shard.halo_edges, halo)
    return np.array([remote, remote + total(shard.inner_edges, own) + float(own @ own)])
