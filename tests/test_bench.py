"""The bench's own arithmetic, and its parts on tiny graphs: every value is finite; no timing is judged."""

import math
import subprocess
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from harness.base.dgl import load_dgl
from harness.comm.recorder import Recorder
from harness.core.architectures import Gcn
from harness.core.kernels.tiling_measured import random_block
from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.dev.bench import cpu, lines, needed, parts, runs, spmm, systems
from harness.dev.bench.runs import QUICK, Setting
from tests.graphs import random_graph
from tests.launching import Started

MODEL = Gcn(layers=2, hidden=16, dropout=0.0)


@pytest.mark.parametrize("ours, peer, target, met", [
    (1.0, 2.0, 1.0, True), (2.0, 1.0, 1.0, False), (5.0, None, 12.0, True), (13.0, None, 12.0, False),
    (1.0, 2.0, None, None), (float("nan"), None, 1.0, False),
])  # fmt: skip
def test_a_missed_target_is_told(ours, peer, target, met):
    line = lines.BenchLine("x", ours, "s", peer, target)
    assert line.met is met and line.row()["met"] is met


def test_calls_are_interleaved_without_the_warm_up_and_runs_take_turns_at_being_first():
    called = []
    calls = {name: lambda name=name: called.append(name) for name in "abc"}
    seconds = lines.interleaved(calls, rounds=2, warm_up=1)
    assert "".join(called) == "abcabcabc" and [len(seconds[name]) for name in "abc"] == [2] * 3
    began = []
    made = {name: lambda name=name: began.append(name) or len(began) for name in "abc"}
    found = runs.in_turn(made, 3, lambda number: 10 * number)
    assert "".join(began) == "abccbaabc"
    assert found == {"a": [10, 60, 70], "b": [20, 50, 80], "c": [30, 40, 90]}


def test_what_is_computed_leaves_out_waits_and_first_epochs():
    spans = [
        ("compute", "aggregate", 4.0), ("rest", "", 2.0), ("wait", "global_put", 1.0), ("wait", "halo", 30.0)
    ]  # fmt: skip
    rows = [(epoch, *span[:2], span[2] * (10 if epoch < 2 else 1)) for epoch in range(5) for span in spans]
    trace = SimpleNamespace(spans=pd.DataFrame(rows, columns=["epoch", "kind", "name", "cpu_s"]))
    assert runs.compute_per_epoch(trace) == 7.0


# -- parts whose runs take what a test says --


@pytest.fixture
def pretended(monkeypatch):
    """pretended(module, took): each run of a part takes `took(keys)` seconds of CPU per epoch. Keys of the
    runs come back, in order."""

    def begin(module, took):
        asked = []

        def train(folders, **keys):
            asked.append(keys)
            return SimpleNamespace(trace=SimpleNamespace(config=keys))

        monkeypatch.setattr(module, "train", train)
        monkeypatch.setattr(module, "cpu_per_epoch", lambda trace: took(trace.config))
        return asked

    return begin


def test_systems_are_held_to_what_vanilla_computes_and_say_what_they_compute_more(pretended, monkeypatch):
    asked = pretended(systems, lambda keys: 1.0)
    monkeypatch.setattr(systems, "compute_per_epoch", lambda trace: 2.0)
    monkeypatch.setattr(
        systems, "flops_per_epoch", lambda trace: 3.0 if trace.config["system"] == "cdfgnn" else 1.0
    )
    found = {line.name.split()[0]: line for line in systems.system_lines(Setting(None, None, 1, QUICK))}
    assert "distdgl" in systems.configured() and "distdgl" not in found, "it trains on mini-batches"
    assert {line.ratio for name, line in found.items() if name != "llcg"} == {1.0}
    assert found["llcg"].ratio < 1 and "of a step, " in found["llcg"].note
    assert "vanilla on an edge-cut; 3.00 times vanilla's products" in found["cdfgnn"].note
    partitioned = {keys["system"]: "partition" in keys for keys in asked}
    assert partitioned["vanilla"] and not partitioned["cdfgnn"], "a vertex-cut is its system's own"


def test_four_workers_are_held_to_their_target_or_to_just_above_the_floor(pretended, monkeypatch):
    pretended(cpu, lambda keys: 2.0 if keys["gpus"] == 4 else 1.0)
    monkeypatch.setattr(cpu, "keep_freed_memory", lambda: None)  # it would stay for later tests
    real = cpu.floor

    def floor(shards, features, *rest):
        assert real(shards, features, *rest) > 0
        return {"once": 1.0, "refetch": 1.8}[features]

    monkeypatch.setattr(cpu, "floor", floor)
    graph = random_graph(40, 3, num_features=4, num_classes=2, seed=1)
    setting = Setting(None, None, 1, replace(QUICK, model=MODEL, rounds=1))
    monkeypatch.setattr(Setting, "graph", lambda self: graph)
    found = {line.name.split(" / ")[0]: line for line in cpu.cpu_lines(setting)}
    assert {line.ratio for line in found.values()} == {2.0}
    assert found["4 workers, once, metis"].target == 1.20, "the floor of 1.0 lies below"
    assert found["4 workers, refetch, metis"].target == pytest.approx(1.05 * 1.8)
    assert found["4 workers, refetch, random"].target is None
    assert found["4 workers, once, metis"].note == "floor 1.00; 2.00 of it"


# -- parts on real runs --


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("bench")
    return runs.Folders(root / "results", root / "cache")


@pytest.fixture
def forked(place, monkeypatch):
    """The bench's commands without the seconds that importing takes, where what they measure does not hold
    them.
    """

    def run(command, **_):
        imported = f"imported {time.monotonic()} {runs.__file__}\n"
        ended = Started(place, command[3:]).end()
        return subprocess.CompletedProcess(command, ended.code, ended.out, imported + ended.err)

    monkeypatch.setattr(runs.subprocess, "run", run)


@pytest.mark.nightly(90)
@pytest.mark.parametrize(
    "measured, more",
    [
        (cpu.order_lines, {}),
        (systems.system_lines, {"names": ["cdfgnn"]}),
        (systems.sampled_lines, {}),
    ],
    ids=["order", "system", "sampled"],
)
def test_lines_of_real_runs(folders, forked, measured, more):
    found = measured(Setting(folders, None, 1, QUICK), **more)
    assert found and all(line.ours > 0 and line.peer > 0 and np.isfinite(line.ratio) for line in found)


@pytest.mark.nightly(30)
def test_lean_lines_of_real_runs(folders, forked, real_data):
    found = needed.lean_lines(Setting(folders, real_data, 1, QUICK), ("cora",))
    assert len(found) == 4 and all(line.ours > 0 and line.peer > 0 for line in found)
    few, many = found[0].note, found[2].note
    assert float(few.split("= ")[1]) < float(many.split("= ")[1]) <= 1


@pytest.mark.nightly(50)
def test_start_lines_of_real_runs(folders):
    whole, *stages = parts.start_lines(Setting(folders, None, 1, QUICK))
    assert whole.target == parts.START_TARGET_S and whole.ours == pytest.approx(sum(s.ours for s in stages))
    assert all(np.isfinite(s.ours) for s in stages) and stages[-1].ours > 0


@pytest.mark.nightly(20)
def test_the_floor_computes_the_products_of_a_run(folders, forked, monkeypatch):
    recorders = []
    monkeypatch.setattr(cpu, "Recorder", lambda: recorders.append(Recorder()) or recorders[-1])
    graph, keys = Setting(folders, None, 1, QUICK).graph(), QUICK.runs
    shards = list(build_shards(graph, assign(graph, "metis", 4, 1).astype(np.int32), 4))
    model = Gcn(layers=2, hidden=keys["model__hidden"], dropout=0.0)
    assert cpu.floor(shards, "refetch", model, epochs=3) > 0
    run = runs.train(folders, gpus=4, partition="metis", system__features="refetch", **keys)
    here = sum(span.flops for recorder in recorders for span in recorder.epoch.spans)
    assert here == runs.flops_per_epoch(run.trace)


@pytest.mark.nightly(50)
def test_cuts_are_timed():
    found = parts.PARTS["partition"].measure(Setting(None, None, 1, QUICK))
    assert found and all(math.isfinite(line.ours) for line in found)


@pytest.mark.nightly(20)
def test_the_product_is_timed_beside_dgl_and_by_its_entries(monkeypatch):
    monkeypatch.setattr(spmm, "NO_WORSE", {5: 1.0})
    block = random_block(400, 400, 22)
    found = [*spmm.dgl_lines(block, rounds=2), *spmm.uniform_lines((2e3, 4e3), rounds=2)]
    assert len(found) == 4 and all(line.note or line.target for line in found)
    for line in found[: 3 if load_dgl() is not None else 0]:
        assert line.ours > 0 and len(line.samples) == 2 and min(line.samples) <= line.ours
    first, second = (line.ours / 1e3 for line in found[-3:-1])
    assert found[-1].ours == pytest.approx(math.log(second / first) / math.log(2), abs=0.01)
    assert found[-1].target == spmm.GROWTH


def test_a_side_that_ends_its_process_is_told(monkeypatch):
    """As DGL's copy-sum does on some shapes, by a segmentation fault."""
    dead = SimpleNamespace(exitcode=-11, start=lambda: None, join=lambda: None)
    monkeypatch.setattr(spmm, "load_dgl", lambda: True)
    context = SimpleNamespace(Process=lambda target, args: dead)
    monkeypatch.setattr(spmm.multiprocessing, "get_context", lambda how: context)
    found = spmm.dgl_lines(random_block(100, 100, 5), rounds=1)
    assert len(found) == 3 and not any(line.met for line in found)
    assert all(math.isnan(line.ours) and "exit code -11" in line.note for line in found)
