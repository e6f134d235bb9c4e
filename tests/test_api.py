"""The Python API: what it trains is what the command trains, what it shows is what the tables show."""

import ast
import re
import sys
import warnings

import pandas as pd
import psutil
import pytest

import harness.api as halobench
from harness.results.report import columns, groups, plot_data, table
from harness.run import overrides
from tests import traces
from tests.conftest import ROOT
from tests.launching import Started
from tests.reported import read_once


@pytest.fixture
def forked(place, monkeypatch):
    """The API, whose commands are forked rather than started from scratch; the words of each."""
    asked = []

    def process(command, say):
        assert command[:3] == [sys.executable, "-m", "harness"]
        asked.append(command[3:])
        ended = Started(place, list(command[3:])).end()
        return ended.code, (ended.out + ended.err).splitlines()

    monkeypatch.setattr(halobench, "_process", process)
    monkeypatch.chdir(place.folder)
    return asked


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two systems over three values of a knob with two seeds, and exact training."""
    folder = tmp_path_factory.mktemp("runs")
    for bound in (1, 2, 8):
        for seed in (1, 2):
            composed = traces.config(seed=seed, system___target_="somewhere.frugal.S", system__bound=bound)
            traces.finished(folder / f"{bound}{seed}", composed, size=10 * bound, target=0.5 + 0.01 * seed)
    composed = traces.config(system___target_="somewhere.exact.S")
    traces.finished(folder / "exact", composed, size=500, ran_on={"role": "reference"})
    with read_once():
        yield folder


def test_a_run_is_the_commands_and_is_trained_once(place, forked):
    words = place.arguments("system=sancus", "system.bound=2", "seed=5")
    trace = halobench.run(*words)
    assert [trace.run_dir] == place.runs() and forked == [["run", *words]]
    assert trace.finished and trace.summary["epochs"] == 6 and trace.config["system"]["bound"] == 2
    assert trace.epochs.groupby("worker").size().tolist() == [6, 6]
    assert len(trace.comm) > 0 and {"epoch", "worker", "name"} <= set(trace.metrics)
    again = halobench.run(*words)
    assert again.run_dir == trace.run_dir and len(forked) == 1, "a finished run is not started again"


@pytest.mark.nightly(25)
def test_a_sweep_gives_its_runs_in_order_and_resumes(place, forked):
    words = place.arguments("system=vanilla,sancus", "system.bound=1,2", "epochs=1")
    found = halobench.sweep(*words)
    told = [(trace.config["system"]["_target_"], trace.config["system"].get("bound")) for trace in found]
    assert [bound for _, bound in told] == [None, 1, 2] and all(trace.finished for trace in found)
    (found[1].run_dir / "summary.json").unlink()
    assert [trace.finished for trace in halobench.sweep(*words)] == [True] * 3
    assert forked == [["run", "-m", *words]] * 2


def test_a_system_of_ones_own_and_a_run_that_fails(place, forked, monkeypatch):
    monkeypatch.syspath_prepend(place.folder / "modules")
    words = place.arguments("system=trouble", "system.how=refuse", "system.epoch=0")
    with pytest.raises(halobench.InputError, match=r"^trouble=1 is too much: give 0$"):
        halobench.run(*words, config_dir=place.folder / "conf")
    words[1] = "system.how=raise"
    with pytest.raises(halobench.InputError, match="^worker 1 failed:\n[^$]*ZeroDivisionError: told to fail"):
        halobench.run(*words, config_dir=place.folder / "conf")


@pytest.mark.parametrize(
    "words, sentence",
    [
        (["seed=1,2"], "seed has several values: sweep() trains a run for each"),
        (["-m", "seed=1,2"], '"-m" is an option of the command line: give words KEY=VALUE'),
        ([{"seed": 1}], "{'seed': 1} is no text: give words KEY=VALUE"),
    ],
)
def test_words_that_make_no_run_are_one_sentence_before_anything_starts(forked, words, sentence):
    with pytest.raises(halobench.InputError) as error:
        halobench.run(*words)
    assert sentence in str(error.value) and "\n" not in str(error.value) and not forked


@pytest.mark.parametrize("asked", [halobench.run, halobench.sweep])
@pytest.mark.parametrize("word", ["hydra/sweeper=optuna", "seed=interval(1, 3)", "system=glob(*)"])
def test_values_that_something_else_would_have_to_choose_are_to_be_listed(forked, asked, word):
    with pytest.raises(halobench.InputError) as error:
        asked(word, "epochs=1,2")
    said = "values that a pattern or a sweeper chooses cannot be given here; list the values of each key"
    assert str(error.value) == f"{word}: {said}" and not forked


def test_a_run_without_words_is_the_default_one(forked, monkeypatch):
    monkeypatch.setattr(halobench, "_process", lambda command, say: (1, [f"error: {command[3:]}"]))
    with pytest.raises(halobench.InputError, match=re.escape("['run']")):
        halobench.run()


@pytest.mark.parametrize("read", [halobench.load, halobench.compare, lambda given: halobench.plot([given])])
def test_what_is_no_path_is_one_sentence(read):
    none = "give [a-z ]+ that a run has written"
    for wrong, said in ((5, "^5 is no path: give a run folder, or"), ("", none)):
        with pytest.raises(halobench.InputError, match=said):
            read(wrong)


@pytest.mark.nightly(25)
def test_a_truly_started_run(place, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    monkeypatch.chdir(place.folder)
    said = []
    trace = halobench.run(*place.arguments("system=zero_halo", "epochs=1"), say=said.append)
    assert trace.finished and any(str(trace.run_dir.name) in line for line in said)


def test_a_process_does_not_outlive_the_call(monkeypatch):
    """Neither where a caller's function fails nor on Ctrl-C, here raised in that function."""
    endless = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(600)"]

    def ends(line):
        raise error

    monkeypatch.setattr(halobench, "PATIENCE", 0)
    before = set(psutil.Process().children())
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error):
            halobench._process(endless, ends)
        assert set(psutil.Process().children()) <= before
    assert halobench._process([sys.executable, "-c", "print('a\\nb'); exit(3)"], None) == (3, ["a", "b"])


def test_compare_has_the_values_of_the_tables(folder):
    found = halobench.compare(folder)
    compared = groups.load([folder])[0]
    (section,) = table.sections(compared)
    assert found["system"].tolist() == [group.label for group in compared] and len(found) == 4
    for block in section.blocks:
        for column in block:
            estimates = [table.estimate_of(group, column) for group in compared]
            if any(e.n for e in estimates):
                means = [e.mean for e in estimates]
                pd.testing.assert_series_equal(found[column.key], pd.Series(means), check_names=False)
                best = [column.key in row.split() for row in found["best_of"]]
                assert best == section.best(column)
    assert found.notna().any().all() and "epoch_cpu_s" not in found
    ratio = found["mb_epoch"] / found["mb_epoch"][found["system"] == "exact"].item()
    pd.testing.assert_series_equal(found["mb_exact_ratio"], ratio, check_names=False)
    seeds = [halobench.load(path) for path in sorted(folder.glob("1?"))]
    assert halobench.compare(seeds)["seeds"].tolist() == [2]
    assert halobench.compare(seeds[0])["seeds"].tolist() == [1]


def test_runs_without_an_epoch_are_warned_of(folder, tmp_path):
    begun = traces.prepare(tmp_path / "begun")
    with pytest.warns(UserWarning, match=rf"left out {begun}: it has not finished an epoch"):
        assert len(halobench.compare([folder, begun])) == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(halobench.compare([folder])) == 4
    with pytest.raises(halobench.InputError, match="runs is empty: give traces"):
        halobench.plot([])
    with pytest.raises(halobench.InputError, match="nowhere is not a run folder"):
        halobench.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "over, axis, labels",
    [
        ("time", "train clock", 4),
        ("bytes", "sent by all workers", 4),
        ("breakdown", "an epoch of the slowest worker, s", None),
        ("pareto", "MB per epoch", 5),
        ("front", "MB that all workers send in a run", 4),
        ("system.bound", "bound", 2),
    ],
)
def test_plot_draws_what_it_is_asked_for(folder, over, axis, labels, tmp_path):
    figure = halobench.plot(folder, over)
    data = plot_data.drawn(figure)
    assert data["x_axis"].iloc[0].startswith(axis)
    lines = data[(data["kind"] == "line")]
    assert labels in (None, lines["label"][~lines["label"].str.startswith("_")].nunique())
    if over == "system.bound":
        compared = groups.load([folder], over)[0]
        score = {group.first.keys.get(over): table.estimate_of(group, columns.ACCURACY) for group in compared}
        for bound in (1, 2, 8):
            there = lines[(lines["panel"] == 0) & (lines["x"] == bound)]
            assert score[bound].mean in set(there["y"])
        figure.savefig(tmp_path / "figure.pdf")
        assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF-")


def test_what_cannot_be_plotted_is_one_sentence(folder, tmp_path):
    for over, sentence in (
        ("tiem", 'over "tiem" is not a key of these runs; did you mean "time"?'),
        ("system.bund", 'over "system.bund" is not a key of these runs; did you mean "system.bound"?'),
        (
            "model.hidden",
            "over model.hidden: all runs that have this key have the value 64; give one that differs",
        ),
    ):
        with pytest.raises(halobench.InputError) as error:
            halobench.plot(folder, over)
        assert sentence in str(error.value)
    traces.finished(tmp_path / "other", traces.config(dataset__name="dblp"))
    with pytest.raises(halobench.InputError, match=r"cannot stand in one figure \(cora, wall clock, .*dblp"):
        halobench.plot([folder, tmp_path])


PAGES = ("docs/reference/api.md", "docs/howto/sweep.md", "docs/howto/figures.md")


def code_of(page: str) -> str:
    return "\n".join(re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S))


@pytest.mark.parametrize("page", PAGES)
def test_a_pages_python_calls_what_is_there(page):
    """The functions, with words that make runs; at night all of it runs."""
    calls = [node for node in ast.walk(ast.parse(code_of(page))) if isinstance(node, ast.Call)]
    ours = [call for call in calls if re.fullmatch(r"halobench\.\w+", ast.unparse(call.func))]
    assert ours and {call.func.attr for call in ours} <= set(halobench.__all__)
    for call in ours:
        given = [ast.literal_eval(each) for each in call.args if isinstance(each, ast.Constant)]
        if call.func.attr in ("run", "sweep"):
            assert given
            overrides.check(["-m", *given])


@pytest.mark.nightly(90)
def test_the_python_of_the_pages_runs(place, forked, capsys):
    for page in PAGES:
        exec(compile(code_of(page), page, "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"^\d+\.\d+ MB per epoch$", said, re.M)
    assert "s per epoch" in said and "mb_exact_ratio" in said and "sancus" in said
    assert (place.folder / "accuracy-over-bytes.pdf").read_bytes().startswith(b"%PDF-")
