"""A content-addressed cache of graphs and shards that concurrent runs may share.

An entry's address is the hash of everything that determines it. It is made in a folder beside and renamed
into place, so it is there whole or not at all; a lock lets one run make it while the others wait. Its
`spec.json` holds the checksums of its files: an entry whose files are not what was written is made again.
The time and memory that finding a partition took are stored beside the entry, since they differ each time."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from filelock import FileLock

from harness.base import checksum
from harness.base.checksum import Damaged
from harness.base.errors import InputError, writing
from harness.base.machine import check_machine
from harness.data.graph import Graph
from harness.data.partition import io, stats, vertexcut
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.data.partition.build_replicas import build_replicas
from harness.data.partition.config import EdgeCutPartitioner, Partitioner, VertexCutPartitioner
from harness.data.partition.shard import ReplicaShard, Shard
from harness.data.partition.vertexcut import EdgeAssignment, assign_edges

S = TypeVar("S", Shard, ReplicaShard)
FORMAT = 4  # of shards and graphs on disk: a new one leaves old entries untouched and unused

# The kinds of entries, and what is said before one is made, which takes seconds to minutes.
KINDS = {
    "shards": "preparing the graph and its partition, which are kept for later runs",
    "graphs": "reading the graph, or making it",
    "tilings": "measuring sparse products, once on this machine",
    "costs": "measuring the cost of products, once on this machine",
}


class Cache:
    """Entries under `root/<kind>/<hash>`, each with a `spec.json` that says what it was made from.

    say   called with what `KINDS` has of an entry's kind, before the entry is made
    """

    def __init__(self, root: Path, say: Callable[[str], object] = lambda sentence: None):
        self.root, self.say = Path(root), say

    def path(self, kind: str, spec: dict[str, Any]) -> Path:
        """Where the entry of `spec` (plain JSON values) stands, or would stand."""
        return self.root / kind / hashlib.sha256(_described(spec).encode()).hexdigest()[:20]

    def get_or_make(self, kind: str, spec: dict[str, Any], make: Callable[[Path], None]) -> Path:
        """The entry's folder, filled by make(folder) where it is not there yet, or not as it was written;
        what make raises leaves no entry.

        Every file of the entry is read and its checksum compared. Raises InputError where the cache cannot be
        written."""
        entry = self.path(kind, spec)
        if _is_whole(entry, spec):
            return entry
        mend = "give cache=FOLDER on a disk with room"
        with writing(f'cache="{self.root}"', mend):
            entry.parent.mkdir(parents=True, exist_ok=True)
            held = FileLock(entry.with_suffix(".lock")).acquire()
        with held, writing(f'cache="{self.root}"', mend):
            if _is_whole(entry, spec):
                return entry
            scratch = entry.with_suffix(".part")
            shutil.rmtree(scratch, ignore_errors=True)  # what a run that was killed left behind
            if entry.exists():
                print(f"note: {entry} is damaged ({_wrong(entry, spec)}) and is made again", file=sys.stderr)
                os.replace(entry, scratch)  # a run that has mapped a file of it keeps what it has
                shutil.rmtree(scratch)
            scratch.mkdir()
            self.say(KINDS[kind])
            try:
                make(scratch)
                _write_spec(scratch, spec)
                os.replace(scratch, entry)
            except BaseException:
                shutil.rmtree(scratch, ignore_errors=True)
                raise
        return entry


def check_file(entry: Path, name: str) -> None:
    """Raise InputError where a file of an entry is not what was written. A worker that was not started by the
    process that prepared its run checks its own shard by this."""
    if wrong := _wrong_file(entry, name, _spec_of(entry)["files"]):
        raise InputError(f"{wrong}; delete the folder {entry} and run again to rebuild it")


def _is_whole(entry: Path, spec: dict[str, Any]) -> bool:
    return entry.is_dir() and _wrong(entry, spec) is None


def _wrong(entry: Path, spec: dict[str, Any]) -> str | None:
    """Why an entry is not what was written; None where it is."""
    try:
        found = _spec_of(entry)
        if {"format": found.get("format"), "spec": found.get("spec")} != json.loads(_described(spec)):
            return "its spec.json is that of another entry"
    except InputError as error:
        return str(error)
    files = found["files"]
    return next((wrong for name in files if (wrong := _wrong_file(entry, name, files))), None)


def _wrong_file(entry: Path, name: str, files: dict[str, str]) -> str | None:
    try:
        same = name not in files or checksum.of_file(entry / name) == files[name]
    except OSError as error:
        check_machine(error, entry / name)
        return f"{entry / name} cannot be read: {error.strerror}"
    return None if same else f"{entry / name} is damaged: its checksum is not that of its content"


def _spec_of(entry: Path) -> dict[str, Any]:
    """The content of spec.json; InputError where it is damaged."""
    path = entry / "spec.json"
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict):
            raise Damaged("it holds no object")
        return checksum.unsealed(found)
    except (OSError, ValueError, RecursionError) as error:
        check_machine(error, path)
        raise InputError(
            f"{path} is damaged ({error}); delete the folder {entry} and run again to rebuild it"
        ) from None


def _write_spec(entry: Path, spec: dict[str, Any]) -> None:
    """Write an entry's spec.json: what it is made from, and the checksums of its other files."""
    files = {path.name: checksum.of_file(path) for path in sorted(entry.iterdir()) if path.is_file()}
    content = checksum.sealed({**json.loads(_described(spec)), "files": files})
    (entry / "spec.json").write_text(json.dumps(content, indent=1))


def _described(spec: dict[str, Any]) -> str:
    return json.dumps({"format": FORMAT, "spec": spec}, sort_keys=True)


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
    beside = _took(cache.path("shards", spec))
    seed = seed if partition.seed is None else partition.seed

    def make_graph(folder: Path) -> None:
        io.save_graph(load_graph(), folder / "graph.safetensors")

    def make_shards(folder: Path) -> None:
        graph = io.load_graph(cache.get_or_make("graphs", graph_spec, make_graph) / "graph.safetensors")
        if isinstance(partition, VertexCutPartitioner):
            with spent() as taken:
                edges = assign_edges(graph, partition, parts, seed)
            result = _cut_edges(graph, edges, partition, folder)
        else:
            assert isinstance(partition, EdgeCutPartitioner), "a partitioner is one or the other"
            with spent() as taken:
                owner = assign(graph, partition, parts, seed)
            result = _cut_vertices(graph, owner, parts, folder)
        beside.write_text(json.dumps({"assign_s": taken.seconds, "assign_bytes": taken.bytes}))
        text = json.dumps({**result, "method": partition.name, "seed": seed}, indent=1)
        (folder / "stats.json").write_text(text)

    return cache.get_or_make("shards", spec, make_shards)


def took(shards: Path) -> dict[str, Any]:
    """What finding the owners took when these shards were made: `assign_s` seconds by the clock, and
    `assign_bytes` of memory at most beside the graph (None where the kernel does not say). Nothing where the
    file that says so is not there."""
    try:
        found = json.loads(_took(shards).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _took(shards: Path) -> Path:
    return shards.with_suffix(".took.json")


def _cut_vertices(graph: Graph, owner: np.ndarray, parts: int, folder: Path) -> dict[str, Any]:
    """Save the shards of an edge-cut; returns its statistics."""
    shards = _saved(build_shards(graph, owner, parts), folder)
    return {**stats.statistics(graph, shards), **stats.two_hops(graph, owner, parts)}


def _cut_edges(
    graph: Graph, edges: EdgeAssignment, partition: VertexCutPartitioner, folder: Path
) -> dict[str, Any]:
    """Save the shards of a vertex-cut; returns its statistics."""
    shards = _saved(build_replicas(graph, edges, partition.masters), folder)
    entries = sum(shard.edges.num_entries for shard in shards)
    counted = vertexcut.statistics(edges, partition.masters)
    # "edges" counts both directions, as for an edge-cut; "worker_edges" counts undirected edges.
    return {
        **stats.facts(graph, edges.parts),
        **counted,
        "worker_edges": counted["edges"],
        "edges": entries,
        "hosts": partition.hosts,
    }


def _saved(shards: Iterator[S], folder: Path) -> Iterator[S]:
    for shard in shards:
        io.save(shard, folder)
        yield shard


@dataclass
class Spent:
    """Seconds by the wall clock; bytes by which the peak of resident memory exceeds what was resident before,
    None where it is not known (not on Linux)."""

    seconds: float = 0.0
    bytes: int | None = None


@contextlib.contextmanager
def spent() -> Iterator[Spent]:
    """Measure the body of a `with`: the `Spent` is filled in when the body has ended. This resets the
    kernel's peak of resident memory of this process, which `getrusage` reports too."""
    found, start = Spent(), time.perf_counter()
    before: int | None = None
    with contextlib.suppress(OSError, IndexError):
        Path("/proc/self/clear_refs").write_text("5")  # 5: the peak becomes what is resident now
        before = _peak()
    yield found
    found.seconds = time.perf_counter() - start
    if before is not None:
        found.bytes = max(_peak() - before, 0)


def _peak() -> int:
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
