"""Sweeps whose jobs Hydra's other launchers start, and whose values Optuna's sweeper chooses."""

import json
import math
import re

import pytest
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from omegaconf import OmegaConf
from pandas.testing import assert_frame_equal

from harness import cli
from harness.base.errors import InputError
from harness.results import objective, summary
from harness.results.reader import Trace
from harness.run import overrides, runner, sweep
from harness.run.jobs import NOTES, Job, Jobs
from tests import traces
from tests.launching import losses


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"), marks=pytest.mark.nightly(60)),
        pytest.param(("hydra/launcher=submitit_local",), marks=pytest.mark.nightly(110)),
    ],
    ids=["joblib", "submitit_local"],
)
def test_jobs_in_other_processes_are_the_same_runs(place, chosen):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    cache = f"cache={place.results}/cache"  # of this test alone
    command = (*place.trouble, cache, "model.hidden=4,8", "progress=auto", "-m")
    done = place.run(*command, "system.how=nothing,raise", *chosen)
    assert done.code == 1, done.err
    # The shards are what all four have in common: one job makes them, the others wait.
    assert len(list(place.results.glob("cache/shards/*/stats.json"))) == 1
    said = done.err + "".join(path.read_text() for path in place.results.glob(".submitit/*/*.err"))
    assert set(re.findall(r"^run (\d) of 4: model.hidden=\d, how=\w+", said, re.M)) == set("1234")
    listed = done.err[done.err.index("2 of the sweep's jobs failed") :].splitlines()[1:3]
    assert [("system.how=raise" in line, line.rpartition(": ")[2]) for line in listed] == [
        (True, "worker 1 failed:"),
        (True, "the same"),
    ]
    heading, _, *rows = done.out[done.out.rindex("model.hidden ") :].splitlines()
    assert heading.split()[:2] == ["model.hidden", "how"]
    assert [row.split()[:2] for row in rows[:2]] == [["4", "nothing"], ["8", "nothing"]]
    assert not (place.results / NOTES).exists()
    # The same command runs what is missing, and what it ran is what the basic launcher runs.
    ran = [path for path in place.runs() if (path / "summary.json").exists()]
    beside = {Trace(path).config["model"]["hidden"]: path for path in ran}
    assert set(beside) == {4, 8}
    alone = place.run(*command, "system.how=nothing", f"results={place.results}/alone")
    assert alone.code == 0, alone.err
    again = place.runs("alone/graph/*")
    assert len(again) == 2
    for path in again:
        before = beside[Trace(path).config["model"]["hidden"]]
        assert_frame_equal(losses(path), losses(before), check_exact=True)


@pytest.mark.nightly(60)
def test_a_stopped_sweep_takes_the_jobs_of_other_processes_along(place):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    place.hold.touch()
    words = ("-m", place.more, "system=held_vanilla", "epochs=32", "checkpoint_every=10", "seed=1,2")
    run = place.start(*words, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    run.until_epoch(30)
    run.interrupt()
    done = run.end()
    assert done.code == 130 and "stopped by SIGINT; the same command goes on" in done.err
    assert run.survivors() == []


def test_a_job_that_is_heard_of_no_more_is_named(tmp_path):
    """As where a cluster ends it, or memory runs out: what it wrote at its beginning is what remains."""
    jobs = Jobs()
    with jobs.collected(tmp_path):
        jobs._note(2, Job("seed=2", {"seed": "2"}))
        jobs._note(1, Job("seed=1", {"seed": "1"}, folder="there", error="", code=0))
        left = jobs.notes
    assert [(job.asked, job.error) for job in jobs.failed] == [
        ("seed=2", "it had not ended when the sweep did")
    ]
    assert jobs.failed[0].code == 1 and list(tmp_path.iterdir()) == []
    # One that outlives the sweep has nobody to tell.
    jobs._note(2, Job("seed=2", {}))
    assert not left.exists()


class Launcher:
    """In place of Hydra's: each job ends as `ends` says, and `given` has what was to be launched."""

    def __init__(self, ends=lambda jobs, run, number: JobReturn(status=JobStatus.COMPLETED)):
        self.ends, self.given, self.jobs = ends, [], None

    def launch(self, runs: list[list[str]], initial_job_idx: int) -> list[JobReturn]:
        self.given.append((initial_job_idx, runs))
        return [self.ends(self.jobs, run, number) for number, run in enumerate(runs, initial_job_idx)]

    def launched(self, monkeypatch, place, *words: str) -> int:
        """The exit code of a sweep that this launcher starts."""
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")

        def instantiate(_, context, jobs, config) -> Launcher:
            self.jobs = jobs
            return self

        monkeypatch.setattr(Plugins, "instantiate_launcher", instantiate)
        return cli.main(["-m", "hydra/launcher=joblib", *place.arguments(*words)])


def test_a_launched_job_whose_words_refer_to_nothing_fails_and_says_so(place, monkeypatch, capsys):
    def ends(jobs, run, number):
        words = {"overrides": {"task": run}, "job": {"num": number}}
        monkeypatch.setattr(HydraConfig, "get", lambda: OmegaConf.create(words))
        return JobReturn(status=JobStatus.COMPLETED, _return_value=jobs(runner.composer([])(run)))

    assert Launcher(ends).launched(monkeypatch, place, "seed=1,2", "data_dir=${oc.env:UNSET}/d") == 2
    told = capsys.readouterr().err
    assert "2 of the sweep's jobs failed" in told and "error: data_dir refers to what is not there" in told


def test_a_launched_job_that_could_not_tell_why_it_failed_fails_the_command(place, monkeypatch, capsys):
    failed = JobReturn(status=JobStatus.FAILED, _return_value=ZeroDivisionError("told by none"))
    assert Launcher(lambda *_: failed).launched(monkeypatch, place, "seed=1,2") == 1
    assert "told by none" in capsys.readouterr().err


def test_a_run_that_cannot_be_composed_is_refused_before_any_is_launched(place, monkeypatch, capsys):
    launcher = Launcher()
    assert launcher.launched(monkeypatch, place, "system=vanilla,sancus", "+system.bound=1") == 2
    assert capsys.readouterr().err.startswith("error: +system.bound=1 cannot be used")
    assert launcher.given == []


def test_a_launcher_is_given_as_many_runs_at_once_as_asked_for(place, monkeypatch):
    launcher, two = Launcher(), "hydra.sweeper.max_batch_size=2"
    assert launcher.launched(monkeypatch, place, "seed=1,2,3", two) == 0
    assert [(first, [run[0] for run in runs]) for first, runs in launcher.given] == [
        (0, ["seed=1", "seed=2"]),
        (2, ["seed=3"]),
    ]
    with pytest.raises(InputError, match="hydra.sweeper.max_batch_size=0 is out of range: give 1 or more"):
        sweep.read(["-m", "seed=1,2", "hydra.sweeper.max_batch_size=0"])
    with pytest.raises(InputError, match="params={seed: 1} is a block of keys: give each of them for itself"):
        sweep.read(["-m", "hydra.sweeper.params={seed: 1}"])


@pytest.mark.parametrize(
    "word, sentence",
    [
        (
            "hydra/launcher=joblib",
            'hydra/launcher=joblib is not installed: give pip install "halobench[joblib]"',
        ),
        ("hydra/launcher=jolib", 'hydra/launcher="jolib" is not known; did you mean "joblib"?'),
    ],
)
def test_a_launcher_that_is_not_there_says_what_to_install(monkeypatch, word, sentence):
    monkeypatch.setattr(overrides._Known, "plugins", lambda self, group: ["basic"])
    with pytest.raises(InputError) as refused:
        overrides.check(["-m", word, "seed=1,2"])
    assert sentence in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.nightly(10)
def test_optuna_maximises_the_best_validation_score(place):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.sampler.seed=1")
    done = place.run("-m", *optuna, "optimiser.lr=interval(0.001,0.3)")
    assert done.code == 0, done.err
    values = {
        Trace(path).config["optimiser"]["lr"]: json.loads((path / "summary.json").read_text())["best"]["val"]
        for path in place.runs()
    }
    assert len(values) == 3 and len(set(values.values())) > 1
    found = yaml.safe_load((place.results / "optimization_results.yaml").read_text())
    best = found["best_params"]["optimiser.lr"]
    assert found["best_value"] == max(values.values()) == values[best]
    assert re.findall(r"^run (\d of \d): optimiser.lr=", done.err, re.M) == ["1 of 3", "2 of 3", "3 of 3"]
    assert f"best validation score: {values[best]:.6g} with optimiser.lr={best}" in done.out


@pytest.mark.nightly(20)
def test_optuna_goes_on_after_a_trial_that_failed_and_minimises_a_cost(place):
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "objective=bytes_total")
    seed = "hydra.sweeper.sampler.seed=1"
    done = place.run("-m", *place.trouble, *optuna, seed, "system.how=raise,nothing")
    assert done.code == 1 and "of the sweep's jobs failed" in done.err
    found = yaml.safe_load((place.results / "optimization_results.yaml").read_text())
    assert found["best_params"] == {"system.how": "nothing"}


def test_the_direction_is_the_objectives():
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    optuna = "-m", "hydra/sweeper=optuna"
    made = sweep.read([*optuna, "seed=1,2", "epochs=1,2"])
    assert made.words[-1] == "hydra.sweeper.direction=maximize" and made.keys == ["seed", "epochs"]
    assert made.optimises and made.total == 20 and made.elsewhere is None
    made = sweep.read([*optuna, "objective=bytes_epoch", "seed=1,2", "hydra/launcher=joblib"])
    assert made.words[-1] == "hydra.sweeper.direction=minimize" and str(made.elsewhere) == "results"
    for words, sentence in [
        (("hydra.sweeper.direction=minimize", "seed=1,2"), "makes objective=null worse"),
        (("objective=bytes_epok", "seed=1,2"), 'did you mean "bytes_epoch"?'),
        (("system=vanilla,sancus", "system.bound=1,2"), "needs one space of values"),
    ]:
        with pytest.raises(InputError) as refused:
            sweep.read([*optuna, *words])
        assert sentence in str(refused.value) and "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def summarised(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    traces.finished(path, traces.config(seed=1), target=0.5)
    return summary.summarise(path)


def test_every_objective_is_a_number_of_a_run_and_the_worst_where_that_diverged(summarised):
    for name in objective.COSTS:
        assert objective.value(summarised, name) >= 0 and objective.direction(name) == "minimize"
    assert objective.value(summarised, "bytes_epoch") == sum(summarised["bytes_epoch"].values())
    assert objective.value(summarised, None) == summarised["best"]["val"]
    assert objective.value({**summarised, "score": "auc"}, "best.val") == summarised["best"]["val"]
    assert objective.value(summarised, "final.test") == summarised["final"]["test"]
    diverged = {**summarised, "diverged": 3, "best": None, "final": None, "loss": math.nan}
    assert objective.value(diverged, None) == objective.value(diverged, "final.test") == -math.inf
    assert objective.value(diverged, "bytes_total") == objective.value(diverged, "loss") == math.inf


def test_a_value_that_a_run_has_not_is_refused(summarised):
    blind = {**summarised, "best": {**summarised["best"], "val": None}}
    with pytest.raises(InputError, match="objective=best.val has no value in this run"):
        objective.value(blind, None)
    with pytest.raises(InputError, match='objective="best.val_macro" is not a value of a run'):
        objective.direction("best.val_macro", {"macro_f1": None})
    assert objective.direction("best.val_macro_f1", {"macro_f1": None}) == "maximize"
