"""What a row is called, and which runs are one: by what was asked for, what it became, and who ran it."""

import re

import pytest

from harness.results import files, resolved, summary, writer
from harness.results.report import compare, groups
from tests import traces
from tests.reported import run_markdown

OPTIMISER = "harness.core.optimisers"
# What rows are called, with their numbers of seeds, by the keys of their runs and by what these ran on.
NAMES = {
    "several steps per epoch": ([({}, {"steps": 2})], {"plain (2 steps per epoch)": 1}),
    "what auto became, and no mean over both": (
        [({"seed": seed}, {"transport": way}) for seed, way in enumerate(("memory", "sockets", "memory"))],
        {"plain (transport memory)": 2, "plain (transport sockets)": 1},
    ),
    "what auto became for other numbers of workers": (
        [({"gpus": 1}, {"threads": 2}), ({"gpus": 2}, {"threads": 1})],
        {"plain": 1},
    ),
    "what was asked for, and then not what it became": (
        [({"transport": way}, {"transport": way}) for way in ("memory", "sockets")],
        {"plain transport=memory": 1, "plain transport=sockets": 1},
    ),
    "two systems of one file": (
        [({"system___target_": f"mine.idea.{name}"}, None) for name in ("One", "Other")],
        {"idea.One": 1, "idea.Other": 1},
    ),
    "versions with other keys": (
        [({}, None), ({"diverged": "stop"}, {"code": "abc"})],
        {"plain (code revision abc1234)": 1, "plain (code abc)": 1},
    ),
    "an optimiser, as one chooses it": (
        [({"optimiser": {"_target_": f"{OPTIMISER}.{name}", "lr": 0.01}}, None) for name in ("Adam", "Sgd")],
        {"plain optimiser=adam": 1, "plain optimiser=sgd": 1},
    ),
    "a model of one's own, beside one of the tree": (
        [({"model": {"name": "gcn"}}, None), ({"model": {"_target_": "mine.Mixed", "own": 0.5}}, None)],
        {"plain model.name=gcn": 1, "plain model=mixed": 1},
    ),
    "keys of other graphs stay out": (
        [({"dataset__name": "cora", "model__hidden": 16}, None), ({"dataset__name": "dblp"}, None)],
        {"plain": 1},
    ),
    "a cluster, where a system's runs differ in it": (
        [
            (
                {"system___target_": f"systems.{system}.S", "cluster__name": cluster, "cluster__matrix": at},
                None,
            )
            for at, (system, cluster) in enumerate([("a", "measured"), ("a", "x4"), ("b", "measured")])
        ],
        {"a cluster=measured": 1, "a cluster=x4": 1, "b": 1},
    ),
}


@pytest.mark.parametrize("told, named", NAMES.values(), ids=NAMES)
def test_a_row_is_named_by_what_tells_it_apart(tmp_path, told, named):
    for number, (changes, ran_on) in enumerate(told):
        traces.finished(tmp_path / str(number), traces.config(**changes), ran_on=ran_on)
    compared, _ = groups.load([tmp_path])
    assert {group.label: len(group.seeds) for group in compared} == named


def test_runs_of_files_with_other_content_are_never_averaged(tmp_path):
    """Two files of one name, one after the other; one of them was touched in between."""

    touched = [{"size": 5, "changed_ns": at} for at in (1, 2)]
    found = []
    for seed, known in enumerate([{"sha256": "1"}, {"sha256": "1"}, {"sha256": "2"}, *touched], 1):
        found.append(traces.finished(tmp_path / str(seed), traces.config(seed=seed)))
        graph = {"files": {"g.npz": known}}
        files.write_json_atomic(found[-1] / "shards.json", {"stats": {}, "graph": graph})
    compared, _ = groups.load(found)
    assert sorted(group.seeds for group in compared) == [[1, 2], [3], [4, 5]]
    assert len({group.dataset for group in compared}) == 3
    assert all(re.fullmatch(r"cora \(content [0-9a-f]{8}\)", group.dataset) for group in compared)
    assert groups.load(found[:2])[0][0].dataset == "cora"


def test_sums_that_are_coded_are_named_and_no_reference(tmp_path):
    """Exact training whose gradients are coded is held to exact training, not to itself."""
    traces.finished(tmp_path / "a", ran_on={"role": "reference"})
    coded = traces.config(combine={"_target_": "harness.core.combine.Quantised", "bits": 8})
    traces.finished(tmp_path / "b", coded, ran_on={"role": "reference"}, size=5)
    scored = traces.config(score={"macro_f1": {"_target_": "harness.core.counted.MacroF1"}})
    traces.finished(tmp_path / "c", scored, ran_on={"role": "other"})
    compared, _ = groups.load([tmp_path])
    assert len({group.label for group in compared}) == 3
    by = {group.first.path.name: group for group in compared}
    assert "combine=quantised" in by["b"].label and "macro_f1" in by["c"].label
    assert compare.reference_of(by["b"], compared) is compare.reference_of(by["c"], compared) is by["a"]


def test_another_split_than_the_graphs_own_stands_in_its_name(tmp_path):
    for number, (keys, named) in enumerate([
        ({"split": "random"}, "cora split=random"),
        ({"split": "low_label", "labels_per_class": 5}, "cora labels_per_class=5 split=low_label"),
        ({"split": "low_label", "labels_per_class": 20}, "cora split=low_label"),
    ]):  # fmt: skip
        composed = traces.config(**{f"dataset__{key}": value for key, value in keys.items()})
        run = traces.finished(tmp_path / str(number), composed)
        assert groups.load([run])[0][0].dataset == named


def test_a_machine_is_its_processor_cores_and_gpus():
    here = {"processor": "CPU", "cores": 4}
    assert resolved.machine({**here, "gpus": []}) == resolved.machine(here) == "CPU, 4 cores"
    assert resolved.machine({**here, "gpus": ["H100", "H100"]}) == "CPU, 4 cores, 2 x H100"


def test_a_run_that_went_on_elsewhere_says_so(tmp_path, capsys):
    run = traces.prepare(tmp_path, ran_on=None)
    traces.resolve(run, 0, code="aaa")
    traces.resolve(run, 3, code="bbb", machine="Other CPU, 8 cores")
    traces.stream(run, range(5))
    writer.finalise(run)
    s = summary.summarise(run)
    assert "computed by different code: aaa from epoch 1 on, bbb from epoch 4 on" in s["notes"]
    assert any(
        note.startswith("computed on different machines: Test CPU, 4 cores from") for note in s["notes"]
    )
    assert "Test CPU, 4 cores, then Other CPU, 8 cores" in run_markdown(capsys, run)


def test_different_code_of_one_system_is_told_and_of_two_systems_is_not(tmp_path, capsys):
    for number, (system, code) in enumerate([("a", "x1"), ("b", "x2"), ("b", "x3")]):
        composed = traces.config(seed=number, system___target_=f"systems.{system}.S")
        traces.finished(tmp_path / str(number), composed, ran_on={"code": code})
    for system in ("a", "b"):  # under one label
        composed = traces.config(seed=4, system___target_=f"systems.{system}.S", label="mine")
        traces.finished(tmp_path / f"mine {system}", composed, ran_on={"code": f"x4{system}"})
    text = run_markdown(capsys, tmp_path)
    assert "Runs of b were computed by different code: x2, x3." in text and text.count("different code") == 1
