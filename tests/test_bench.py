"""The bench on tiny graphs: every part gives finite values, held to its targets; no timing is judged."""

import math
import subprocess
import time
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
from harness.dev.bench import (
    blocks,
    cpu,
    lines,
    needed,
    order,
    parts,
    runs,
    spmm,
    start,
    systems,
)
from tests.graphs import random_graph
from tests.launching import Started
from tests.oracles import dense

MODEL = Gcn(layers=2, hidden=16, dropout=0.0)


def test_interleaved_takes_turns_and_drops_the_warm_up():
    called = []
    seconds = lines.interleaved(
        {name: lambda name=name: called.append(name) for name in "abc"}, rounds=2, warm_up=1
    )
    assert "".join(called) == "abcabcabc" and [len(seconds[name]) for name in "abc"] == [2] * 3


@pytest.mark.parametrize("ours, peer, target, met", [
    (1.0, 2.0, 1.0, True), (2.0, 1.0, 1.0, False), (5.0, None, 12.0, True), (13.0, None, 12.0, False),
    (1.0, 2.0, None, None), (float("nan"), None, 1.0, False),
])  # fmt: skip
def test_a_missed_target_is_told(ours, peer, target, met):
    line = lines.BenchLine("epoch", "x", ours, "s", peer, target)
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


TINY = dict(dataset__scale=0.009, epochs=3, model__hidden=8)


@pytest.fixture
def pretended(monkeypatch):
    """Runs that take what a test says: `took(folders, keys)` seconds of an epoch, and thrice that of CPU.
    What was asked for comes back, in order."""
    asked = []

    def begin(took, *modules):
        def train(folders, **keys):
            asked.append((folders, keys))
            return SimpleNamespace(took=took(folders, keys), trace=SimpleNamespace(config=keys))

        for module in modules:
            monkeypatch.setattr(module, "train", train)
            for name, factor in (("seconds_per_epoch", 1.0), ("cpu_per_epoch", 3.0)):
                monkeypatch.setattr(module, name, lambda trace, f=factor: f * took(None, trace.config), False)
        return asked

    return begin


def test_runs_take_turns_and_who_is_first_changes():
    began = []
    made = {name: lambda name=name: began.append(name) or len(began) for name in "abc"}
    found = runs.in_turn(made, 3, lambda number: 10 * number)
    assert "".join(began) == "abccbaabc"
    assert found == {"a": [10, 60, 70], "b": [20, 50, 80], "c": [30, 40, 90]}


@pytest.mark.nightly(60)
@pytest.mark.parametrize(
    "measured, more",
    [
        (order.order_lines, {"workers": (2,), "hidden": (8,)}),
        (systems.system_lines, {"names": ["cdfgnn"]}),
    ],
    ids=["order", "system"],
)
def test_lines_of_real_runs(folders, forked, measured, more):
    found = measured(folders, rounds=1, **more, **TINY)
    assert found and all(line.ours > 0 and line.peer > 0 and np.isfinite(line.ratio) for line in found)


@pytest.mark.nightly(50)
def test_start_lines_of_real_runs(folders):
    whole, *stages = start.start_lines(folders, rounds=1, workers=2, dataset__scale=0.009, model__hidden=8)
    assert whole.target == start.TARGET_S and whole.ours == pytest.approx(sum(s.ours for s in stages))
    assert all(np.isfinite(s.ours) for s in stages) and stages[-1].ours > 0


def test_a_start_is_held_to_its_target_and_told_in_stages(folders, pretended, monkeypatch):
    pretended(lambda where, keys: 2.0, start)
    monkeypatch.setattr(start, "stages", lambda run: {"imports": run.took, "first epoch": run.took / 2})
    whole, *stages = start.start_lines(folders, rounds=2)
    assert (whole.ours, whole.target, [line.ours for line in stages]) == (3.0, 1.5, [2.0, 1.0])


def test_the_chosen_order_is_held_to_the_better_of_both(folders, pretended, monkeypatch):
    took = {"auto": 1.2, "transform": 2.0, "aggregate": 1.0}
    asked = pretended(lambda where, keys: took[keys["order"]], order)
    monkeypatch.setattr(order, "chosen", lambda trace: f"by {trace.config['order']}")
    found = order.order_lines(folders, 2, workers=(2, 4), hidden=(64, 128), epochs=3)
    assert len(found) == 8 and len(asked) == 3 * 2 * len(found)
    assert {line.ratio for line in found} == {1.2} and {line.target for line in found} == {1.05}
    assert all("/ aggregate" in line.name and line.note == "chosen: by auto; transform 6" for line in found)


@pytest.mark.parametrize("values, said", [
    ({0: [1.0, 1.0], 1: [0.0, 0.0]}, "transform, aggregate"), ({0: [1.0, 0.0]}, "50% transform"),
])  # fmt: skip
def test_what_layers_chose_is_told(values, said):
    rows = [("transform_first", layer, each) for layer, of in values.items() for each in of]
    metrics = pd.DataFrame([*rows, ("staleness", 0, 7.0)], columns=["name", "layer", "value"])
    assert order.chosen(SimpleNamespace(metrics=metrics)) == said


def test_a_sampled_epoch_is_held_to_vanillas(folders, pretended):
    asked = pretended(lambda where, keys: {"bns": 3.0, "vanilla": 4.0}[keys["system"]], systems)
    found = systems.sampled_lines(folders, rounds=2)
    assert [line.ratio for line in found] == [0.75] * 4 and {line.target for line in found} == {0.75}
    assert all(line.note == "CPU s 9 / 12" for line in found)
    assert all(keys.get("system__rate") == (0.1 if keys["system"] == "bns" else None) for _, keys in asked)


def test_epochs_on_bags_of_words_are_held_to_vanillas_once(folders, pretended, tmp_path, monkeypatch):
    asked = pretended(lambda where, keys: {"vanilla": 1.0}.get(keys["system"], 2.0), systems)
    (absent,) = systems.bag_lines(folders, tmp_path)
    assert not asked and math.isnan(absent.ours) and absent.met is None and "--data-dir" in absent.note
    monkeypatch.setattr(systems.real, "present", lambda name, data_dir: True)
    found = systems.bag_lines(folders, tmp_path, rounds=2)
    assert {line.ratio for line in found} == {2.0}
    own = [line.name for line in found if line.target is None]
    assert own == [f"cdfgnn, {how}, its own cut / vanilla, once" for how in ("refetch", "once")]
    assert [line.target for line in found if line.name not in own] == [3.0] * 6
    assert all(keys["dataset"] == "coauthor-physics" and keys["data_dir"] == tmp_path for _, keys in asked)


def test_lean_is_held_to_vanilla_by_how_few_vertices_train(folders, pretended, tmp_path, monkeypatch):
    asked = pretended(lambda where, keys: {"vanilla": 2.0, "lean": 1.0}[keys["system"]], needed)
    monkeypatch.setattr(needed, "share", lambda trace: {"lean": 0.25}.get(trace.config["system"]))
    (absent,) = needed.lean_lines(folders, tmp_path, graphs=("cora",))
    assert not asked and math.isnan(absent.ours) and absent.met is None and "--data-dir" in absent.note
    monkeypatch.setattr(needed.real, "present", lambda name, data_dir: True)
    found = needed.lean_lines(folders, tmp_path, rounds=2, graphs=("cora", "dblp"))
    assert [line.target for line in found] == [0.7, 0.7, 1.0, 1.0, 0.5, 0.5, 1.0, 1.0]
    assert {line.ratio for line in found} == {0.5} and {line.note for line in found} == {"|R_1| / V = 0.250"}
    both = ("coauthor-physics", "tolokers")
    physics, *own = needed.lean_lines(folders, tmp_path, rounds=1, graphs=both)[::4]
    assert physics.target == 0.7 and [(line.target, "own" in line.name) for line in own] == [(1.0, True)]


def test_an_epoch_on_needed_rows_stands_beside_dgls_and_pygs(monkeypatch):
    graph = random_graph(300, 3, num_features=20, num_classes=4, seed=1)
    graph.train[20:] = False
    rows = dense.adjacency(graph)[graph.train].any(0) | graph.train  # R_1
    dgl, pyg = needed.beside_peers(graph, "random", 2, 8, 0.2)
    assert pyg.note == f"|R_1| / V = {rows.mean():.3f}" and 0 < rows.mean() < 0.9
    assert pyg.ours > 0 and pyg.peer > 0 and pyg.target is None and pyg.name.endswith("/ PyG")
    if load_dgl() is not None:
        assert dgl.ours > 0 and dgl.peer > 0 and dgl.target == 0.2
    monkeypatch.setattr(needed, "dgl_peer", lambda *given: None)
    absent, pyg = needed.beside_peers(graph, "random", 2, 8, 0.2)
    assert absent.met is None and "not measured" in absent.note and pyg.peer > 0


@pytest.mark.nightly(30)
def test_lean_lines_of_real_runs(folders, forked, real_data):
    found = needed.lean_lines(folders, real_data, 1, ("cora",), epochs=3)
    assert len(found) == 4 and all(line.ours > 0 and line.peer > 0 for line in found)
    few, many = found[0].note, found[2].note
    assert float(few.split("= ")[1]) < float(many.split("= ")[1]) <= 1


@pytest.mark.nightly(50)
def test_every_part_can_be_measured_at_its_small_extent():
    """Whole runs at that extent are tested above: here, what is measured in this process."""
    setting = parts.Setting(None, None, 1, parts.QUICK)
    for name in ("partition",):
        found = parts.PARTS[name].measure(setting)
        assert found and all(line.part == name and math.isfinite(line.ours) for line in found)


def test_a_run_that_fails_says_why(folders, forked):
    with pytest.raises(runs.RunFailed, match="dataset.scale"):
        runs.train(folders, dataset__scale=-1)


def test_the_exponent_of_a_power_law_is_found():
    rows = [{"edges": edges, "seconds": 3e-9 * edges**1.2} for edges in (1e5, 1e6, 3e6, 1e7)]
    assert np.isclose(lines.exponent(rows), 1.2)


@pytest.mark.nightly(20)
def test_the_product_is_timed_beside_dgl_and_by_its_entries(monkeypatch):
    monkeypatch.setattr(spmm, "NO_WORSE", {5: 1.0})
    block = random_block(400, 400, 22)
    found = [*spmm.dgl_lines(block, rounds=2), *spmm.uniform_lines((2e3, 4e3), rounds=2)]
    assert len(found) == 4 and all(line.note or line.target for line in found)
    assert all(len(line.peer_samples) == 2 for line in found[:-1] if line.peer is not None)
    for line in found[: 3 if load_dgl() is not None else 0]:
        assert line.ours > 0 and len(line.samples) == 2 and min(line.samples) <= line.ours
    assert math.isfinite(found[-1].ours) and found[-1].target == spmm.GROWTH


def test_blocks_are_timed_beside_dgls_sampler(monkeypatch):
    graph = random_graph(300, 12, num_features=2, num_classes=2, seed=1)
    found = blocks.block_lines(graph, rounds=2)
    if load_dgl() is not None:
        assert found[0].target == blocks.NO_SLOWER and all(line.target is None for line in found[1:])
        assert all(line.ours > 0 and line.peer > 0 and len(line.peer_samples) == 2 for line in found)
    sample, edges = blocks.our_sampler(graph, np.arange(20, dtype=np.int32))
    made = sample()
    assert [block.first for block in made] == [False, False, True]
    assert edges == sum(block.num_entries for block in made) > 20 * 5
    monkeypatch.setattr(blocks, "load_dgl", lambda: None)
    (absent,) = blocks.block_lines(graph, rounds=2)
    assert math.isnan(absent.ours) and absent.met is None and "not measured" in absent.note


def test_systems_are_held_to_what_vanilla_computes_and_say_what_they_compute_more(
    folders, pretended, monkeypatch
):
    asked = pretended(lambda where, keys: 1.0, systems)
    monkeypatch.setattr(systems, "compute_per_epoch", lambda trace: 2.0)
    monkeypatch.setattr(
        systems, "flops_per_epoch", lambda trace: 3.0 if trace.config["system"] == "cdfgnn" else 1.0
    )
    found = {line.name.split()[0]: line for line in systems.system_lines(folders, rounds=1)}
    assert "distdgl" in systems.configured() and "distdgl" not in found, "it trains on mini-batches"
    assert {line.target for line in found.values()} == {1.3}
    assert {line.ratio for name, line in found.items() if name != "llcg"} == {1.0}
    assert found["llcg"].ratio < 1 and "of a step, " in found["llcg"].note
    assert "vanilla on an edge-cut; 3.00 times vanilla's products" in found["cdfgnn"].note
    partitioned = {keys["system"]: "partition" in keys for _, keys in asked}
    assert partitioned["vanilla"] and not partitioned["cdfgnn"], "a vertex-cut is its system's own"


def test_four_workers_are_held_to_their_target_or_to_just_above_the_floor(folders, pretended, monkeypatch):
    pretended(lambda where, keys: 2.0 if keys["gpus"] == 4 else 1.0, cpu)
    monkeypatch.setattr(cpu, "floor", lambda shards, features, *rest: {"once": 3.0, "refetch": 5.4}[features])
    graph = random_graph(40, 3, num_features=4, num_classes=2, seed=1)
    found = {line.name.split(" / ")[0]: line for line in cpu.cpu_lines(graph, MODEL, folders, rounds=1)}
    assert {line.ratio for line in found.values()} == {2.0}
    assert found["4 workers, once, metis"].target == 1.20, "the floor of 1.0 lies below"
    assert found["4 workers, refetch, metis"].target == pytest.approx(1.05 * 1.8)
    assert found["4 workers, refetch, random"].target is None
    assert found["4 workers, once, metis"].note == "floor 1.00; 2.00 of it"


@pytest.mark.nightly(20)
def test_the_floor_computes_the_products_of_a_run(folders, forked, monkeypatch):
    recorders = []
    monkeypatch.setattr(cpu, "Recorder", lambda: recorders.append(Recorder()) or recorders[-1])
    setting = parts.Setting(folders, None, 1, parts.QUICK)
    graph, keys = setting.graph(), parts.QUICK.runs
    shards = list(build_shards(graph, assign(graph, "metis", 4, 1).astype(np.int32), 4))
    model = Gcn(layers=2, hidden=keys["model__hidden"], dropout=0.0)
    assert cpu.floor(shards, "refetch", model, epochs=3) > 0
    run = runs.train(folders, gpus=4, partition="metis", system__features="refetch", **keys)
    here = sum(span.flops for recorder in recorders for span in recorder.epoch.spans)
    assert here == runs.flops_per_epoch(run.trace)


def test_what_is_computed_leaves_out_waits_and_first_epochs():
    spans = [
        ("compute", "aggregate", 4.0), ("rest", "", 2.0), ("wait", "global_put", 1.0), ("wait", "halo", 30.0)
    ]  # fmt: skip
    rows = [(epoch, *span[:2], span[2] * (10 if epoch < 2 else 1)) for epoch in range(5) for span in spans]
    trace = SimpleNamespace(spans=pd.DataFrame(rows, columns=["epoch", "kind", "name", "cpu_s"]))
    assert runs.compute_per_epoch(trace) == 7.0


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
    found = spmm.dgl_lines(random_block(100, 100, 5), rounds=1)
    assert len(found) == 3
    assert all(math.isnan(line.ours) and "exit code -11" in line.note for line in found)
    assert not any(line.met for line in found)
