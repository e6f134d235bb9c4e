"""Seconds that each vertex-cut partitioner takes for 10^7 undirected edges into 8 parts."""

from __future__ import annotations

import time
from pathlib import Path

from harness.bench.lines import Line
from harness.graph import sources
from harness.graph.config import DatasetConfig
from harness.graph.graph import Graph
from harness.partition.config import EDGE_METHODS
from harness.partition.vertexcut import assign_edges

# 10 M undirected edges at the real mean degree
GRAPH = DatasetConfig(name="reddit", source="twin", scale=0.1753)
PARTS, TARGET_S = 8, 60.0


def partition_lines(graph: Graph | None = None) -> list[Line]:
    graph = graph or sources.load(GRAPH, Path("data"), seed=1)
    lines = []
    for method in EDGE_METHODS:
        started = time.monotonic()
        made = assign_edges(graph, method, PARTS, 1)
        took = time.monotonic() - started
        lines.append(
            Line("partition", f"{method}: {len(made.owner):,} edges into {PARTS}", took, "s", target=TARGET_S)
        )
    return lines
