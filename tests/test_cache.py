"""The cache: made once however many ask at once, whole or not there, and found by content."""

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.base.heap import give_back_freed_memory
from harness.data.partition import cache as caches
from harness.data.partition import io
from harness.data.partition.assign import Block, Metis, Random, assign
from harness.data.partition.cache import Cache, check_file, shards_for, spent, took
from harness.data.partition.vertexcut import Ebv
from tests.graphs import random_graph

SPEC = {"name": "g", "scale": 0.5, "files": {"b": 1, "a": [2, 3]}}
# Forked: the makers below are local functions, and the children touch nothing of torch.
fork = multiprocessing.get_context("fork")


def write(text: str):
    return lambda folder: (folder / "made").write_text(text)


def never(*_):
    raise AssertionError("made again although it was there")


def in_processes(count: int, body) -> list[int]:
    """Exit codes of `count` forked processes running body(i)."""
    processes = [fork.Process(target=body, args=(i,), daemon=True) for i in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    return [process.exitcode for process in processes]


def test_an_entry_is_made_once_and_says_what_it_is(tmp_path):
    told: list[str] = []
    cache = Cache(tmp_path, told.append)
    entry = cache.get_or_make("graphs", SPEC, write("x"))
    assert (entry / "made").read_text() == "x"
    said = json.loads((entry / "spec.json").read_text())
    assert said.keys() == {"format", "spec", "files", "checksum"} and said["files"].keys() == {"made"}
    assert (said["format"], said["spec"]) == (caches.FORMAT, SPEC)
    assert cache.get_or_make("graphs", SPEC, never) == entry
    assert Cache(str(tmp_path)).get_or_make("graphs", dict(reversed(SPEC.items())), never) == entry
    assert told == [caches.KINDS["graphs"]]


def test_every_difference_is_another_entry(tmp_path, monkeypatch):
    cache = Cache(tmp_path)
    specs = [SPEC, {**SPEC, "scale": 1.0}, {**SPEC, "more": None}, {**SPEC, "files": {"a": [3, 2], "b": 1}}]
    paths = {cache.path("graphs", spec) for spec in specs} | {cache.path("shards", SPEC)}
    assert len(paths) == 5
    # A new format on disk leaves every old entry, also where the spec has a format of its own.
    spec = {**SPEC, "format": 7}
    before = cache.path("graphs", spec)
    monkeypatch.setattr(caches, "FORMAT", caches.FORMAT + 1)
    assert cache.path("graphs", spec) != before


def test_a_maker_that_raises_leaves_nothing_and_the_next_succeeds(tmp_path):
    cache = Cache(tmp_path)

    def fails(folder: Path):
        (folder / "half").write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("graphs", SPEC, fails)
    assert [path for path in (tmp_path / "graphs").iterdir() if path.is_dir()] == []
    entry = cache.get_or_make("graphs", SPEC, write("x"))
    assert sorted(path.name for path in entry.iterdir()) == ["made", "spec.json"]


def test_processes_that_ask_at_once_make_it_once_and_all_see_it_whole(tmp_path):
    cache, start, makers = Cache(tmp_path / "cache"), fork.Barrier(4), tmp_path / "makers"

    def make(folder: Path):
        with makers.open("a") as log:
            log.write("made\n")
        for i in range(200):
            (folder / f"part-{i}").write_text("x" * 1000)

    def body(_):
        start.wait()
        entry = cache.get_or_make("graphs", SPEC, make)
        assert len(list(entry.glob("part-*"))) == 200 and (entry / "spec.json").is_file()

    assert in_processes(4, body) == [0] * 4
    assert makers.read_text() == "made\n"


def test_one_that_waits_takes_over_from_a_maker_that_is_killed_and_clears_its_remains(tmp_path):
    cache, first_inside, asking = Cache(tmp_path), fork.Event(), fork.Semaphore(0)

    def dies(folder: Path):
        (folder / "half").write_text("half")
        first_inside.set()
        for _ in range(3):
            asking.acquire()
        time.sleep(0.1)  # in which they come to stand at the lock; otherwise the case is only weaker
        os.kill(os.getpid(), signal.SIGKILL)

    def body(i):
        if i == 0:
            cache.get_or_make("graphs", SPEC, dies)
        first_inside.wait()
        asking.release()
        entry = cache.get_or_make("graphs", SPEC, write(str(i)))
        assert sorted(path.name for path in entry.iterdir()) == ["made", "spec.json"]

    assert in_processes(4, body) == [-signal.SIGKILL, 0, 0, 0]
    entry = cache.path("graphs", SPEC)
    assert [path for path in (tmp_path / "graphs").iterdir() if path.is_dir()] == [entry]


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match='cache=".*file" cannot be written: .*; give cache=FOLDER'):
        Cache(tmp_path / "file").get_or_make("graphs", SPEC, never)


# -- shards_for --


def test_shards_of_one_graph_share_it_and_load_it_once(tmp_path):
    graph, loads = random_graph(60, 5), []

    def load():
        loads.append(1)
        return graph

    asked = [(method(), parts) for method in (Metis, Block) for parts in (2, 3)]
    folders = {shards_for(Cache(tmp_path), SPEC, load, method, parts, 1) for method, parts in asked}
    assert len(folders) == 4 and len(loads) == 1
    for folder in folders:
        stats = json.loads((folder / "stats.json").read_text())
        names = {f"worker-{rank}.safetensors" for rank in range(stats["workers"])}
        assert {path.name for path in folder.iterdir()} == names | {"stats.json", "spec.json"}
        assert sum(stats["inner"]) == 60 and stats["edges"] == graph.num_edges
    again = shards_for(Cache(tmp_path), SPEC, never, Metis(), 2, 1)
    owners = assign(graph, "metis", 2, 1)
    for rank in range(2):
        assert np.array_equal(io.load(again, rank).inner, np.flatnonzero(owners == rank))


def test_the_seed_that_counts_is_the_partitions_own_where_it_has_one(tmp_path):
    graph, cache = random_graph(60, 5), Cache(tmp_path)

    def folder(method, run, parts=3):
        return shards_for(cache, SPEC, lambda: graph, method, parts, run)

    assert folder(Random(), 4) == folder(Random(4), 9)
    assert folder(Random(), 4) != folder(Random(), 5)
    assert folder(Block(), 4) == folder(Block(), 5)
    assert folder(Metis(), 4, parts=1) == folder(Metis(), 5, parts=1)
    assert "code" not in Block().decides(2, 1), "that of this package is no part of a key"


def test_a_damaged_entry_is_made_again_and_a_line_says_so(tmp_path, capsys):
    cache, graph = Cache(tmp_path), random_graph(60, 5)
    shards = shards_for(cache, SPEC, lambda: graph, Metis(), 2, 0)
    whole = {path: path.read_bytes() for path in shards.iterdir()}
    graphs = cache.path("graphs", SPEC)
    for path, content in whole.items():
        damaged = bytearray(content)
        damaged[len(damaged) // 2] ^= 1
        path.write_bytes(damaged)
        # The cached graph is damaged too, so both are made again.
        (graphs / "graph.safetensors").write_bytes(b"\0" * 100)
        assert shards_for(cache, SPEC, lambda: graph, Metis(), 2, 0) == shards
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 2 and f"note: {shards} is damaged" in told[0] and path.name in told[0]
        assert f"note: {graphs} is damaged" in told[1] and all(line.endswith("made again") for line in told)
        assert {path: path.read_bytes() for path in shards.iterdir()} == whole
    shards_for(cache, SPEC, never, Metis(), 2, 0)
    assert capsys.readouterr().err == ""


def test_swapped_or_missing_files_of_an_entry_are_damage(tmp_path, capsys):
    cache, graph = Cache(tmp_path), random_graph(60, 5)
    first, second = (shards_for(cache, SPEC, lambda: graph, Random(seed), 2, 0) for seed in (1, 2))
    whole = [(folder / "worker-0.safetensors").read_bytes() for folder in (first, second)]
    (first / "worker-0.safetensors").write_bytes(whole[1])  # a good file, of another partition
    (second / "worker-0.safetensors").unlink()
    for seed in (1, 2):
        shards_for(cache, SPEC, never, Random(seed), 2, 0)
    assert [(folder / "worker-0.safetensors").read_bytes() for folder in (first, second)] == whole
    os.replace(first, tmp_path / "aside")
    os.replace(second, first)  # a whole entry under the name of another
    os.replace(tmp_path / "aside", second)
    shards_for(cache, SPEC, never, Random(1), 2, 0)
    assert (first / "worker-0.safetensors").read_bytes() == whole[0]
    assert capsys.readouterr().err.count("is made again") == 3


def test_a_worker_refuses_its_own_shard_where_that_is_damaged(tmp_path):
    shards = shards_for(Cache(tmp_path), SPEC, lambda: random_graph(60, 5), Metis(), 2, 0)
    path = shards / io.shard_name(1)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1  # the last number of an array
    path.write_bytes(content)
    check_file(shards, io.shard_name(0))
    with pytest.raises(InputError, match=f"worker-1.safetensors is damaged: .*; delete the folder {shards}"):
        check_file(shards, io.shard_name(1))


def test_what_a_partition_took_stands_beside_its_entry(tmp_path):
    cache = Cache(tmp_path)
    for method in (Metis(), Ebv()):
        folder = shards_for(cache, SPEC, lambda: random_graph(60, 5), method, 2, 1)
        taken = took(folder)
        assert set(taken) == {"assign_s", "assign_bytes"} and taken["assign_s"] > 0
        assert taken["assign_bytes"] >= 0
    folder.with_suffix(".took.json").unlink()
    assert took(folder) == {}
    assert shards_for(cache, SPEC, never, method, 2, 1) == folder


def test_memory_is_counted_beside_what_was_there():
    """In a process of its own: in this one, threads of libraries may free memory meanwhile."""
    before = np.ones(1 << 24)

    def body(_):
        give_back_freed_memory()  # what another test has freed may be resident still
        with spent() as taken:
            np.ones(1 << 23).sum()
        assert 0.95 * 2**26 <= taken.bytes < 2**27, "8 bytes each; the kernel counts pages by the dozen"

    assert in_processes(1, body) == [0] and len(before)
