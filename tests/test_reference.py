"""What is kept of runs (results/reference): verdicts that stand in for those of runs that are gone."""

import errno
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from PIL import Image, ImageChops
from PIL.PngImagePlugin import PngInfo

from harness import cli
from harness.base.errors import InputError
from harness.papers.claims import evaluate, experiment, reference, table
from harness.papers.claims.experiment import Experiment
from harness.papers.claims.verdict import DIRECTION, FAILS, HOLDS
from harness.papers.figures import __main__ as figures
from harness.results.report.columns import ALL
from tests.test_claims import RULE, changed, runs_of


def plan_of(folder: Path, **keys) -> Experiment:
    (folder / "mine.yaml").write_text(yaml.safe_dump(changed(**keys)))
    return experiment.load(folder)["mine"]


@pytest.fixture(scope="module")
def ahead(tmp_path_factory) -> evaluate.Folders:
    """Six runs, of which row a is above row b, as the claim says."""
    return runs_of(tmp_path_factory.mktemp("ahead"), {"a": 0.8, "b": 0.7})


@pytest.fixture(scope="module")
def behind(tmp_path_factory) -> evaluate.Folders:
    """Six others, of which it is not."""
    return runs_of(tmp_path_factory.mktemp("behind"), {"a": 0.6, "b": 0.7})


@pytest.fixture(scope="module")
def made(tmp_path_factory, ahead) -> Path:
    """An experiment with one claim, a folder that keeps what six runs say of it, and a picture."""
    folder = tmp_path_factory.mktemp("made")
    plan = plan_of(folder)
    found = [each for each in evaluate.results({"mine": plan}, ahead) if each.experiment == "mine"]
    picture = folder / "mine-claims.png"
    described = PngInfo()
    described.add_text(reference.DESCRIPTION, "holds: a scores above b")
    Image.effect_noise((60, 40), 90).convert("RGBA").save(picture, pnginfo=described)
    reference.keep(folder / "kept", plan, found, ahead, [picture])
    return folder


@pytest.fixture
def kept(made, tmp_path) -> Path:
    """A copy of that folder, beside what it is of."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True)) / "kept"


def with_kept(folder: Path, plan: Experiment, there: list[evaluate.Result]) -> evaluate.Result:
    """What is said of the claim where `there` follows from the runs that are there."""
    found = reference.with_kept(there, folder, {"mine": plan})
    (claim,) = (each for each in found if each.entry == "sancus_claim_accuracy")
    return claim


def from_kept(folder: Path, plan: Experiment) -> evaluate.Result:
    """The same where no run is there."""
    return with_kept(folder, plan, evaluate.results({"mine": plan}, lambda sweep: [folder / "none"]))


def test_verdicts_and_values_are_what_the_runs_said(kept, tmp_path, ahead):
    plan = plan_of(tmp_path)
    (said,) = (each for each in evaluate.results({"mine": plan}, ahead) if each.experiment == "mine")
    found = from_kept(kept, plan)
    assert found.verdict == said.verdict and found.verdict.word == DIRECTION
    other = replace(plan.claims[0], entry="sancus_fig23", says="in other words", published=3.0)
    both = replace(plan, claims=(*plan.claims, other))
    nowhere = evaluate.results({"mine": both}, lambda sweep: [tmp_path / "none"])
    told = reference.with_kept(nowhere, kept, {"mine": both})
    again = {each.says: each.again for each in told if each.experiment == "mine"}
    assert again == {found.says: other.entry, other.says: ""}, "one measurement, kept once and counted once"
    assert (found.ours.mean, found.ours.half, found.ours.n) == pytest.approx(
        (said.ours.mean, said.ours.half, 3), rel=1e-12
    )
    assert replace(found, size=said.size, measured=said.measured) == said and found.size == "small, reference"
    assert "Verdicts kept of runs that are not in this folder: 1." in table.counts([found])


def test_runs_that_are_there_come_before_what_was_kept_but_for_those_of_a_smaller_size(
    kept, tmp_path, behind
):
    plan = plan_of(tmp_path, cause="paper")
    there = evaluate.results({"mine": plan}, behind)
    found = with_kept(kept, plan, there)
    assert found.verdict.word == FAILS and found.size == "small"
    found = with_kept(kept, plan, [replace(each, size="smoke") if each.size else each for each in there])
    assert found.verdict.word == DIRECTION and found.size == "small, reference"


def test_what_was_kept_of_another_claim_or_of_other_runs_is_not_taken(kept, tmp_path):
    plan = plan_of(tmp_path)
    for keys in ({"measure": {"metric": "loss"}}, {"measure": {"validation": "max"}}):
        assert from_kept(kept, plan_of(tmp_path, **keys)).verdict.word == "not run"
    for runs in ("seed=1,2,3 epochs=9", "seed=1,2,3,4"):
        other = replace(plan, sizes={"small": replace(plan.sizes["small"], runs=runs)})
        assert from_kept(kept, other).verdict.word == "not run"


@pytest.mark.parametrize(
    "words, rows",
    [
        (r"cluster=l4 dataset=cora seed=\1", {row: f"system={row} cluster=l4" for row in "ab"}),
        (r"seed=\1 dataset=cora", {"a": "system=a seed=1", "b": "system=b seed=2"}),
    ],
)
def test_kept_runs_on_a_cluster_or_of_other_seeds_decide_no_later_claim(kept, tmp_path, words, rows):
    """Though they are there in the same words: a cluster's file may have changed."""
    runs = kept / "mine" / "runs.csv"
    runs.write_text(re.sub(r"dataset=cora seed=(\d)", words, runs.read_text()))
    reference._runs.cache_clear()
    plan = replace(plan_of(tmp_path), rows=rows)
    sweeps = [sweep for row in rows for sweep in plan.sweeps(row, "small")]
    asked = {" ".join(run) for sweep in sweeps for run in reference.runner.expand(sweep)}
    assert asked <= set(pd.read_csv(runs)["asked"])
    assert from_kept(kept, plan).verdict.word == "not run"


def test_a_later_claim_on_kept_runs_of_a_twin_is_of_a_twin(kept, tmp_path):
    runs, graph = kept / "mine" / "runs.csv", "twin/reddit dataset.scale=0.1"
    runs.write_text(runs.read_text().replace("dataset=cora", f"dataset={graph}"))
    reference._runs.cache_clear()
    plan = plan_of(tmp_path)
    plan = replace(plan, sizes={"small": replace(plan.sizes["small"], graphs=[graph])})
    assert from_kept(kept, plan).measured.twin


def test_a_claim_on_a_column_that_was_written_after_the_runs_were_kept_is_decided_from_them(
    kept, tmp_path, ahead
):
    for keys in (
        {"measure": "last_acc_percent"},
        {"rows": ["b", "a"]},
        {"says": "b is above", "control": "b"},
    ):
        plan = plan_of(tmp_path, **keys)
        (said,) = (each for each in evaluate.results({"mine": plan}, ahead) if each.experiment == "mine")
        found = from_kept(kept, plan)
        assert found.verdict == said.verdict and found.size == "small, reference"
        assert (found.ours.mean, found.ours.half) == pytest.approx((said.ours.mean, said.ours.half), rel=1e-9)
        assert (found.measured.control, found.measured.twin) == (said.measured.control, said.measured.twin)
    claims = kept / "mine" / "claims.csv"
    claims.write_text(claims.read_text().splitlines()[0] + "\n")
    assert from_kept(kept, plan_of(tmp_path)).verdict.word == DIRECTION, "where there was no claim"


def test_what_was_kept_is_judged_by_the_claim_as_it_stands(kept, tmp_path):
    miss = from_kept(kept, plan_of(tmp_path, direction="below", cause="paper")).verdict
    assert (miss.word, miss.cause) == (FAILS, "paper")
    held = from_kept(kept, plan_of(tmp_path))
    assert from_kept(kept, plan_of(tmp_path, published=held.ours.mean)).verdict.word == HOLDS


def test_each_run_stands_there_in_full_with_its_machine_and_pictures(kept):
    place = kept / "mine"
    runs = pd.read_csv(place / "runs.csv")
    assert list(zip(runs["row"], runs["seed"])) == [(row, seed) for row in "ab" for seed in (1, 2, 3)]
    assert runs["asked"].is_unique and all(runs["asked"].str.contains("system="))
    assert set(ALL) <= set(runs.columns) and runs["mb_epoch"].notna().all()
    assert json.loads((place / "environment.json").read_text())["cores"] > 0
    few, drawn = (Image.open(folder / "mine-claims.png") for folder in (place, kept.parent))
    assert few.info[reference.DESCRIPTION] == "holds: a scores above b"
    assert few.mode == "P"  # as drawn, but for colours that lie near each other
    assert ImageChops.difference(few.convert("L"), drawn.convert("L")).getextrema()[1] <= 2


def test_a_smaller_size_does_not_take_the_place_of_a_larger_one(kept, tmp_path, behind, capsys, refused):
    plan = plan_of(tmp_path)
    smaller = replace(plan, sizes={"smoke": plan.sizes["small"]})
    with pytest.raises(InputError, match="has mine of size small, larger than smoke: give another --keep"):
        reference.keep(kept, smaller, [], behind, [])
    capsys.readouterr()
    (tmp_path / "mine.yaml").write_text((tmp_path / "mine.yaml").read_text().replace("small:", "smoke:"))
    words = ["--from", str(tmp_path), "--keep", str(kept)]
    refused(figures.main, words, "has mine of size small")
    refused(figures.main, [*words, "--graph", "cora"], "leave out --graph")
    before = (kept / "mine" / "runs.csv").read_text()
    reference.keep(kept, plan, [], behind, [])
    assert (kept / "mine" / "runs.csv").read_text() != before, "one of the same size does"
    assert [path.name for path in kept.iterdir()] == ["mine"]


def test_no_reader_takes_it_for_a_run(kept, refused):
    refused(cli.main, ["report", "table", str(kept)], "no run")


def test_a_damaged_file_is_named_with_how_to_make_it_again(kept, tmp_path):
    claims, runs = (kept / "mine" / name for name in ("claims.csv", "runs.csv"))
    named = runs.read_text()
    text = named.replace(",seed,", ",grain,", 1)
    words, alone = named.replace("0.8", "x"), named.splitlines()[0] + "\n"
    damaged = [(runs, each) for each in (text, words, alone, "")] + [
        (claims, each) for each in ("entry,part\n", "", "\0")
    ]
    for path, text in damaged:
        path.write_text(text)
        reference._runs.cache_clear()
        with pytest.raises(InputError) as refused:
            from_kept(kept, plan_of(tmp_path, says="another, which runs.csv decides", control="b"))
        assert str(refused.value) == (
            f"{path} cannot be read: remove it, or make it again with halobench figures mine --keep {kept}"
        )


@pytest.mark.parametrize("text", [None, "", "size\n", "row\na\n"])
def test_what_is_no_kept_experiment_is_left_alone(tmp_path, ahead, text):
    """A folder of runs, for instance, that has the name of an experiment."""
    place = tmp_path / "results" / "mine"
    place.mkdir(parents=True)
    (place / "precious").write_text("")
    if text is not None:
        (place / "runs.csv").write_text(text)
    with pytest.raises(InputError, match="results/mine is there and keeps nothing of an experiment"):
        reference.keep(place.parent, plan_of(tmp_path), [], ahead, [])
    assert (place / "precious").exists()


def test_what_was_kept_stays_where_the_new_cannot_be_written(kept, tmp_path, behind, monkeypatch):
    before, rename = (kept / "mine" / "claims.csv").read_text(), Path.rename

    def full(path, target):
        if path.name == "mine" and path.parent != kept:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(InputError, match="mine cannot be written: No space left on device; give another"):
        reference.keep(kept, plan_of(tmp_path), [], behind, [])
    assert (kept / "mine" / "claims.csv").read_text() == before
    assert [path.name for path in kept.iterdir()] == ["mine"]


def test_a_fingerprint_of_digits_is_read_as_it_was_written(kept, tmp_path, monkeypatch):
    path = kept / "mine" / "claims.csv"
    table = pd.read_csv(path, dtype=str)
    path.write_text(path.read_text().replace(table["asked"][0], "012345678901"))
    monkeypatch.setattr(reference, "asked", lambda *_: "012345678901")
    assert from_kept(kept, plan_of(tmp_path)).verdict.word == DIRECTION


def test_a_fingerprint_is_of_the_claims_own_graphs_and_of_the_clusters_it_models(tmp_path, monkeypatch):
    plan = plan_of(tmp_path, graph="cora", measure={"replayed": "epoch", "words": "cluster=cdfgnn"})
    (claim,) = plan.claims
    before = reference.asked(plan, claim, "small")
    size = plan.sizes["small"]
    more = replace(plan, sizes={"small": replace(size, graphs=[*size.graphs, "dblp"])})
    assert reference.asked(more, claim, "small") == before
    other = replace(plan, sizes={"small": replace(size, graphs=["cora dataset.split=low_label"])})
    assert reference.asked(other, claim, "small") != before
    assert reference.asked(plan, replace(claim, tolerance=None, across="mean"), "small") == before
    assert reference.asked(plan, replace(claim, across="max"), "small") != before
    own = replace(claim, measure={"replayed": "epoch", "words": "cluster=OWN"})
    on = {
        x: replace(plan, rows={r: f"{w} cluster={x}" for r, w in plan.rows.items()})
        for x in ("l4", "hosts/10g")
    }
    of_own = [reference.asked(each, own, "small") for each in on.values()]
    assert of_own[0] != of_own[1]
    (tmp_path / "cluster").mkdir()
    fits = [{"graph": "cora"}, {"graph": "dblp"}]
    (tmp_path / "cluster" / "mine.yaml").write_text(yaml.safe_dump({"devices": [], "fits": fits}) + "# x\n")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(reference.runner, "CONF", tmp_path)
        assert reference._cluster("mine", ("cora",)) == "{'devices': []}[{'graph': 'cora'}]"
        assert reference._cluster("mine", ()) == "{'devices': []}''", "a fit that nobody asked for is nothing"
    scored = replace(claim, measure="test_acc_percent")
    trained = reference.asked(on["l4"], scored, "small")
    monkeypatch.setattr(reference, "_cluster", lambda name, fits: f"{name}, changed")
    assert reference.asked(on["l4"], scored, "small") != trained, "RAPA cuts for the devices of a run"
    assert reference.asked(plan, claim, "small") != before
    assert reference.asked(on["l4"], own, "small") != of_own[0], "the file of the run's own cluster counts"


def test_an_experiment_is_not_kept_without_one_of_its_graphs(tmp_path, capsys):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(RULE))
    words = ["--from", str(tmp_path), f"--keep={tmp_path / 'k'}", f"--data-dir={tmp_path}"]
    assert figures.main(words) == 1
    assert "keeps experiments whole: give --data-dir" in re.sub(r"\s+", " ", capsys.readouterr().err)
    assert not (tmp_path / "k").exists()


def test_the_listing_reads_it(kept, tmp_path, capsys, monkeypatch):
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(RULE))
    monkeypatch.setattr(reference, "EXPERIMENTS", tmp_path)  # to read the tree's takes a second
    asked = ["report", "claims", str(tmp_path), "--from", str(tmp_path), "--reference", str(kept)]
    assert cli.main([*asked, "--paper", "sancus"]) == 0
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert re.search(r"direction holds a is above b here \S+ (± \S+ )?\(small, reference\)", said)
    monkeypatch.chdir(tmp_path)  # no clone
    assert cli.main([*asked[:5], "--paper", "sancus"]) == 0
    assert "nothing is kept in results/reference: give --reference" in capsys.readouterr().err


def test_rows_asked_for_by_id_are_their_ids_bytes_over_four_without_what_is_no_layers():
    def asked(purposes):
        return reference._asked_by_id(SimpleNamespace(summary={"bytes_epoch_by_purpose": purposes}))

    assert asked({"ids": {"layer_0": 400.0, "hidden": 40.0, "other": 4.0}}) == 110
    assert asked({"halo": {"layer_0": 400.0, "hidden": 0.0, "other": 0.0}}) is None
