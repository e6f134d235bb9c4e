"""Bundles of runs that were written by hand: diverged, stopped early, of one name, or without a score."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base.errors import InputError
from harness.results.reader import Trace
from harness.results.report.groups import Group
from harness.submissions import bundle as bundles
from harness.submissions import check, ranking
from tests import traces
from tests.reported import scored_run


def one_run(folder: Path, test: float = 0.5, loss: float = 1.0, seed: int = 1) -> bundles.Submitted:
    """A finished run of two epochs, with the test accuracy and the loss of the second."""
    composed = traces.config(gpus=1, epochs=2, seed=seed, system___target_="systems.vanilla.Vanilla")
    scores = [traces.scored(0.5, 0.5, test)] * 2
    return bundles.Submitted(traces.sealed(scored_run(folder, scores, composed, [1.0, loss], stats={})))


def test_a_run_that_diverged_follows_from_its_tables(tmp_path):
    """Its summary.json has null where its loss is not finite."""
    run = one_run(tmp_path / "graph" / "run", math.nan, math.inf)
    assert run.summary["loss"] is None and run.summary["diverged"] == 1
    run.check()


@pytest.mark.parametrize("test, loss", [(math.nan, 1.0), (0.5, math.nan)], ids=["no test", "diverged"])
def test_a_run_made_again_without_a_score_agrees(tmp_path, test, loss):
    run = one_run(tmp_path / "graph" / "run", test, loss)
    bundle = SimpleNamespace(rows=[SimpleNamespace(runs=[run])])
    assert list(check._of_another(bundle, run, Trace(run.path))) == []


@pytest.mark.parametrize("told, again", [((0.9, 1.0), (0.9, math.nan)), ((0.9, math.nan), (0.9, 1.0))])
def test_a_score_that_only_one_of_both_has_is_told(tmp_path, told, again):
    """Of a run that diverges when it is made again, and of one that is said to have diverged."""
    run, made = one_run(tmp_path / "a" / "run", *told), one_run(tmp_path / "b" / "run", *again)
    said = list(check._of_another(SimpleNamespace(rows=[SimpleNamespace(runs=[run])]), run, Trace(made.path)))
    alone = "made again" if math.isnan(told[1]) else "as told"
    scores = [f"run has a {at} test score {alone} alone" for at in ("best", "final")]
    assert said == ["run has another loss in the first epochs than made again", *scores]


def test_the_epochs_that_a_run_did_not_come_to_are_held_to_nothing(tmp_path, monkeypatch):
    """One that stopped early, or diverged, has fewer epochs than a dry run of its config; no other may."""
    run = one_run(tmp_path / "graph" / "run")
    (tmp_path / "stats.json").write_text("{}")
    monkeypatch.setattr(check, "shards_of", lambda here: (tmp_path, {}))
    monkeypatch.setattr(check.io, "load", lambda folder, rank: None)
    cluster = SimpleNamespace(devices=[], with_devices=lambda devices: None)
    settings = SimpleNamespace(workers=1, transport="memory", epochs=5)
    lost = one_run(tmp_path / "graph" / "lost", loss=math.nan)
    cases = (run, 1, [64] * 5, 0), (run, 1, [64, 65], 1), (run, 0, [64] * 5, 1), (lost, 0, [64] * 5, 0)
    for made, patience, sent, faults_ in cases:
        here = SimpleNamespace(
            settings=settings, cluster=cluster, evaluate=SimpleNamespace(patience=patience)
        )
        monkeypatch.setattr(check, "traffic", lambda *_, sent=sent: [(size, size) for size in sent])
        assert len(list(check._of_partition(made, here))) == faults_


def test_runs_are_named_by_their_folders_wherever_the_command_is_given(tmp_path, monkeypatch):
    one = one_run(tmp_path / "a" / "graph" / "run")
    head = bundles.Submission("out", "A", "CC0")
    for place, word in ((one.path.parent, "run"), (one.path, ".")):
        monkeypatch.chdir(place)
        assert list(bundles.gather([word], tmp_path / "out", head).runs) == ["graph/run"]
    one_run(tmp_path / "b" / "graph" / "run", seed=2)
    with pytest.raises(InputError, match="are both graph/run in a bundle: give one of them"):
        bundles.gather([str(tmp_path)], tmp_path / "out", head)


@pytest.mark.parametrize("diverged, pairs", [({"exact": 1}, 2), ({"own": 1}, 0)], ids=["exact", "own"])
def test_a_seed_in_which_exact_training_diverged_is_left_out(diverged, pairs):
    """One in which the row itself diverged leaves nothing to compare."""

    def group(whose, score):
        runs = []
        for seed in (1, 2, 3):
            epoch = 0 if diverged.get(whose) == seed else None
            summary = {"score": "acc", "diverged": epoch, "best": {"test": score + seed / 100}}
            runs.append(SimpleNamespace(seed=seed, summary=summary))
        return Group(runs)

    row = ranking.Row(None, group("own", 0.6), group("exact", 0.5))
    assert row.ahead.n == pairs and (not pairs or row.ahead.mean == pytest.approx(10))


def test_a_label_hides_neither_the_system_nor_its_role():
    def run(label, system, role=""):
        return SimpleNamespace(name=label, role=role, keys={"system._target_": f"systems.{system}.S"})

    assert ranking._beside(run("sancus", "sancus")) == ""
    assert ranking._beside(run("zero_halo", "zero_halo", "control")) == " (control)"
    assert ranking._beside(run("best ever", "zero_halo", "control")) == " (zero_halo, control)"
