"""Bundles of runs: made, damaged in ways that a cheat or a careless hand would, checked and ranked."""

import importlib
import json
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from harness import cli
from harness.base.errors import InputError
from harness.results import files
from harness.results.reader import checksums
from harness.run import runner
from harness.run.runner import Places
from harness.submissions import bundle as bundles
from harness.submissions import check, ranking
from tests import bundles as damaged
from tests.launching import write_graph

GRAPH = "dataset=twin/flickr dataset.scale=0.01 workers=2 epochs=3 model.hidden=8 kernel=torch"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> Places:
    folder = tmp_path_factory.mktemp("submissions")
    made = Places(folder / "results", folder / "cache", folder)
    runner.start(f"{GRAPH} system=vanilla,zero_halo,sancus seed=1,2,3", made)
    return made


@pytest.fixture(scope="module")
def whole(places) -> Path:
    folder = places.cache.parent / "whole"
    made_of([str(places.results)], folder, bundles.Submission("whole", "A. Author", "CC-BY-4.0"))
    return folder


@pytest.fixture(scope="module", autouse=True)
def counted_once():
    """Bundles of the same runs are checked again and again: each run's dry run is made for the first."""
    counted, known = check.traffic, {}

    def traffic(run, shards, place, described):
        if (run.fingerprint, place) not in known:
            known[run.fingerprint, place] = list(counted(run, shards, place, described))
        return known[run.fingerprint, place]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(check, "traffic", traffic)
        yield


@pytest.fixture
def copy(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "whole"))


def made_of(paths, folder, head, code=()) -> bundles.Bundle:
    return bundles.write(bundles.gather(paths, folder, head, code), code)


def faults(folder: Path, places: Places, share: float = 0.0, draw: int = 1) -> list[str]:
    where = Places(places.cache.parent / "again", places.cache, places.data_dir)
    return list(check.problems(bundles.read(folder), where, share, draw, lambda _: None))


@pytest.fixture(scope="module")
def draw(whole) -> int:
    """By which one run of SANCUS is drawn to be made again."""
    runs = list(bundles.read(whole).runs)
    return next(n for n in range(99) if "sancus" in "".join(check.drawn(runs, 0.1, n)))


def test_a_bundle_of_runs_agrees_and_is_small(whole, places, draw):
    assert faults(whole, places, share=0.1, draw=draw) == []
    assert sum(path.stat().st_size for path in bundles.files_below(whole)) < 50_000 * 9
    assert not list(whole.rglob("spans.parquet"))


def test_a_score_that_was_raised_everywhere_is_found_when_the_run_is_made_again(copy, places, draw):
    damaged.a_score_everywhere(copy)
    assert faults(copy, places) == []
    found = faults(copy, places, share=0.1, draw=draw)
    assert found and all("sancus" in each and "test score" in each for each in found)


def without(system, *seeds):
    return lambda folder: damaged.without(folder, system, seeds)


OF_FILES = {
    damaged.a_score_in_the_summary: "sancus-2w-seed1.* is not the one that the bundle was made of",
    damaged.a_score_in_the_summary_and_digests: "its best does not follow from its tables",
    damaged.a_path_that_is_no_text: "vanilla-2w-seed2.*dataset.path",
}
OF_ROWS = {
    damaged.a_larger_graph: "vanilla on twin/flickr lacks seed 2",
    without("sancus", 2): "sancus on twin/flickr.* lacks seed 2",
    without("zero_halo", 1, 2, 3): "has no runs of the control",
}
OF_ROLES_AND_SEEDS = {
    without("vanilla", 1, 2, 3): "has no runs of exact training",
    without("zero_halo", 3): "the bundle has 2 seeds: give at least 3",
    without("sancus", 3): "the bundle has 2 seeds: give at least 3",
}
OF_WHAT_IS_MADE_HERE = {
    damaged.another_generator: "was trained on a graph of other files, or another generator, than are here",
    damaged.another_partition: "zero_halo-2w-seed3-.*/shards.json differs from the partition .* in edges",
    damaged.other_code: "sancus-2w-seed3-.*: computed by other code than is here; check with revision",
    damaged.another_role: "/resolved.json says role='reference'; its system says role='control'",
    damaged.fewer_bytes_everywhere: r"sancus-2w-seed1-.* says that epoch 1 sent \d+ bytes; a dry run sends",
    damaged.another_systems_run: r"sancus-2w-seed2-.* says that epoch 1 sent \d+ bytes; a dry run sends",
}


@pytest.mark.parametrize(
    "damages",
    [OF_FILES, OF_ROWS, OF_ROLES_AND_SEEDS, OF_WHAT_IS_MADE_HERE],
    ids=["files", "rows", "roles and seeds", "what is made here"],
)
def test_what_was_changed_is_found_without_training(copy, places, damages):
    for damage in damages:
        damage(copy)
    found = faults(copy, places)
    for says in damages.values():
        assert any(re.search(says, each) for each in found), (says, found)


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda folder: (folder / "notes.txt").write_text("x"), "notes.txt is no file of this bundle"),
        (lambda folder: (folder / "\x1b[2J").write_text("x"), r"\\x1b\[2J is no file of this bundle"),
        (lambda folder: (folder / "link").symlink_to("/etc"), "link"),
        (lambda folder: (folder / bundles.HEAD).unlink(), "holds no submission.yaml"),
        (lambda folder: (folder / bundles.HEAD).write_text("[1]"), "holds no keys"),
        (
            lambda folder: (damaged.run_of(folder, "sancus", 1) / "comm.parquet").unlink(),
            "comm.parquet is missing",
        ),
    ],
)
def test_a_folder_that_is_no_bundle_is_one_sentence(copy, change, says):
    change(copy)
    with pytest.raises(InputError, match=says):
        bundles.read(copy)


@pytest.mark.parametrize(
    "key, value, says",
    [
        ("name", "../up", "name=../up (the bundle's folder, so the last part of --out): give up to 50"),
        ("track", "quick", 'track="quick" is not known'),
        ("licence", " ", "licence=' ': give 1 to 200 letters"),
        ("trials", 20, "track=fixed trials=20: leave out --trials"),
        ("runs", {"../../x": "0"}, "runs.../../x is no folder of a run: give GRAPH/RUN"),
    ],
)
def test_a_head_that_cannot_be_used_names_its_key(copy, key, value, says):
    head = {**yaml.safe_load((copy / bundles.HEAD).read_text()), key: value}
    (copy / bundles.HEAD).write_text(yaml.safe_dump(head))
    with pytest.raises(InputError, match=re.escape(says)):
        bundles.read(copy)


def changed_configs(places, folder: Path, change) -> Path:
    """A copy of the runs, of which those of SANCUS have the config that `change` gives for a seed's."""
    shutil.copytree(places.results, folder)
    for seed in (1, 2, 3):
        (run,) = folder.glob(f"*/sancus-2w-seed{seed}-*")
        config = (run / "config.yaml").read_text()
        files.write_yaml_atomic(run / "config.yaml", change(seed, config[: config.index("# xxh3")]))
        told = files.read_json(run / "summary.json")
        files.write_json_atomic(run / "summary.json", {**told, "files": {**told["files"], **checksums(run)}})
    return folder


def test_code_of_ones_own_must_be_in_the_bundle(places, tmp_path, monkeypatch, capsys, refused):
    folder = changed_configs(
        places, tmp_path / "results", lambda seed, config: config.replace("systems.sancus", "my_idea")
    )
    head = bundles.Submission("out", "A", "CC0")
    with pytest.raises(InputError, match="runs code of my_idea: add --code PATH/TO/my_idea.py"):
        made_of([str(folder)], tmp_path / "out", head)
    (tmp_path / "my_idea.py").write_text("raise ValueError('imported')\n")
    (tmp_path / "nothing.py").mkdir()
    with pytest.raises(InputError, match="code=.*nothing.py is not a file"):
        made_of([], tmp_path / "out", head, [tmp_path / "nothing.py"])
    made = made_of([str(folder)], tmp_path / "out", head, [tmp_path / "my_idea.py"])
    words = ["submit", str(folder), "--out", str(tmp_path / "again"), "--by", "A"]
    assert cli.main([*words, "--code", str(tmp_path / "my_idea.py")]) == 0
    assert "next: HALOBENCH_ALLOW=my_idea halobench submit check" in capsys.readouterr().out
    # It is not imported unless somebody says so, nor is a file that has the name of somebody else's module.
    (tmp_path / "out" / "code" / "this.py").write_text("raise ValueError('imported')\n")

    def beside(said: str) -> None:
        importlib.import_module("this")

    with pytest.raises(
        InputError, match="lacks leave to import the code of 3 runs .* HALOBENCH_ALLOW=my_idea"
    ):
        list(check.problems(made, places, 0, 1, beside))
    monkeypatch.setenv("HALOBENCH_ALLOW", "my_idea")
    found = list(check.problems(made, places, 0, 1, beside))
    assert any("cannot be imported: imported" in each for each in found)
    assert str(tmp_path / "out" / "code") not in sys.path
    # Where runs here would import another file of that name, it is named.
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "my_idea.py").write_text("")
    words = ["submit", str(folder), "--out", str(tmp_path / "third"), "--by", "A"]
    refused(cli.main, words, f"runs code of my_idea: add --code {tmp_path}/my_idea.py")
    said = f"is not the my_idea that runs import here: give {tmp_path}/my_idea.py"
    refused(cli.main, [*words, "--code", str(tmp_path / "other" / "my_idea.py")], said)
    assert not (tmp_path / "third").exists()


def refuse(config):
    raise InputError("no")


def test_a_graph_of_ones_own_is_named_where_it_lacks_and_is_not_taken_for_a_public_one(
    tmp_path, capsys, monkeypatch
):
    write_graph(tmp_path / "g.npz", 60)
    there = Places(tmp_path / "results", tmp_path / "cache", tmp_path)
    words = f"dataset=npz dataset.path={tmp_path / 'g.npz'} workers=1 epochs=1 model.hidden=4 kernel=torch"
    runner.start(f"{words} system=vanilla,zero_halo seed=1,2,3", there)
    out = tmp_path / "own"
    assert cli.main(["submit", str(there.results), "--out", str(out), "--by", "A"]) == 0
    assert "g.npz is not in it: whoever checks the bundle needs that file" in capsys.readouterr().out
    ((kind, _, _),) = ranking.rankings([bundles.read(out)])
    assert kind == "own" and not faults(out, there)
    write_graph(tmp_path / "g.npz", 61)
    with pytest.raises(InputError, match="another file is at /.*/g.npz: put that of the runs there"):
        faults(out, there)
    (tmp_path / "g.npz").unlink()
    with pytest.raises(InputError, match="lacks the graph of 6 runs .*copy its file to /.*/g.npz"):
        faults(out, there)
    with (
        monkeypatch.context() as patched,
        pytest.raises(
            InputError,
            match="lacks the graph of 6 runs .*; what is wrong already: .* cannot be made again: no",
        ),
    ):
        patched.setattr(check.configs, "check", refuse)
        faults(out, there)
    monkeypatch.setattr(check, "untrusted", lambda config: ["my_idea"])  # all that lacks is said at once
    with pytest.raises(InputError, match="copy its file to .*, and leave to import the code of 6 runs"):
        faults(out, there)


def test_of_what_was_tuned_a_bundle_takes_its_track(places, tmp_path):
    tracks = {1: "trial", 2: "fixed", 3: "tuned"}
    folder = changed_configs(
        places,
        tmp_path / "results",
        lambda seed, config: config.replace("label: null", f"label: sancus@{tracks[seed]}"),
    )
    for which, seed, trials in (("fixed", 2, 0), ("tuned", 3, 20)):
        head = bundles.Submission("mine", "A", "CC0", which, trials)
        made = made_of([str(folder)], tmp_path / which / "mine", head)
        assert [run.seed for run in made.runs.values() if run.name == "sancus"] == [seed]


def test_rows_that_keep_the_score_are_ranked_by_bytes_and_the_control_is_not(whole):
    (rows,) = ranking.rankings([bundles.read(whole)]).values()
    ranks = [row for row in rows if row.ranked]
    assert [ranking.megabytes(row.group) for row in ranks] == sorted(
        ranking.megabytes(row.group) for row in ranks
    )
    assert {row.first.name for row in rows} == {"vanilla", "zero_halo", "sancus"}
    assert not [row for row in ranks if row.first.role == "control"]
    exact = next(row for row in rows if row.first.role == "reference")
    assert exact.ranked and exact.ahead.mean == 0
    told = json.loads((exact.first.path / "summary.json").read_text())
    assert ranking.megabytes(exact.group) == pytest.approx(sum(told["bytes_epoch"].values()) / 1e6, rel=0.05)


def test_a_bundle_has_its_folders_name_and_stands_on_a_page_once(whole, tmp_path, refused):
    again = Path(shutil.copytree(whole, tmp_path / "whole"))
    words = ["submit", "page", str(whole), str(again), "--out", str(tmp_path / "page.html")]
    refused(cli.main, words, "2 of the bundles are called whole: give each once")
    with pytest.raises(InputError, match="is of the bundle whole: give its folder that name"):
        bundles.read(again.rename(tmp_path / "other"))


def test_two_machines_stand_on_one_page(whole, copy, tmp_path):
    other = copy.rename(tmp_path / "other")
    head = yaml.safe_load((other / bundles.HEAD).read_text())
    (other / bundles.HEAD).write_text(yaml.safe_dump({**head, "name": "other"}))
    for run in bundles.read(other).runs.values():
        told = files.read_json(run.path / "environment.json")
        files.write_json_atomic(run.path / "environment.json", {**told, "processor": "Another CPU"})
        damaged.sealed(other, run.path)
    page = tmp_path / "ranked.html"
    assert cli.main(["submit", "page", str(whole), str(other), "--out", str(page)]) == 0
    text = page.read_text()
    assert "Another CPU" in text and "Twins: synthetic graphs" in text and "fixed track" in text
    assert text.count("zero_halo (control)") == 2 and "Public data sets" not in text
    assert "split own" not in text


def test_the_commands_say_what_comes_next_and_what_is_wrong(places, tmp_path, capsys, refused):
    out = tmp_path / "submissions" / "mine"  # neither folder is there
    words = ["submit", str(places.results), "--out", str(out), "--by", "A. Author"]
    assert cli.main(words) == 0
    assert f"next: halobench submit check {out}" in capsys.readouterr().out
    refused(cli.main, words, f"out={out} is there already")
    fewer = [str(path) for path in places.results.glob("*/*") if "sancus-2w-seed3" not in path.name]
    assert cli.main(["submit", *fewer, "--out", str(tmp_path / "fewer"), "--by", "A"]) == 2
    said = capsys.readouterr()
    assert "wrong: sancus on twin/flickr lacks seed 3" in said.out and "was not written" in said.err
    assert not (tmp_path / "fewer").exists()
    damaged.without(out, "sancus", [3])
    given = ["--cache", str(places.cache), "--share", "0"]
    assert cli.main(["submit", "check", str(out), *given]) == 2
    said = capsys.readouterr()
    assert "wrong: sancus on twin/flickr" in said.out and "has 1 fault: mend it" in said.err
