"""What is kept of runs (results/reference): verdicts that stand in for those of runs that are gone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from harness import cli
from harness.check import InputError
from harness.claims import evaluate, experiment, reference, table
from harness.claims.experiment import Experiment
from harness.claims.verdict import DIRECTION, FAILS
from harness.figures import __main__ as figures
from harness.report.columns import ALL
from tests.test_claims import RULE, changed, runs_of


def plan_of(folder: Path, **keys) -> Experiment:
    (folder / "mine.yaml").write_text(yaml.safe_dump(changed(**keys)))
    return experiment.load(folder)["mine"]


@pytest.fixture
def kept(tmp_path) -> Path:
    """A folder that keeps what six runs say of an experiment with one claim, and a picture."""
    folder, plan = tmp_path / "kept", plan_of(tmp_path)
    runs = runs_of(tmp_path, {"a": 0.8, "b": 0.7})
    found = [each for each in evaluate.results({"mine": plan}, runs) if each.experiment == "mine"]
    picture = tmp_path / "mine-claims.png"
    picture.write_bytes(b"a picture")
    reference.keep(folder, plan, found, runs, [picture])
    return folder


def from_kept(folder: Path, plan: Experiment) -> evaluate.Result:
    none = evaluate.results({"mine": plan}, lambda sweep: [folder / "none"])
    (found,) = (
        each
        for each in reference.with_kept(none, folder, {"mine": plan})
        if each.entry == "sancus_claim_accuracy"
    )
    return found


def test_verdicts_and_values_are_what_the_runs_said(kept, tmp_path):
    plan = plan_of(tmp_path)
    runs = evaluate.results({"mine": plan}, runs_of(tmp_path, {"a": 0.8, "b": 0.7}))
    (said,) = (each for each in runs if each.experiment == "mine")
    found = from_kept(kept, plan)
    assert found.verdict == said.verdict and found.verdict.word == DIRECTION
    assert (found.ours.mean, found.ours.half, found.ours.n) == pytest.approx(
        (said.ours.mean, said.ours.half, 3), rel=1e-12
    )
    assert replace(found, size=said.size, ours=said.ours) == said and found.size == "small, reference"
    assert "Verdicts kept of runs that are not in this folder: 1." in table.counts([found])


def test_runs_that_are_there_come_before_what_was_kept(kept, tmp_path):
    plan = plan_of(tmp_path)
    there = evaluate.results({"mine": plan}, runs_of(tmp_path, {"a": 0.6, "b": 0.7}))
    (found,) = (
        each for each in reference.with_kept(there, kept, {"mine": plan}) if each.experiment == "mine"
    )
    assert found.verdict.word == FAILS and found.size == "small"


@pytest.mark.parametrize("keys", [{"direction": "below"}, {"published": 3}, {"rows": ["b", "a"]}])
def test_what_was_kept_of_another_claim_is_not_taken(kept, tmp_path, keys):
    assert from_kept(kept, plan_of(tmp_path, **keys)).verdict.word == "not run"


def test_what_was_kept_of_other_runs_is_not_taken(kept, tmp_path):
    plan = plan_of(tmp_path)
    longer = replace(plan, sizes={"small": replace(plan.sizes["small"], runs="seed=1,2,3 epochs=9")})
    assert from_kept(kept, longer).verdict.word == "not run"


def test_each_run_stands_there_in_full_with_its_machine_and_pictures(kept):
    place = kept / "mine"
    runs = pd.read_csv(place / "runs.csv")
    assert list(zip(runs["row"], runs["seed"])) == [(row, seed) for row in "ab" for seed in (1, 2, 3)]
    assert set(ALL) <= set(runs.columns) and runs["mb_epoch"].notna().all()
    assert json.loads((place / "environment.json").read_text())["cores"] > 0
    assert (place / "mine-claims.png").read_bytes() == b"a picture"


def test_a_smaller_size_does_not_take_the_place_of_a_larger_one(kept, tmp_path, capsys):
    plan = plan_of(tmp_path)
    smaller = replace(plan, sizes={"smoke": plan.sizes["small"]})
    with pytest.raises(InputError, match="has mine of size small, larger than smoke: give another --keep"):
        reference.keep(kept, smaller, [], runs_of(tmp_path, {"a": 0.5, "b": 0.5}), [])
    capsys.readouterr()
    (tmp_path / "mine.yaml").write_text((tmp_path / "mine.yaml").read_text().replace("small:", "smoke:"))
    assert figures.main(["--from", str(tmp_path), "--keep", str(kept)]) == 2
    assert "has mine of size small" in capsys.readouterr().err
    assert figures.main(["--from", str(tmp_path), "--keep", str(kept), "--graph", "cora"]) == 2
    assert "leave out --graph" in capsys.readouterr().err
    before = (kept / "mine" / "runs.csv").read_text()
    reference.keep(kept, plan, [], runs_of(tmp_path, {"a": 0.5, "b": 0.5}), [])
    assert (kept / "mine" / "runs.csv").read_text() != before, "one of the same size does"
    assert [path.name for path in kept.iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_written_is_one_sentence(kept, tmp_path):
    (kept / "file").write_text("")
    with pytest.raises(InputError, match="file/mine cannot be written: .*; give another --keep"):
        reference.keep(kept / "file", plan_of(tmp_path), [], runs_of(tmp_path, {"a": 0.5, "b": 0.5}), [])


def test_no_reader_takes_it_for_a_run(kept, capsys):
    assert cli.main(["report", "table", str(kept)]) == 2
    assert "no run" in capsys.readouterr().err


def test_a_damaged_file_is_named_with_how_to_make_it_again(kept, tmp_path):
    path = kept / "mine" / "claims.csv"
    path.write_text("entry,part\n")
    with pytest.raises(InputError) as refused:
        from_kept(kept, plan_of(tmp_path))
    assert re.fullmatch(
        rf"{path} cannot be read \(.+\): make it again with halobench figures mine --size small"
        rf" --keep {kept}", str(refused.value)
    )  # fmt: skip


def test_the_listing_reads_it(kept, tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(RULE))
    asked = ["report", "claims", str(tmp_path / "empty"), "--from", str(tmp_path), "--reference", str(kept)]
    assert cli.main([*asked, "--paper", "sancus"]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(r"direction holds a is above b here \S+ ± \S+ \(small, reference\)", said)
