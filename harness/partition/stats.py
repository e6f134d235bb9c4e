"""Statistics of an edge-cut partition, gathered shard by shard. Those of a vertex-cut are in `vertexcut.statistics`."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.partition.shard import ReplicaShard, Shard


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
    }


class Statistics:
    """Add every shard once, in any order, then ask for the `result`. Self-loops are counted nowhere.

    inner, halo      vertices of each worker
    inner_edges, halo_edges   in-edges of each worker's inner vertices, from inner and from halo vertices
    sent_rows        rows each worker sends in one halo exchange
    edge_cut         directed edges whose ends have different owners; edge_cut_share of all
    overlap          mean of R(v), CaPGNN's overlap ratio (eq. 2), over the vertices that are in any halo
    replication      (inner + halo) / V
    vertex_balance, edge_balance   the largest worker over the mean
    """

    def __init__(self) -> None:
        self.workers: dict[int, dict[str, int]] = {}
        self.whole: dict[str, Any] = {}
        self.ratio: np.ndarray | None = None  # [V] int32: R(v)

    def add(self, shard: Shard) -> None:
        # Plain figures only: a shard kept here would stay in memory while the next one is built.
        self.whole = facts(shard)
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
        in_halo = self.ratio[self.ratio > 0]
        return {
            **self.whole,
            "edges": total,
            **each,
            "edge_cut": cut,
            "edge_cut_share": cut / max(total, 1),
            "overlap": float(in_halo.mean()) if len(in_halo) else 0.0,
            "replication": (vertices + sum(each["halo"])) / vertices,
            "vertex_balance": max(each["inner"]) * len(workers) / vertices,
            "edge_balance": max(edges) * len(workers) / max(total, 1),
        }
