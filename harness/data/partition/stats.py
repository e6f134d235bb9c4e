"""Statistics of an edge-cut, gathered shard by shard; of a vertex-cut see `vertexcut.statistics`."""

from typing import Any

import numpy as np

from harness.data.graph import Graph
from harness.data.partition.build import mark_neighbours
from harness.data.partition.shard import Csr, ReplicaShard, Shard


def facts(shard: Shard | ReplicaShard) -> dict[str, Any]:
    """What any shard knows of the whole graph, as plain JSON values."""
    return {
        "graph": shard.graph_name,
        "vertices": shard.num_vertices,
        "workers": shard.num_workers,
        "features": int(shard.features.shape[1]),
        "classes": shard.num_classes,
        "symmetric": bool(shard.symmetric),
        "multilabel": shard.labels.ndim == 2,
        "train": int(shard.split_counts[0]),
        **({"weighted": True} if shard.weighted else {}),
    }


class LabelCounts:
    """How many vertices of each split have each label; add every shard once."""

    def __init__(self) -> None:
        self.counts: dict[str, np.ndarray] = {}  # by split: [C + 1] int64, the vertices of the split last

    def add(self, shard: Shard | ReplicaShard) -> None:
        for split in ("train", "val", "test"):
            labels = shard.labels[getattr(shard, split)]
            own = (
                labels.sum(0, np.int64)
                if labels.ndim == 2
                else np.bincount(labels, minlength=shard.num_classes)
            )
            self.counts[split] = self.counts.get(split, 0) + np.append(own, len(labels))
        self.multilabel = shard.labels.ndim == 2

    def majority(self) -> dict[str, float | None]:
        """The accuracy of giving every vertex the same answer, by split; None for a split without vertices.

        One label per vertex: the share of the most frequent class. Several: the micro-F1 of predicting the k
        most frequent labels for every vertex, with the best k: 2 TP / (predicted + true), TP the sum of their
        counts."""
        return {
            split: constant_score(counts[:-1], int(counts[-1]), self.multilabel)
            for split, counts in self.counts.items()
        }


def constant_score(counts: np.ndarray, vertices: int, multilabel: bool) -> float | None:
    """The best score of a constant answer, as `LabelCounts.majority` defines it, from the count of each label
    [C] among `vertices`; None where there are none."""
    if not vertices:
        return None
    if not multilabel:
        return float(counts.max() / vertices)
    found = np.sort(counts)[::-1].cumsum()
    predicted = vertices * np.arange(1, len(counts) + 1)
    return float((2 * found / (predicted + max(counts.sum(), 1))).max())


class Statistics:
    """Add every shard once, in any order, then ask for the `result`. Self-loops are counted nowhere.

    inner, halo      vertices of each worker
    inner_edges, halo_edges   in-edges of each worker's inner vertices, from inner and from halo vertices
    sent_rows        rows each worker sends in one halo exchange
    edge_cut         directed edges whose ends have different owners; edge_cut_share of all
    overlap          mean of R(v), the number of halos that v is in (CaPGNN's overlap ratio, eq. 2), over the
                     vertices that are in any halo
    shared_halo      vertices that are in the halos of two workers or more
    replication      (inner + halo) / V
    majority         by split, see `LabelCounts.majority`
    remote_weight    share of the GCN matrix D^-1/2 (A + I) D^-1/2 that stands between vertices of different
                     workers
    vertex_balance, edge_balance   the largest worker over the mean
    """

    def __init__(self) -> None:
        self.workers: dict[int, dict[str, int]] = {}
        self.whole: dict[str, Any] = {}
        self.ratio: np.ndarray | None = None  # [V] int32: R(v)
        self.labels = LabelCounts()
        self.weights = np.zeros(2)  # of the GCN matrix: between workers, and in all

    def add(self, shard: Shard) -> None:
        # Plain numbers only: a shard kept here would stay in memory while the next one is built.
        self.whole = facts(shard)
        self.labels.add(shard)
        self.weights += _weights(shard)
        if self.ratio is None:
            self.ratio = np.zeros(shard.num_vertices, np.int32)
        self.ratio[shard.halo] += 1  # a vertex stands once in a halo
        self.workers[shard.rank] = {
            "inner": shard.num_inner,
            "halo": shard.num_halo,
            "sent_rows": len(shard.send_rows),
            "inner_edges": shard.inner_edges.num_entries,
            "halo_edges": shard.halo_edges.num_entries,
        }

    def result(self) -> dict[str, Any]:
        """Plain JSON values; lists are by worker."""
        workers = [self.workers[rank] for rank in sorted(self.workers)]
        assert len(workers) == self.whole["workers"], "statistics need every shard"
        each = {key: [worker[key] for worker in workers] for key in workers[0]}
        edges = [near + far for near, far in zip(each["inner_edges"], each["halo_edges"])]
        total, cut, vertices = sum(edges), sum(each["halo_edges"]), self.whole["vertices"]
        assert self.ratio is not None
        in_halo = self.ratio[self.ratio > 0]
        return {
            **self.whole,
            "edges": total,
            **each,
            "edge_cut": cut,
            "edge_cut_share": cut / max(total, 1),
            "overlap": float(in_halo.mean()) if len(in_halo) else 0.0,
            "shared_halo": int((in_halo > 1).sum()),
            "replication": (vertices + sum(each["halo"])) / vertices,
            "majority": self.labels.majority(),
            "remote_weight": float(self.weights[0] / self.weights[1]),
            "vertex_balance": max(each["inner"]) * len(workers) / vertices,
            "edge_balance": max(edges) * len(workers) / max(total, 1),
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
