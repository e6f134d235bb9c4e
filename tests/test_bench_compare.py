"""What the bench judges: its targets, and two revisions in one run."""

from __future__ import annotations

import json
import math
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.machine import cache_bytes, cpu_flags
from harness.dev.bench import __main__ as bench
from harness.dev.bench import against, lines, parts, runs
from harness.dev.bench.load import Load
from tests.launching import ROOT, Started


def line(samples, name="x", unit="s", **more) -> lines.BenchLine:
    return lines.BenchLine.of("epoch", name, unit, samples, **more)


def judged(old, new, *margin, unit="s"):
    return against.judge(line(new, unit=unit, peer_samples=old), *margin)


FAST, SLOW = [1.0, 1.01, 1.02, 1.03, 1.04], [1.2, 1.21, 1.22, 1.23, 1.24]


@pytest.mark.parametrize("old, new, unit, word, failed", [
    (FAST, SLOW, "s", "slower", True), (SLOW, FAST, "s", "faster", False),
    (FAST, [x + 0.05 for x in FAST], "s", "slower", False), (FAST, FAST, "s", "no difference", False),
    (FAST[:3], SLOW[:3], "s", "too few samples", False),
    ([8, 8], [8, 8, 8], "bytes", "equal", False), ([8, 8], [8, 9], "bytes", "differ", True),
    ([1000000], [1000001], "bytes", "differ", True),
])  # fmt: skip
def test_a_verdict(old, new, unit, word, failed):
    found = judged(old, new, unit=unit)
    assert (found.word, found.failed) == (word, failed)
    measured = line(new, unit=unit, peer_samples=old)
    measured.busy = True
    busy = against.judge(measured)
    assert (busy.word, busy.failed) == ((word, failed) if unit == "bytes" else (lines.NOT_JUDGED, False))


samples = st.lists(st.floats(0.1, 10), min_size=4, max_size=9)


@given(old=samples, new=samples, margin=st.floats(0, 1))
def test_who_is_faster_one_way_is_slower_the_other(old, new, margin):
    there, back = (judged(a, b, margin) for a, b in ((old, new), (new, old)))
    other = {"faster": "slower", "slower": "faster"}
    assert back.word == other.get(there.word, there.word) and not (there.failed and back.failed)
    assert there.ratio * back.ratio == pytest.approx(1)


def test_a_value_beside_zero_has_no_ratio():
    assert lines.BenchLine("against", "x", 3, against.EXACT, 0).ratio is None
    assert lines.BenchLine("against", "x", 0, against.EXACT, 0).ratio == 1
    assert lines.BenchLine("against", "x", 3, against.EXACT, 0, target=1.0).met is False


def test_the_file_has_every_sample_of_both_sides_the_machine_and_the_revision(tmp_path):
    path = tmp_path / "new" / "a.json"
    found = [
        line(FAST, peer_samples=[1.9, 2.0, 2.1]),
        lines.BenchLine("epoch", "DGL", math.nan, "s"),
    ]
    lines.write(found, path, {"epoch": Load(before=1.0, after=2.0, others=0.25)})
    content = json.loads(path.read_text())
    assert content["lines"][0]["samples"] == FAST and content["lines"][0]["peer_samples"] == [1.9, 2.0, 2.1]
    assert {"processor", "cores", "revision"} <= set(content["environment"])
    assert content["loads"] == {"epoch": {"before": 1.0, "after": 2.0, "others": 0.25, "busy": True}}
    assert content["cpu"]["flags"] == cpu_flags() and content["cpu"]["flags"]
    assert content["cpu"]["cache_bytes"]["1"] == cache_bytes(1)
    assert content["lines"][1]["ours"] is None


QUIET, BUSY = Load(before=2.0, after=2.0, others=0.01), Load(before=0.0, after=0.0, others=0.2)


@pytest.fixture
def measuring(monkeypatch):
    """One part alone, which gives these lines on a machine with this load."""

    def say(found, load):
        monkeypatch.setattr(bench, "PARTS", {"partition": parts.Part("cuts", lambda setting: found)})
        monkeypatch.setattr(bench, "Watch", lambda: SimpleNamespace(load=lambda: load))

    return say


@pytest.mark.parametrize("took, load, code", [
    (0.5, QUIET, 0), (5.0, QUIET, 1), (0.5, BUSY, 3), (5.0, BUSY, 3),
])  # fmt: skip
def test_a_missed_target_is_named_and_a_busy_machine_is_not_judged(
    tmp_path, capsys, measuring, took, load, code
):
    measuring([lines.BenchLine("partition", "cut", took, "s", target=1.0)], load)
    path = tmp_path / "a.json"
    assert bench.main(["--only", "partition", "--json", str(path)]) == code
    said = capsys.readouterr().out
    assert f"targets missed: {'partition: cut' if code == 1 else 'none'}\n" in said
    assert ("not judged, the machine was busy: partition: cut\n" in said) == (code == 3)
    assert (" met " in said, " MISSED " in said) == (code == 0, code == 1)
    share = f"other processes took {load.others:.1%} of the CPUs' time"
    assert f"partition: load before {load.before:.1f}, after {load.after:.1f}; {share}" in said
    (written,) = json.loads(path.read_text())["lines"]
    assert written["ours"] == took and written["busy"] == (code == 3)


@pytest.mark.parametrize("target, load, more", [(None, BUSY, []), (1.0, QUIET, ["--quick"])])
def test_without_a_target_and_in_a_small_bench_nothing_is_judged(
    tmp_path, capsys, measuring, target, load, more
):
    measuring([lines.BenchLine("partition", "cut", 5.0, "s", target=target)], load)
    assert bench.main([*more, "--only", "partition", "--json", str(tmp_path / "a.json")]) == 0
    assert "MISSED" not in capsys.readouterr().out


def test_a_run_that_fails_ends_the_bench_in_its_words(tmp_path, capsys, monkeypatch):
    def fail(setting):
        raise runs.RunFailed("it said so")

    monkeypatch.setattr(bench, "PARTS", {"start": parts.Part("starts", fail)})
    assert bench.main(["--json", str(tmp_path / "a.json"), "--only", "start"]) == 2
    assert "error: it said so\n" in capsys.readouterr().err


def test_help_lists_every_part(capsys):
    with pytest.raises(SystemExit):
        bench.main(["--help"])
    said = capsys.readouterr().out
    assert all(f"{name} " in said and part.says in said for name, part in parts.PARTS.items())


@pytest.mark.parametrize("words, said", [
    (["--rounds", "0"], "--rounds=0 is too small"), (["--margin", "-1"], "--margin=-1.0 is out of range"),
    (["--against", "{tmp}"], "holds no harness/__main__.py"),
    (["--against", str(ROOT), "epochs"], '"epochs" is not KEY=VALUE'),
    (["epochs=3"], "give --against CHECKOUT too"),
])  # fmt: skip
def test_what_cannot_be_asked_for_is_one_sentence(tmp_path, capsys, words, said):
    assert bench.main([word.format(tmp=tmp_path) for word in words]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and said in told and told.count("\n") == 1


# -- this code beside another checkout --


@pytest.fixture
def beside(place, monkeypatch):
    """Runs are forked from a process that has imported the command; the other checkout's are said to be
    later, and send what `lies` says. What each started with comes back."""
    started = []

    def run(command, cwd, env, **_):
        started.append((cwd, env["PYTHONPATH"]))
        began = time.monotonic()
        ended = Started(place, command[3:]).end()
        words = f"imported {began} {cwd / 'harness' / '__main__.py'}\n"
        return subprocess.CompletedProcess(command, ended.code, ended.out, words + ended.err)

    monkeypatch.setattr(runs, "subprocess", SimpleNamespace(run=run))
    return started


@pytest.fixture
def other(tmp_path) -> Path:
    path = tmp_path / "other"
    (path / "harness").mkdir(parents=True)
    (path / "harness" / "__main__.py").touch()
    return path


def test_two_checkouts_take_turns_and_bytes_are_compared_exactly(
    beside, place, other, tmp_path, monkeypatch, capsys
):
    sent, path = against.sent, tmp_path / "a.json"

    def one_more(run):
        """A byte more than was sent, of one purpose, on one side."""
        read[run.turn].append(len(read))
        run = run.run
        here = "/here/" in str(run.trace.run_dir)
        return {kind: n + int(here and kind[2] == "halo") for kind, n in sent(run).items()}

    turns, done, read = [], {}, []

    def train_once(folders, **keys):
        """Only the first run of each side is real: who has which turn, and what comes of it, is judged."""
        turns.append(folders.checkout)
        if folders.checkout not in done:
            done[folders.checkout] = runs.train(folders, **keys)
        read.append([])
        return SimpleNamespace(turn=len(read) - 1, run=done[folders.checkout])

    monkeypatch.setattr(against, "train", train_once)
    times = {what: (unit, lambda got, of=of: of(got.run)) for what, (unit, of) in against.TIMES.items()}
    monkeypatch.setattr(against, "TIMES", times)
    monkeypatch.setattr(against, "sent", one_more)
    keys = ["dataset=npz", f"dataset.path={place.graph}", "workers=2", "epochs=2", "model.hidden=4"]
    words = [*keys, "kernel=numba", "threads=1", "--rounds", "2", "--margin", "1000", "--json", str(path)]
    assert bench.main(["--against", str(other), *words]) == 1
    assert turns == [ROOT, other, ROOT, other, other, ROOT]
    assert read == [[], [], [3], [4], [5], [6]], "each is read before the next takes its folder"
    assert beside == [(ROOT, str(ROOT)), (other, str(other))]
    found = json.loads(path.read_text())["lines"]
    assert [each["name"].split(": ")[1] for each in found[:3]] == list(against.TIMES)
    assert all(len(each["samples"]) == 2 and min(each["samples"]) > 0 for each in found)
    table, failed = capsys.readouterr().out.split("or other bytes:")
    assert table.count("DIFFER") == 2 and table.count(" equal ") == len(found) - 5 > 0
    assert "layer 1, forward, halo" in failed and "layer 1, backward, halo" in failed


def test_a_checkout_whose_code_did_not_run_is_an_error(beside, place, other, tmp_path, monkeypatch):
    folders = runs.Folders(tmp_path / "results", tmp_path / "cache", other)
    monkeypatch.setattr(runs.Path, "is_relative_to", lambda path, other: False)
    with pytest.raises(runs.RunFailed, match="was to run, and"):
        runs.train(folders, dataset="npz", **{"dataset.path": place.graph}, epochs=1)


def test_a_checkout_is_where_its_process_imports_from(tmp_path):
    """A checkout that is nothing but its entry: its file, from its folder, whatever is installed."""
    other = tmp_path / "other"
    (other / "harness").mkdir(parents=True)
    (other / "harness" / "__init__.py").touch()
    (other / "harness" / "__main__.py").write_text("def main():\n    raise SystemExit('mine')\n")
    with pytest.raises(runs.RunFailed, match=rf"(?s)imported \S+ {other}/harness/__main__.py\nmine"):
        runs.train(runs.Folders(tmp_path / "results", tmp_path / "cache", other))
