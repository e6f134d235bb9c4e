"""A content-addressed cache of graphs and shards that concurrent runs may share.

An entry's address is the hash of everything that determines it. It is made in a folder beside and renamed
into place, so it is there whole or not at all; a lock lets one run make it while the others wait.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from harness.check import InputError
from harness.graph.graph import Graph
from harness.partition import io
from harness.partition.assign import assign
from harness.partition.build import build_shards
from harness.partition.build_replicas import build_replicas
from harness.partition.config import EdgeCut, Partitioner, VertexCut
from harness.partition.stats import LabelCounts, Statistics, facts
from harness.partition.vertexcut import assign_edges, statistics

FORMAT = 3  # of shards and graphs on disk: a new one leaves old entries untouched and unused


class Cache:
    """Entries under `root/<kind>/<hash>`, each with a `spec.json` that says what it was made from."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def path(self, kind: str, spec: dict[str, Any]) -> Path:
        """Where the entry of `spec` (plain JSON values) stands, or would stand."""
        return self.root / kind / hashlib.sha256(_described(spec).encode()).hexdigest()[:20]

    def get_or_make(self, kind: str, spec: dict[str, Any], make: Callable[[Path], None]) -> Path:
        """The entry's folder, filled by make(folder) where it is not there yet; what make raises leaves no
        entry.

        Raises InputError where the cache cannot be written.
        """
        entry = self.path(kind, spec)
        if entry.is_dir():
            return entry
        try:
            entry.parent.mkdir(parents=True, exist_ok=True)
            held = FileLock(entry.with_suffix(".lock")).acquire()
        except OSError as error:
            raise InputError(
                f'cache="{self.root}" cannot be written: {error.strerror}; give cache=FOLDER'
            ) from None
        with held:
            if entry.is_dir():
                return entry
            scratch = entry.with_suffix(".part")
            shutil.rmtree(scratch, ignore_errors=True)  # what a run that was killed left behind
            scratch.mkdir()
            try:
                make(scratch)
                (scratch / "spec.json").write_text(_described(spec, indent=1))
                os.replace(scratch, entry)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
        return entry


def _described(spec: dict[str, Any], indent: int | None = None) -> str:
    return json.dumps({"format": FORMAT, "spec": spec}, sort_keys=True, indent=indent)


def shards_for(
    cache: Cache,
    graph_spec: dict[str, Any],
    load_graph: Callable[[], Graph],
    partition: Partitioner,
    parts: int,
    seed: int,
) -> Path:
    """The folder of worker-0.safetensors to worker-(parts-1).safetensors and stats.json.

    graph_spec   what determines the graph: its address in the cache, shared by every partition of it
    load_graph   called only where neither the shards nor the graph are there
    seed         the run's, for a partition that names none
    """
    spec = {"graph": graph_spec, "parts": parts, **partition.decides(parts, seed)}
    seed = seed if partition.seed is None else partition.seed

    def make_graph(folder: Path) -> None:
        io.save_graph(load_graph(), folder / "graph.safetensors")

    def make_shards(folder: Path) -> None:
        graph = io.load_graph(cache.get_or_make("graphs", graph_spec, make_graph) / "graph.safetensors")
        if isinstance(partition, VertexCut):
            result = _cut_edges(graph, partition, parts, seed, folder)
        else:
            assert isinstance(partition, EdgeCut), "a partitioner is one or the other"
            result = _cut_vertices(graph, partition, parts, seed, folder)
        text = json.dumps({**result, "method": partition.name, "seed": seed}, indent=1)
        (folder / "stats.json").write_text(text)

    return cache.get_or_make("shards", spec, make_shards)


def _cut_vertices(graph: Graph, partition: EdgeCut, parts: int, seed: int, folder: Path) -> dict[str, Any]:
    """Save the shards of an edge-cut; returns its statistics."""
    counted = Statistics()
    for shard in build_shards(graph, assign(graph, partition, parts, seed), parts):
        io.save(shard, folder)
        counted.add(shard)
    return counted.result()


def _cut_edges(graph: Graph, partition: VertexCut, parts: int, seed: int, folder: Path) -> dict[str, Any]:
    """Save the shards of a vertex-cut; returns its statistics."""
    edges = assign_edges(graph, partition, parts, seed)
    entries, labels = 0, LabelCounts()
    for shard in build_replicas(graph, edges, partition.masters):
        io.save(shard, folder)
        entries += shard.edges.num_entries
        labels.add(shard)
    counted = statistics(edges, partition.masters)
    # "edges" counts both directions, here as for an edge-cut; a worker's are undirected.
    return {
        **facts(shard),
        **counted,
        "worker_edges": counted["edges"],
        "edges": entries,
        "hosts": partition.hosts,
        "majority": labels.majority(),
    }
