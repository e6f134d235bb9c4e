"""Seconds that each vertex-cut partitioner takes for a graph's edges into 8 parts."""

from functools import partial

from harness.data.graph import Graph
from harness.data.partition.config import EDGE_METHODS
from harness.data.partition.vertexcut import assign_edges
from harness.dev.bench.lines import BenchLine, interleaved

PARTS, TARGET_S = 8, 60.0


def partition_lines(graph: Graph, rounds: int) -> list[BenchLine]:
    """A line per vertex-cut method, held to TARGET_S seconds."""
    edges = len(assign_edges(graph, EDGE_METHODS[0], PARTS, 1).owner)
    seconds = interleaved(
        {method: partial(assign_edges, graph, method, PARTS, 1) for method in EDGE_METHODS}, rounds, warm_up=0
    )
    return [
        BenchLine.of(
            "partition", f"{method}: {edges:,} edges into {PARTS}", "s", seconds[method], target=TARGET_S
        )
        for method in EDGE_METHODS
    ]
