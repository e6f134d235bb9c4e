"""What the bench judges: its targets, and two revisions in one run; and what else the machine does meanwhile:
others' time, and not the bench's own.
"""

import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.base.terminal import unfolded
from harness.dev.bench import __main__ as bench
from harness.dev.bench import against, lines, load, parts, runs
from harness.dev.bench.load import Load, Watch
from tests.launching import ROOT, Started


def line(samples, name="x", unit="s", **more) -> lines.BenchLine:
    return lines.BenchLine.of(name, unit, samples, **more)


def judged(old, new, *margin, unit="s", busy=False):
    found = line(new, unit=unit, peer_samples=old)
    found.busy = busy
    against.judge(found, *margin)
    return found


FAST, SLOW = [1.0, 1.01, 1.02, 1.03, 1.04], [1.2, 1.21, 1.22, 1.23, 1.24]


@pytest.mark.parametrize("old, new, unit, word, failed", [
    (FAST, SLOW, "s", "slower", True), (SLOW, FAST, "s", "faster", False),
    (FAST, [x + 0.05 for x in FAST], "s", "slower", False), (FAST, FAST, "s", "no difference", False),
    (FAST[:3], SLOW[:3], "s", "too few samples", False),
    ([8, 8], [8, 8, 8], "bytes", "equal", False), ([8, 8], [8, 9], "bytes", "differ", True),
])  # fmt: skip
def test_a_verdict(old, new, unit, word, failed):
    found = judged(old, new, unit=unit)
    assert (found.word, found.failed) == (word, failed)
    assert found.note[:4] == ("" if word in ("too few samples", "equal", "differ") else "p = ")
    busy = judged(old, new, unit=unit, busy=True)
    assert (busy.word, busy.failed) == ((word, failed) if unit == "bytes" else (lines.NOT_JUDGED, False))


samples = st.lists(st.floats(0.1, 10), min_size=4, max_size=9)


def test_a_verdict_stands_beside_a_ratio_of_three_digits_and_samples_that_differ(capsys):
    found = judged(FAST, [1.1004 * x for x in FAST]), judged([8, 8], [8, 8], unit="bytes")
    unfolded().print(lines.table(list(found)))
    slow, equal = (each for each in capsys.readouterr().out.splitlines() if "p = " in each or "equal" in each)
    assert " 1.100 " in slow and "SLOWER" in slow and "(1.1-1.14)" in slow and "(" not in equal
    assert found[0].row()["word"] == "slower" and not {"word", "failed"} & set(line(FAST, target=1).row())


@given(old=samples, new=samples, margin=st.floats(0, 1))
def test_who_is_faster_one_way_is_slower_the_other(old, new, margin):
    there, back = (judged(a, b, margin) for a, b in ((old, new), (new, old)))
    other = {"faster": "slower", "slower": "faster"}
    assert back.word == other.get(there.word, there.word) and not (there.failed and back.failed)
    assert there.ratio * back.ratio == pytest.approx(1)


def test_a_value_beside_zero_has_no_ratio():
    assert lines.BenchLine("x", 3, against.EXACT, 0).ratio is None
    assert lines.BenchLine("x", 0, against.EXACT, 0).ratio == 1
    assert lines.BenchLine("x", 3, against.EXACT, 0, target=1.0).met is False


def test_the_file_has_every_sample_of_both_sides_the_machine_and_the_revision(tmp_path):
    path = tmp_path / "a.json"
    found = [line(FAST, peer_samples=[1.9, 2.0, 2.1]), lines.BenchLine("DGL", math.nan, "s")]
    lines.write(found, path, {"epoch": Load(before=1.0, after=2.0, others=0.25)})
    content = json.loads(path.read_text())
    assert content["lines"][0]["samples"] == FAST and content["lines"][0]["peer_samples"] == [1.9, 2.0, 2.1]
    assert {"processor", "cores", "revision"} <= set(content["environment"])
    assert content["loads"] == {"epoch": {"before": 1.0, "after": 2.0, "others": 0.25, "busy": True}}
    assert content["lines"][1]["ours"] is None


QUIET, BUSY = Load(before=2.0, after=2.0, others=0.01), Load(before=0.0, after=0.0, others=0.2)


@pytest.fixture
def measuring(monkeypatch):
    """One part alone, which gives these lines on a machine with this load."""

    def say(found, load):
        monkeypatch.setattr(bench, "PARTS", {"partition": parts.Part("cuts", lambda setting: found)})
        monkeypatch.setattr(bench, "Watch", lambda: SimpleNamespace(load=lambda: load))

    return say


@pytest.mark.parametrize("took, target, load, more, code", [
    (0.5, 1.0, QUIET, [], 0), (5.0, 1.0, QUIET, [], 1), (0.5, 1.0, BUSY, [], 3), (5.0, 1.0, BUSY, [], 3),
    (5.0, None, BUSY, [], 0), (5.0, 1.0, QUIET, ["--quick"], 0),
])  # fmt: skip
def test_a_missed_target_is_named_and_a_busy_machine_or_a_small_bench_is_not_judged(
    tmp_path, capsys, measuring, took, target, load, more, code
):
    measuring([lines.BenchLine("cut", took, "s", target=target)], load)
    path = tmp_path / "a.json"
    assert bench.main([*more, "--only", "partition", "--json", str(path)]) == code
    said = capsys.readouterr().out
    assert (" MISSED " in said) == ("targets missed: partition: cut\n" in said) == (code == 1)
    assert ("not judged, the machine was busy: partition: cut\n" in said) == (code == 3)
    share = f"other processes took {load.others:.1%} of the CPUs' time"
    assert f"partition: load before {load.before:.1f}, after {load.after:.1f}; {share}" in said
    (written,) = json.loads(path.read_text())["lines"]
    assert written["part"] == "partition" and written["ours"] == took and written["busy"] == (load is BUSY)


@pytest.mark.parametrize("words, said", [
    (["--rounds", "0"], "--rounds=0 is too small"), (["--margin", "-1"], "--margin=-1.0 is out of range"),
    (["--json", "{tmp}"], "is no place for a file: give the name of one"),
    (["--against", "{tmp}"], "holds no harness/__main__.py"),
    (["--against", str(ROOT), "epochs"], '"epochs" is not KEY=VALUE'),
    (["epochs=3"], "give --against CHECKOUT too"),
])  # fmt: skip
def test_what_cannot_be_asked_for_is_one_sentence(tmp_path, refused, words, said):
    refused(bench.main, [word.format(tmp=tmp_path) for word in words], said)


# -- this code beside another checkout --


@pytest.fixture
def other(tmp_path) -> Path:
    path = tmp_path / "other"
    (path / "harness").mkdir(parents=True)
    (path / "harness" / "__main__.py").write_text("def main():\n    raise SystemExit('mine')\n")
    return path


def test_two_checkouts_take_turns_and_bytes_are_compared_exactly(place, other, tmp_path, monkeypatch, capsys):
    """The first run of either side stands for those after it; this side's halo rows have a byte more."""
    turns, done, sent = [], {}, against.sent

    def run(command, cwd, env, **_):
        """Forked from a process that has imported the command."""
        assert env["PYTHONPATH"] == str(cwd)
        began, ended = time.monotonic(), Started(place, command[3:]).end()
        words = f"imported {began} {cwd / 'harness' / '__main__.py'}\n"
        return subprocess.CompletedProcess(command, ended.code, ended.out, words + ended.err)

    def train_once(folders, **keys):
        turns.append(folders.checkout)
        if folders.checkout not in done:
            done[folders.checkout] = runs.train(folders, **keys)
        return done[folders.checkout]

    def one_more(run):
        here = run is done[ROOT]
        return {kind: n + int(here and kind[2] == "halo") for kind, n in sent(run).items()}

    monkeypatch.setattr(runs, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(against, "train", train_once)
    monkeypatch.setattr(against, "sent", one_more)
    path = tmp_path / "a.json"
    keys = ["dataset=npz", f"dataset.path={place.graph}", "workers=2", "epochs=2", "model.hidden=4"]
    words = [*keys, "kernel=numba", "threads=1", "--rounds", "2", "--margin", "1000", "--json", str(path)]
    assert bench.main(["--against", str(other), *words]) == 1
    assert turns == [ROOT, other, ROOT, other, other, ROOT]
    found = json.loads(path.read_text())["lines"]
    assert [each["name"].split(": ")[1] for each in found[:3]] == list(against.TIMES)
    assert all(len(each["samples"]) == 2 and min(each["samples"]) > 0 for each in found)
    table, failed = capsys.readouterr().out.split("or other bytes:")
    assert table.count("DIFFER") == 2 and table.count(" equal ") == len(found) - 5 > 0
    assert "layer 1, forward, halo" in failed and "layer 1, backward, halo" in failed


def test_a_checkout_is_where_its_process_imports_from(other, tmp_path, monkeypatch):
    """A checkout that is nothing but its entry: its file, from its folder, whatever is installed."""
    (other / "harness" / "__init__.py").touch()
    folders = runs.Folders(tmp_path / "results", tmp_path / "cache", other)
    with pytest.raises(InputError, match=rf"(?s)imported \S+ {other}/harness/__main__.py\nmine"):
        runs.train(folders)
    elsewhere = subprocess.CompletedProcess([], 0, "", f"imported 1.0 {ROOT}/harness/__main__.py\n")
    monkeypatch.setattr(runs.subprocess, "run", lambda *given, **more: elsewhere)
    with pytest.raises(InputError, match=f"{other} was to run, and {ROOT}"):
        runs.train(folders)


# -- what else the machine does --


def clock(monkeypatch, times, own):
    """CPU times and own seconds as a test says, one after the other."""
    answers = iter(times)
    monkeypatch.setattr(load.psutil, "cpu_times", lambda percpu: next(answers))
    seconds = iter(own)
    monkeypatch.setattr(load, "own_seconds", lambda: next(seconds))
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)


def cpu(user=0.0, idle=0.0, **more):
    fields = {"user": user, "system": 0.0, "idle": idle, "iowait": 0.0, "steal": 0.0, "guest": 0.0, **more}
    return SimpleNamespace(_asdict=lambda: dict(fields))


@pytest.mark.parametrize("own, after, others", [
    (10.0, (cpu(10, 0), cpu(99, 0), cpu(0, 10)), 0.0),  # all of it ours; the CPU between is not for us
    (4.0, (cpu(10, 0), cpu(0, 0), cpu(0, 10)), 0.3),
    (0.0, (cpu(10, 0), cpu(0, 0), cpu(0, 0, steal=10.0)), 1.0),  # another machine's
    (5.0, (cpu(5, 0, guest=5.0), cpu(), cpu(0, 5, iowait=10.0)), 0.0),  # waiting is idle
    (10.02, (cpu(10, 0), cpu(), cpu(0, 10)), 0.0),  # ticks
    (0.0, (cpu(), cpu(), cpu()), 0.0),  # no time at all
])  # fmt: skip
def test_others_took_what_was_taken_and_is_not_ours(monkeypatch, own, after, others):
    clock(monkeypatch, [(cpu(), cpu(), cpu()), after], [100.0, 100.0 + own])
    found = Watch().load()
    assert found.others == pytest.approx(others) and found.busy == (others > load.BUSY)
    assert ("busy, not judged" in str(found)) == found.busy


def test_own_seconds_are_those_of_running_and_of_ended_children_too():
    began = load.own_seconds()
    spin = "import time\nwhile time.process_time() < 0.2: pass\n"
    subprocess.run([sys.executable, "-c", spin], check=True)
    ended = load.own_seconds()
    assert ended - began >= 0.15  # the clock of a process that has ended ticks in hundredths
    code = spin + "print('spun', flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"spun\n"
        assert load.own_seconds() - ended >= 0.15, "it waits for its input: not ended"
    finally:
        child.communicate(b"\n")
