"""`halobench tune`: the same number of trials for each system, chosen by a seeded sampler, on the validation
score alone; then the best setting beside the default one on fresh seeds.

But for the last test no worker trains: a run's folder is written with scores that follow from its learning
rate.
"""

import contextlib
import io
import shlex
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.base.words import key_of
from harness.cli import tune
from harness.cli.page import content
from harness.results import track
from harness.results.reader import Trace
from harness.results.report import formats, groups
from harness.run import runner, space
from tests import commands, spaces, traces
from tests.kept import with_tables

SYSTEMS = runner.configured()
WORDS = ("dataset=twin/flickr", "workers=1", "epochs=2", "trials=4")


class Trained:
    """In place of `runner.start`: writes the folders of runs. The less the learning rate the better by
    validation, and the worse on the test vertices. With seed 1 the second trial of each system diverges, and
    the third of vanilla has no memory.

    started   the folders of the runs that were started
    stop      how many runs are started before the command is killed; None: it is not
    """

    def __init__(self, stop: int | None = None):
        self.started: list[Path] = []
        self.stop = stop

    def __call__(self, sweep, places, made):
        for run in made:
            if self.stop is not None and len(self.started) == self.stop:
                raise KeyboardInterrupt
            self.started.append(run.directory)
            rate = run.optimiser.lr
            if 0.0015 < rate < 0.0016:
                raise InputError(f"{sweep}: a run failed: told\n{run.directory}: no memory is left")
            traces.prepare(run.directory, run.composed, role=run.system.role)
            epochs = [traces.epoch(number, sent={}) for number in range(run.settings.epochs)]
            loss = float("nan") if 0.0068 < rate < 0.00685 else 1.0
            traces.write(run.directory, epochs, loss=loss, scores=traces.scored(0.5, 0.9 - rate, 0.1 + rate))
            traces.close(run.directory)


@dataclass
class Tuned:
    code: int
    results: Path
    trained: Trained
    out: str
    err: str

    @property
    def runs(self) -> list[Trace]:
        return [Trace(path.parent) for path in sorted(self.results.glob("*/*/summary.json"))]


def tuned(results: Path, *words: str, stop: int | None = None) -> Tuned:
    trained, out, err = Trained(stop), io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(runner, "start", trained)
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = -1
        with contextlib.suppress(KeyboardInterrupt):
            code = tune.tune([*WORDS, f"results={results}", *words])
    return Tuned(code, results, trained, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """Two systems, tuned."""
    return tuned(tmp_path_factory.mktemp("tuned"), "system=vanilla,bns", "seeds=11,12")


def labels(runs: list[Trace]) -> Counter:
    return Counter(run.config["label"] for run in runs)


@pytest.fixture(scope="module")
def bases():
    """The default run of every system."""
    (base,) = runner.composed([["system=vanilla"]])
    return {name: space.changed(base, {}, system=block, label=name) for name, block in SYSTEMS.items()}


@given(system=st.sampled_from(sorted(SYSTEMS)), seed=st.integers(0, 2**32 - 1))
def test_every_value_of_a_space_is_accepted(bases, system, seed):
    chosen = space.read(system)
    import optuna  # takes half a second: not while tests are collected

    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed)).ask()
    values = {key: each.draw(trial, key) for key, each in chosen.items()}
    made = space.changed(bases[system], values)
    assert {key: space.value_of(made, key) for key in values} == values
    assert all(values[key] in each for key, each in chosen.items())


def test_a_space_has_knobs_of_its_system_and_not_exact_training(bases):
    for system in spaces.files():
        own = {key: values for key, values in space.read(system).items() if key not in track.COMMON}
        assert space.fitted(own, bases[system], ()) == own
        exact = getattr(type(bases[system].system), "exact", None) or {None: None}
        assert not all(value in own.get(f"system.{key}", ()) for key, value in exact.items()), system


def test_what_is_tuned_for_every_system_is_what_rows_of_a_table_may_differ_in():
    assert space.read("vanilla").keys() == track.COMMON


def test_the_pages_spaces_are_those_of_the_code():
    page = spaces.PAGE.read_text()
    assert spaces.files() <= SYSTEMS.keys()
    assert page == with_tables(page, spaces.COMMAND, spaces.table()), f"run {spaces.COMMAND}"


def test_every_system_has_as_many_trials(both):
    assert both.code == 0
    assert (
        "2 systems, 4 trials of each and 2 seeds of two tracks: 16 runs, 16 to start; how long they"
        in both.err
    )
    for system in ("vanilla", "bns"):
        assert [f"\n{system}, trial {number} of 4: " in both.err for number in range(1, 6)] == [True] * 4 + [
            False
        ]
    # One whose run diverged or failed is a trial too, and is told.
    assert "vanilla, trial 2 of 4: optimiser.lr=0.00682 model.dropout=0.576 model.hidden=64: diverged in" in (
        both.err
    )
    assert "  1 trial without a score: no memory is left\n" in both.err
    assert labels(both.runs) == {"vanilla@trial": 3, "bns@trial": 4, **dict.fromkeys(
        ("vanilla@fixed", "vanilla@tuned", "bns@fixed", "bns@tuned"), 2)}  # fmt: skip


def test_the_best_by_validation_runs_on_fresh_seeds_beside_the_default(both):
    for system in ("vanilla", "bns"):
        of = {which: [run for run in both.runs if run.config["label"] == f"{system}@{which}"]
              for which in (track.TRIAL, track.FIXED, track.TUNED)}  # fmt: skip
        told = [(run.config["optimiser"]["lr"], run.summary) for run in of[track.TRIAL]]
        # The highest validation score is the lowest test score; one that diverged cannot win.
        best = min(rate for rate, summary in told if summary["diverged"] is None)
        assert best < 0.01
        for which, rate in ((track.FIXED, 0.01), (track.TUNED, best)):
            assert [(run.config["seed"], run.config["optimiser"]["lr"]) for run in of[which]] == [
                (11, rate),
                (12, rate),
            ]


def test_a_killed_tuning_goes_on_with_the_same_trials_and_repeats_none(tmp_path):
    words = "system=vanilla", "seeds=11"
    whole = [path.name for path in tuned(tmp_path / "whole", *words).trained.started]
    killed = tuned(tmp_path / "killed", *words, stop=2)
    assert killed.code == -1 and [path.name for path in killed.trained.started] == whole[:2]
    assert [path.name for path in tuned(tmp_path / "killed", *words).trained.started] == whole[2:]
    # The third has failed, and is tried again by every command; with more trials one is new.
    more = tuned(tmp_path / "killed", *words, "trials=5")
    tried = [path.name for path in more.trained.started if "-trial-" in path.name]
    assert tried[:-1] == whole[2:3] and tried[-1] not in whole


def test_tables_and_the_page_show_both_tracks_and_trials_only_alone(both, tmp_path):
    plain = traces.finished(tmp_path / "plain")
    compared, _ = groups.load([both.results, plain])
    rows = formats.numbers(compared).set_index("system")
    ours = rows[rows.dataset != "cora"]
    assert [label.split(" model")[0] for label in rows.index] == [
        *("plain", "bns fixed", "bns tuned", "vanilla fixed", "vanilla tuned")
    ]
    assert set(ours.dataset) == {"twin/flickr (fixed and tuned)"}
    gains = ours.less_fixed[["tuned" in label for label in ours.index]]
    # The test score is the worse the better that of validation is.
    assert gains.tolist() == pytest.approx([100 * (0.00113 - 0.01), 100 * (0.00689 - 0.01)])
    assert ours.less_fixed.isna().sum() == 2
    assert "minus fixed" in both.out and "\nfixed rows are the systems' default settings" in both.out
    (graph,) = [graph for graph in content.graphs(compared, {}) if "tuned" in graph.title]
    (part,) = graph.parts
    assert "minus fixed" in [heading for heading, *_ in part.table.headings]
    assert " tuned " in part.advice.sentence and " fixed " not in part.advice.sentence
    trials, _ = groups.load([str(both.results / "*" / "bns-trial-*")])
    assert {group.dataset for group in trials} == {"twin/flickr (trials)"} and len(trials) == 4


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("system=vanilla", "trials=0"), "trials=0 is out of range: give 1 to 10000"),
        (("system=vanilla", "trials=2001-99-99"), '"trials=2001-99-99" cannot be read: give trials=VALUE'),
        (("system=vanilla", "seeds=2,["), '"seeds=[2,[]" cannot be read: give seeds=VALUE'),
        (("system=vanilla", "seeds=2,3,2"), "seeds names 2 more than once: give each seed once"),
        (
            ("system=vanilla", "seeds=1,2"),
            "seeds=1 is the seed of the trials: give others, or another seed=N",
        ),
        (("system=vanilla", "label=mine"), "label is set for each run here: leave it out"),
        (("system=vanilla", "partition=metis,random"), "partition has several values: tune each in a"),
        ((), "system is not given by name: give system=NAME,NAME,..."),
        (
            ("system=vanilla", "dataset=debian", "data_dir=nowhere"),
            'debian: file "debian/debian.npz" is missing from data_dir="nowhere"',
        ),
        (
            ("system=vanilla", "optimiser.lr=0.1", "model.dropout=0", "model.hidden=8"),
            "are all given: leave one out",
        ),
    ],
)
def test_a_mistake_is_one_sentence_before_any_run(monkeypatch, refused, words, sentence):
    monkeypatch.setattr(runner, "start", lambda *_: pytest.fail("a run was started"))
    given = {key_of(word) for word in [*words, "trials"]}
    refused(tune.main, [*words, *(word for word in WORDS if key_of(word) not in given)], sentence)


@pytest.mark.parametrize(
    "text, sentence",
    [
        ("model.hidden: [8]", '"model.hidden" is no knob of the system: give system.KNOB'),
        ("system.rate: 0.1", "system.rate=0.1 is no space: give a list of values, or low and high"),
        ("system.rate: {low: 0.2, high: 0.1}", "has low=0.2 and high=0.1: give low, and more as high"),
        ("system.rate: {low: 0, high: 1, log: true}", "give low above 0, and more as high"),
        ("system.rate: {low: 0.1}", "give low and high"),
        ("system.rat: [0.1]", 'system.rat is not a key of bns; did you mean "system.rate"?'),
        ("system.rate: [0.1, 2]", "system.rate=2.0 is out of range: give more than 0 and at most 1"),
        ("", "holds no keys"),
    ],
)
def test_a_wrong_space_is_one_sentence(bases, tmp_path, text, sentence):
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "bns.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        space.fitted(space.read("bns", tmp_path), bases["bns"], track.COMMON)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


def test_a_number_with_an_exponent_is_one(bases, tmp_path):
    """YAML takes one without a point for text."""
    (tmp_path / "tune").mkdir()
    (tmp_path / "tune" / "bns.yaml").write_text("system.rate: {low: 1e-3, high: 1}")
    made = space.fitted(space.read("bns", tmp_path), bases["bns"], track.COMMON)
    assert made == {"system.rate": space.Range(0.001, 1)} and 0.5 in made["system.rate"]


def test_without_optuna_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune.main(["system=vanilla"]) == 2
    assert capsys.readouterr().err == 'error: halobench tune needs optuna: pip install "halobench[optuna]"\n'


@pytest.mark.nightly(180)
def test_the_pages_command_is_killed_and_goes_on(place):
    """As it stands on the page, on the test's graph with fewer trials: no run is trained twice."""
    (line,) = [each.line for each in commands.commands() if each.name == "tune"]
    words = [word for word in shlex.split(line)[2:] if not word.startswith(("dataset", "epochs", "trials"))]
    words = ["tune", *words, "trials=3", "epochs=4"]
    run = place.start(*words)
    run.until(lambda: len(list(place.results.glob("*/*-trial-*/summary.json"))) >= 2)
    run.interrupt()
    assert run.end().code == 130
    before = {path: path.stat().st_mtime_ns for path in place.results.glob("*/*/summary.json")}
    done = place.run(*words)
    assert done.code == 0, done.err
    assert all(path.stat().st_mtime_ns == changed for path, changed in before.items())
    runs = [Trace(path.parent) for path in place.results.glob("*/*/summary.json")]
    assert labels(runs) == dict.fromkeys(
        [f"{system}@{which}" for system in ("vanilla", "bns") for which in ("trial", "fixed", "tuned")], 3
    )
