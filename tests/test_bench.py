"""The bench on tiny graphs: its peers compute what we compute, and every part gives finite values; no timing
is judged.
"""

import math
import subprocess
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from harness.bench import epoch, lines, partition, roofline, runs, spmm, systems
from harness.core.architectures import Gcn
from harness.core.dgl_kernel import load_dgl
from harness.core.optimisers import Adam
from tests.graphs import random_graph
from tests.launching import Started

MODEL = Gcn(layers=2, hidden=16, dropout=0.0)


@pytest.fixture(scope="module")
def shard():
    return epoch.whole(random_graph(300, 12, num_features=20, num_classes=4, seed=1))


@pytest.fixture(scope="module")
def everybody(shard):
    return epoch.contenders(shard, MODEL, Adam())


def test_all_peers_take_part(everybody):
    pytest.importorskip("torch_geometric")
    expected = {"features=refetch", "features=once", "PyG, torch.sparse CSR", "PyG, edge_index"}
    assert set(everybody) == expected | ({"DGL"} if load_dgl() is not None else set())


def test_everybody_computes_the_same_logits_and_losses(everybody):
    first = everybody["features=refetch"]
    for _ in range(3):
        want = first.logits()
        for name, other in everybody.items():
            torch.testing.assert_close(other.logits().detach(), want, rtol=1e-4, atol=1e-5, msg=name)
        for other in everybody.values():
            other()
    epoch.check_losses(first, everybody, epochs=3)


def test_a_peer_that_computes_something_else_is_refused(shard):
    ours = epoch.Ours(shard, MODEL, Adam(), "once")
    other = epoch.Ours(shard, MODEL, Adam(lr=0.5), "once")
    for _ in range(2):
        other()
    with pytest.raises(AssertionError, match="impostor"):
        epoch.check_losses(ours, {"impostor": other}, epochs=2)


def test_epoch_lines_are_finite_and_positive():
    graph = random_graph(300, 12, num_features=20, num_classes=4, seed=1)
    found = epoch.epoch_lines(graph, MODEL, rounds=2)
    figures = [line for line in found if not math.isnan(line.ours)]
    assert all(line.ours > 0 and (line.peer is None or line.peer > 0) for line in figures)
    assert {line.name for line in figures if line.target == 1.0} >= {
        f"one worker features={how} / {peer}"
        for how in ("refetch", "once")
        for peer in (["DGL"] if load_dgl() is not None else [])
    }
    assert any("PyG" in line.name and line.target == 1.0 for line in figures)


def test_a_peer_that_is_not_installed_is_no_target_missed(monkeypatch):
    monkeypatch.setattr(epoch, "load_dgl", lambda: None)
    graph = random_graph(60, 6, num_features=5, num_classes=3, seed=1)
    (absent,) = (line for line in epoch.epoch_lines(graph, MODEL, rounds=1) if line.name == "DGL")
    assert absent.met is None and math.isnan(absent.ours) and "not measured" in absent.note


def test_interleaved_takes_turns_and_drops_the_warm_up():
    called = []
    seconds = lines.interleaved(
        {name: lambda name=name: called.append(name) for name in "abc"}, rounds=2, warm_up=1
    )
    assert "".join(called) == "abcabcabc" and {name: len(s) for name, s in seconds.items()} == {
        "a": 2,
        "b": 2,
        "c": 2,
    }


@pytest.mark.parametrize("ours, peer, target, met", [
    (1.0, 2.0, 1.0, True), (2.0, 1.0, 1.0, False), (5.0, None, 12.0, True), (13.0, None, 12.0, False),
    (1.0, 2.0, None, None), (float("nan"), None, 1.0, False),
])  # fmt: skip
def test_a_missed_target_is_told(ours, peer, target, met):
    line = lines.Line("epoch", "x", ours, "s", peer, target)
    assert line.met is met and line.row()["met"] is met
    shown = lines.table([line])
    assert list(shown.columns[7].cells) == [{None: "", True: "met", False: "MISSED"}[met]]


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


@pytest.mark.nightly(40)
def test_cpu_lines_of_real_runs(folders, forked):
    tiny = dict(dataset__scale=0.009, epochs=3, model__hidden=8)
    cases = {name: runs.CPU_CASES[name] for name in ("one worker, once", "4 workers, once, metis")}
    cases["4 workers, once, metis"] = {**cases["4 workers, once, metis"], "gpus": 2}
    (line,) = runs.cpu_lines(folders, rounds=1, cases=cases, **tiny)
    assert line.target == runs.CPU_TARGET and line.ours > 0 and line.peer > 0 and np.isfinite(line.ratio)


@pytest.mark.nightly(50)
def test_start_lines_of_real_runs(folders):
    whole, *stages = runs.start_lines(folders, rounds=1, workers=2, dataset__scale=0.009, model__hidden=8)
    assert whole.target == runs.START_TARGET_S and whole.ours == pytest.approx(sum(s.ours for s in stages))
    assert all(np.isfinite(s.ours) for s in stages) and stages[-1].ours > 0


def test_a_run_that_fails_says_why(folders):
    with pytest.raises(RuntimeError, match="dataset.scale"):
        runs.train(folders, dataset__scale=-1)


def test_system_lines_of_real_runs(folders, forked):
    tiny = dict(dataset__scale=0.009, epochs=3, model__hidden=8)
    found = systems.system_lines(folders, rounds=1, names=["cdfgnn"], **tiny)
    assert [line.name.split()[0] for line in found] == ["cdfgnn"]
    assert all(line.ours > 0 and line.peer > 0 and line.target == systems.TARGET for line in found)
    assert "edge-cut" in found[0].note


def test_every_configured_system_is_benched():
    assert {"vanilla", "sancus", "cdfgnn"} <= set(systems.configured())


@pytest.mark.nightly(60)
def test_partition_lines_are_of_every_edge_method():
    found = partition.partition_lines(random_graph(300, 12, num_features=2, num_classes=2, seed=1))
    assert [line.name.split(":")[0] for line in found] == list(partition.EDGE_METHODS) and all(
        line.met for line in found
    )


def test_the_product_is_timed_beside_dgl_and_its_earlier_form(monkeypatch):
    monkeypatch.setattr(spmm, "NO_WORSE", {5: 1.0})
    block = roofline.random_graph(400, 9000)
    found = [*spmm.dgl_lines(block, rounds=2), *spmm.uniform_lines((2e3, 4e3), rounds=2)]
    assert len(found) == 4 and all(line.note or line.target for line in found)
    for line in found[: 3 if load_dgl() is not None else 0]:
        assert line.ours > 0 and len(line.samples) == 2 and min(line.samples) <= line.ours
    assert math.isfinite(found[-1].ours) and found[-1].target == spmm.GROWTH
    assert found[2].target == (spmm.HALF if found[2].peer else None)


def test_a_side_that_ends_its_process_is_told(monkeypatch):
    """As DGL's copy-sum does on some shapes, by a segmentation fault."""

    class Dead:
        exitcode = -11

        def __init__(self, target, args):
            pass

        def start(self):
            pass

        def join(self):
            pass

    monkeypatch.setattr(spmm, "load_dgl", lambda: True)
    monkeypatch.setattr(spmm.multiprocessing, "get_context", lambda how: SimpleNamespace(Process=Dead))
    found = spmm.dgl_lines(roofline.random_graph(100, 500), rounds=1)
    assert len(found) == 3
    assert all(math.isnan(line.ours) and "exit code -11" in line.note for line in found)
    assert not any(line.met for line in found)
