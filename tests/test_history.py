"""`halobench report history`: the same runs by other code."""

from __future__ import annotations

import os

import pytest

from harness import cli
from harness.dev.history.steps import steps
from tests import traces


def runs(folder, code, *, when, seeds=(1, 2, 3), speed=1.0, size=64, target=0.8, ran_on=None, **changes):
    """A finished run per seed, computed by `code`, that ended at the time `when`."""
    for seed in seeds:
        path = folder / f"{code}{seed}"
        composed = traces.config(seed=seed, epochs=4, **changes)
        traces.finished(
            path,
            composed,
            speed=speed * (1 + 0.01 * seed),
            size=size,
            target=target,
            ran_on={"code": code, **(ran_on or {})},
        )
        os.utime(path / "summary.json", (when, when))


def told(folder, *more):
    return [(step.before.split()[0], step.after.split()[0], step.words) for step in steps([folder, *more])]


def test_what_became_worse_is_listed_first(tmp_path, capsys):
    runs(tmp_path, "new", when=300, speed=1.5, size=128)
    runs(tmp_path, "old", when=100)
    runs(tmp_path, "mid", when=200)
    assert told(tmp_path) == [("mid", "new", ["sends more", "slower"]), ("old", "mid", [])]
    assert cli.main(["report", "history", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "mid (abc1234)" in line)
    assert "+50.0" in row and "sends more, slower" in row and "old (abc1234)" not in out
    assert "2 steps from one code to the next: 1 sends more, 1 slower." in out
    assert cli.main(["report", "history", str(tmp_path), "--all", "--check"]) == 1
    assert "nothing" in capsys.readouterr().out


def test_what_became_better_is_no_failure(tmp_path, capsys):
    runs(tmp_path, "old", when=100)
    runs(tmp_path, "new", when=200, speed=0.5, size=32, target=0.9)
    assert told(tmp_path) == [("old", "new", ["sends less", "faster", "scores higher"])]
    assert cli.main(["report", "history", str(tmp_path), "--check"]) == 0


def test_folders_are_ordered_as_given_whatever_their_times(tmp_path):
    runs(tmp_path / "a", "first", when=900)
    runs(tmp_path / "b", "second", when=100, size=128)
    assert told(tmp_path / "a", tmp_path / "b") == [("first", "second", ["sends more"])]
    assert told(tmp_path / "b", tmp_path / "a") == [("second", "first", ["sends less"])]


def test_runs_set_aside_count(tmp_path):
    runs(tmp_path, "now", when=200, seeds=(1,), size=128)
    runs(tmp_path, "before", when=100, seeds=(1,))
    (tmp_path / "before1").rename(tmp_path / "now1.old1")
    (step,) = steps([tmp_path])
    assert (step.words, step.untold) == (["sends more"], "one seed in common has no interval for its time")


@pytest.mark.parametrize(
    "changes",
    [
        {"model__hidden": 128},
        {"ran_on": {"machine": "Another CPU, 8 cores"}},
    ],
    ids=["config", "machine"],
)
def test_runs_of_another_config_or_machine_have_no_history_together(tmp_path, changes):
    runs(tmp_path, "old", when=100)
    runs(tmp_path, "new", when=200, size=128, **changes)
    assert steps([tmp_path]) == []


def test_a_key_that_the_earlier_version_did_not_know_changes_nothing(tmp_path):
    runs(tmp_path, "old", when=100)
    runs(tmp_path, "new", when=200, size=128, wire="float32", model__activation="relu")
    assert told(tmp_path) == [("old", "new", ["sends more"])]
    runs(tmp_path / "other", "newer", when=300, wire="bfloat16")
    assert len(told(tmp_path)) == 1


def test_bytes_of_an_asynchronous_system_differ_by_themselves(tmp_path):
    asynchronous = {"ran_on": {"asynchronous": True}}
    runs(tmp_path, "old", when=100, seeds=(1,), **asynchronous)
    runs(tmp_path, "new", when=200, seeds=(1,), size=65, **asynchronous)
    assert told(tmp_path) == [("old", "new", [])]


def test_without_a_second_code_one_sentence_says_so(tmp_path, capsys):
    runs(tmp_path, "only", when=100, seeds=(1,))
    assert cli.main(["report", "history", str(tmp_path)]) == 0
    assert "No config was computed by more than one code here" in capsys.readouterr().out
    assert cli.main(["report", "history", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
