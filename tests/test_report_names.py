"""What a row is called, and which runs are one: by what was asked for, what it became, and who ran it."""

from __future__ import annotations

import re

import pytest

from harness.results import files, resolved, summary, writer
from harness.results.report import compare, groups
from tests import traces
from tests.reported import rows_of, run_markdown


def test_several_steps_per_epoch_are_named(tmp_path, capsys):
    traces.finished(tmp_path / "a", ran_on={"steps": 2})
    assert rows_of(capsys, tmp_path)[0]["system"] == "plain (2 steps per epoch)"


@pytest.mark.parametrize(
    "name, one, other", [("transport", "memory", "sockets"), ("threads", 1, 2), ("kernel", "numba", "torch")]
)
def test_runs_that_differ_in_what_auto_became_are_never_averaged(tmp_path, capsys, name, one, other):
    for number, value in enumerate((one, other, one)):
        traces.finished(
            tmp_path / str(number), traces.config(seed=number, transport="auto"), ran_on={name: value}
        )
    shown = rows_of(capsys, tmp_path)
    assert {(row["system"], row["seeds"]) for row in shown} == {
        (f"plain ({name} {one})", "2"),
        (f"plain ({name} {other})", "1"),
    }


def test_runs_of_files_with_other_content_are_never_averaged(tmp_path):
    """Two files of one name, one after the other; one of them was touched in between."""

    def made_on(name, seed, **known):
        folder = traces.finished(tmp_path / name, traces.config(seed=seed))
        files.write_json_atomic(folder / "shards.json", {"stats": {}, "graph": {"files": {"g.npz": known}}})
        return folder

    found = [made_on(*each) if len(each) == 2 else made_on(*each[:2], **each[2]) for each in (
        ("a", 1, {"sha256": "1"}), ("b", 2, {"sha256": "1"}), ("c", 3, {"sha256": "2"}),
        ("d", 4, {"size": 5, "changed_ns": 1}), ("e", 5, {"size": 5, "changed_ns": 2}))]  # fmt: skip
    compared, _ = groups.load(found)
    assert sorted(group.seeds for group in compared) == [[1, 2], [3], [4, 5]]
    assert len({group.dataset for group in compared}) == 3
    assert all(re.fullmatch(r"cora \(content [0-9a-f]{8}\)", group.dataset) for group in compared)
    assert groups.load(found[:2])[0][0].dataset == "cora"


def test_sums_that_are_coded_are_named_and_no_reference(tmp_path, capsys):
    """Exact training whose gradients are coded is held to exact training, not to itself."""
    traces.finished(tmp_path / "a", ran_on={"role": "reference"})
    coded = traces.config(combine={"_target_": "harness.core.combine.Quantised", "bits": 8})
    traces.finished(tmp_path / "b", coded, ran_on={"role": "reference"}, size=5)
    scored = traces.config(score={"macro_f1": {"_target_": "harness.core.counted.MacroF1"}})
    traces.finished(tmp_path / "c", scored, ran_on={"role": "other"})
    compared, _ = groups.load([tmp_path])
    assert len({group.label for group in compared}) == 3
    assert not any("code" in group.label for group in compared)
    by = {group.first.path.name: group for group in compared}
    assert "combine=quantised" in by["b"].label and "macro_f1" in by["c"].label
    assert compare.reference_of(by["b"], compared) is compare.reference_of(by["c"], compared) is by["a"]


def test_two_systems_of_one_file_go_by_their_classes(tmp_path):
    for name in ("One", "Other"):
        traces.finished(tmp_path / name, traces.config(system___target_=f"mine.idea.{name}"))
    assert {group.label for group in groups.load([tmp_path])[0]} == {"idea.One", "idea.Other"}


def test_what_auto_became_is_told_among_runs_of_as_many_workers_only(tmp_path, capsys):
    for gpus, threads in ((1, 2), (2, 1)):
        traces.finished(tmp_path / str(gpus), traces.config(gpus=gpus), ran_on={"threads": threads})
    assert {row["system"] for row in rows_of(capsys, tmp_path)} == {"plain"}


def test_another_split_than_the_graphs_own_stands_in_its_name(tmp_path):
    composed = traces.config(dataset__split="random")
    found = [traces.finished(tmp_path / "a", composed)]
    assert [g.dataset for g in groups.load(found)[0]] == ["cora split=random"]
    few = traces.config(dataset__split="low_label", dataset__labels_per_class=5)
    usual = traces.config(dataset__split="low_label", dataset__labels_per_class=20)
    found = [traces.finished(tmp_path / name, each) for name, each in (("b", few), ("c", usual))]
    assert [groups.load([path])[0][0].dataset for path in found] == [
        "cora labels_per_class=5 split=low_label",
        "cora split=low_label",
    ]


def test_a_machine_is_its_processor_cores_and_gpus():
    here = {"processor": "CPU", "cores": 4}
    assert resolved.machine({**here, "gpus": []}) == resolved.machine(here) == "CPU, 4 cores"
    assert resolved.machine({**here, "gpus": ["H100", "H100"]}) == "CPU, 4 cores, 2 x H100"


def test_what_was_asked_for_tells_runs_apart_and_what_it_became_is_then_not_said_again(tmp_path, capsys):
    for number, asked in enumerate(("memory", "sockets")):
        traces.finished(tmp_path / str(number), traces.config(transport=asked), ran_on={"transport": asked})
    assert {row["system"] for row in rows_of(capsys, tmp_path)} == {
        "plain transport=memory",
        "plain transport=sockets",
    }


def test_a_run_that_went_on_elsewhere_says_so(tmp_path, capsys):
    run = traces.prepare(tmp_path, ran_on=None)
    traces.resolve(run, 0, code="aaa")
    traces.resolve(run, 3, code="bbb", machine="Other CPU, 8 cores")
    traces.stream(run, range(5))
    writer.finalise(run)
    s = summary.summarise(run)
    assert "computed by different code: aaa from epoch 1 on, bbb from epoch 4 on" in s["notes"]
    assert (
        "computed on different machines: Test CPU, 4 cores from epoch 1 on, Other CPU, 8 cores from epoch"
        " 4 on" in s["notes"]
    )
    assert "Test CPU, 4 cores, then Other CPU, 8 cores" in run_markdown(capsys, run)


def test_different_code_of_one_system_is_told_and_of_two_systems_is_not(tmp_path, capsys):
    for number, (system, code) in enumerate([("a", "x1"), ("b", "x2"), ("b", "x3")]):
        composed = traces.config(seed=number, system___target_=f"systems.{system}.S")
        traces.finished(tmp_path / str(number), composed, ran_on={"code": code})
    text = run_markdown(capsys, tmp_path)
    assert "Runs of b were computed by different code: x2, x3." in text and "Runs of a" not in text


def test_keys_of_other_graphs_stay_out_of_a_name(tmp_path, capsys):
    traces.finished(tmp_path / "a", traces.config(dataset__name="cora", model__hidden=16))
    traces.finished(tmp_path / "b", traces.config(dataset__name="dblp", model__hidden=64))
    assert re.findall(r"^\| (plain.*?) +\|", run_markdown(capsys, tmp_path), re.M) == ["plain", "plain"]


def test_rows_that_versions_with_other_keys_made_have_names_of_their_own(tmp_path, capsys):
    traces.finished(tmp_path / "old")
    traces.finished(tmp_path / "new", traces.config(diverged="stop"), ran_on={"code": "abc"})
    assert {row["system"] for row in rows_of(capsys, tmp_path)} == {
        "plain (code revision abc1234)",
        "plain (code abc)",
    }


def test_an_optimiser_is_named_as_one_chooses_it(tmp_path, capsys):
    for name in ("Adam", "Sgd"):
        block = {"_target_": f"harness.core.optimisers.{name}", "lr": 0.01}
        traces.finished(tmp_path / name, traces.config(optimiser=block))
    shown = {row["system"] for row in rows_of(capsys, tmp_path)}
    assert shown == {"plain optimiser=adam", "plain optimiser=sgd"}
