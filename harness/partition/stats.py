"""Statistics of an edge-cut partition, gathered shard by shard."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.partition.shard import Shard


class Statistics:
    """Add every shard once, then ask for the `result`.

    inner, halo      vertices of each worker
    edge_cut         directed edges whose ends have different owners, and their share of all
    overlap          mean over halo vertices of CaPGNN's overlap ratio (eq. 2): in how many workers' halos a vertex stands
    replication      (inner + halo) / V
    vertex_balance, edge_balance   the largest worker over the mean
    sent_rows        rows each worker sends in one halo exchange
    """

    def __init__(self) -> None:
        self.shards: list[dict[str, int]] = []
        self.shared: np.ndarray | None = None

    def add(self, shard: Shard) -> None:
        if self.shared is None:
            self.shared = np.zeros(shard.num_vertices, np.int32)
        self.shared[shard.halo] += 1
        self.first = shard
        self.shards.append({
            "inner": shard.num_inner, "halo": shard.num_halo, "sent_rows": len(shard.send_rows),
            "inner_edges": shard.inner_edges.num_entries, "halo_edges": shard.halo_edges.num_entries,
        })

    def result(self) -> dict[str, Any]:
        shard = self.first
        each = {key: [s[key] for s in self.shards] for key in self.shards[0]}
        cut, inside = sum(each["halo_edges"]), sum(each["inner_edges"])
        edges = np.array(each["inner_edges"]) + np.array(each["halo_edges"])
        shared = self.shared[self.shared > 0]
        return {
            "graph": shard.graph_name, "vertices": shard.num_vertices, "edges": cut + inside, "workers": len(self.shards),
            "features": int(shard.features.shape[1]), "classes": shard.num_classes, "symmetric": bool(shard.symmetric),
            "multilabel": shard.labels.ndim == 2, "train": int(shard.split_counts[0]),
            **each,
            "edge_cut": cut, "edge_cut_share": cut / max(cut + inside, 1),
            "overlap": float(shared.mean()) if len(shared) else 0.0,
            "replication": (sum(each["inner"]) + sum(each["halo"])) / shard.num_vertices,
            "vertex_balance": max(each["inner"]) * len(self.shards) / shard.num_vertices,
            "edge_balance": float(edges.max() * len(self.shards) / max(edges.sum(), 1)),
        }
