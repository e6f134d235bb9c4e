"""`halobench runs`: what run folders there are, tidying up, and a run that goes on to more epochs."""

import errno
import re

import pytest
import yaml
from filelock import FileLock

from harness import cli
from harness.cli import runs
from harness.results import files
from harness.results.reader import Trace
from harness.results.schema import LOCK, SCORES
from harness.run.config import shard_folder
from tests import systems, traces
from tests.launching import losses
from tests.reported import scored_run


def said(capsys, *words: str) -> str:
    assert cli.main(["runs", *map(str, words)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_list_has_a_line_per_run_with_its_state(tmp_path, capsys):
    traces.finished(tmp_path / "done", traces.config(seed=7, system__bound=1))
    traces.stream(traces.prepare(tmp_path / "half", traces.config(system__bound=2)), range(3))
    traces.prepare(tmp_path / "new")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "config.yaml").write_text("- 1")
    scored_run(tmp_path / "early", [traces.scored(0.5, 0.5, 0.5)] * 2, traces.config(gpus=1, epochs=4))
    shown = said(capsys, "list", tmp_path)
    assert re.search(r"early plain cora 1 1 2 of 4 finished ", shown)
    assert re.search(r"done plain bound=1 cora 2 7 5 finished \d\d\.\d\d \d", shown)
    assert re.search(r"half plain bound=2 cora 2 1 5 stopped after epoch 3 ", shown)
    assert re.search(r"new plain cora 2 1 5 not begun", shown) and re.search(r"bad damaged: ", shown)
    with FileLock(tmp_path / "half" / LOCK):
        assert "going on" in said(capsys, "list", tmp_path / "half")


def test_show_has_the_table_and_the_config(tmp_path, capsys):
    traces.finished(tmp_path / "run", traces.config(system__bound=3))
    shown = said(capsys, "show", tmp_path / "run")
    assert "run: finished plain on cora, 2 workers" in shown and "system.bound=3" in shown
    assert " dataset=cora " in shown and "dataset.name" not in shown and "--all shows" not in shown
    shown = said(capsys, "show", "--all", tmp_path / "run")
    assert "plain on cora, 2 workers" in shown and "bound: 3" in shown and "workers: 2" in shown


def test_show_is_short_whatever_a_run_has(tmp_path, capsys):
    knobs = {f"system__knob{number}": number for number in range(200)}
    traces.stream(traces.prepare(tmp_path / "run", traces.config(**knobs)), range(3))
    assert cli.main(["runs", "show", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("run: stopped after epoch 3") and len(lines) <= runs.LINES
    assert lines[-1] == "... (--all shows the rest)" and any("test accuracy" in line for line in lines[:5])
    traces.prepare(tmp_path / "new")
    assert "new: not begun" in said(capsys, "show", tmp_path / "new")


def test_compare_has_the_keys_that_differ_how_far_losses_agree_and_which_run_is_unfinished(
    tmp_path, capsys, refused
):
    """Runs of one name are told apart by their folders."""
    one, other, begun = (tmp_path / name / "run" for name in ("a", "b", "c"))
    traces.finished(one, traces.config(system__bound=1))
    traces.finished(other, traces.config(system__bound=2))
    traces.stream(traces.prepare(begun, traces.config(system__bound=2)), range(3))
    shown = said(capsys, "compare", one, other, begun)
    assert "a/run b/run c/run" in shown and "state finished finished stopped after epoch 3" in shown
    assert "system.bound 1 2 2" in shown and "model.hidden" not in shown and "MB per epoch" in shown
    assert "equal to the first run's in 5 of 5 epochs" in shown
    refused(cli.main, ["runs", "compare", one], "give two or more")


def test_compare_counts_the_epochs_of_an_asynchronous_run_and_not_its_rounds(tmp_path, capsys):
    order = [0, 0, 0, 1, 0, 0, 0, 1]
    one, other = (traces.apart(tmp_path / name, order) for name in ("a", "b"))
    assert "equal to the first run's in 4 of 4 epochs" in said(capsys, "compare", one, other)


def test_remove_asks_for_yes_and_leaves_what_is_in_use(tmp_path, capsys, refused):
    one, two = (traces.finished(tmp_path / name) for name in ("one", "two"))
    assert "would remove" in said(capsys, "remove", tmp_path) and one.exists() and two.exists()
    assert not (one / LOCK).exists()
    with FileLock(two / LOCK):
        assert f"in use, kept: {two}" in said(capsys, "remove", tmp_path, "--yes")
    assert not one.exists() and two.exists()
    refused(cli.main, ["runs", "remove", one], "does not exist")
    link = tmp_path / "link"
    link.symlink_to(two)
    assert f"a link, kept: {link}" in said(capsys, "remove", link, "--yes") and two.exists() and link.exists()


def test_remove_takes_a_run_whose_lock_is_none_and_not_what_it_points_to(tmp_path, capsys):
    linked, folder = (traces.unsummarised(traces.finished(tmp_path / name)) for name in ("linked", "folder"))
    (tmp_path / "mine").write_text("mine")
    (linked / LOCK).symlink_to(tmp_path / "mine")
    (folder / LOCK).mkdir()
    assert "going on" not in said(capsys, "list", tmp_path)
    assert said(capsys, "remove", tmp_path).count("would remove") == 2
    assert said(capsys, "remove", tmp_path, "--yes").count("removed") == 2
    assert not linked.exists() and not folder.exists() and (tmp_path / "mine").read_text() == "mine"


def test_a_run_whose_lock_may_not_be_opened_is_not_said_to_go_on_or_to_be_in_use(
    tmp_path, capsys, monkeypatch
):
    run = traces.unsummarised(traces.finished(tmp_path / "run"))
    (run / LOCK).touch()

    def open_lock(lock, timeout):
        if lock == run / LOCK:
            raise PermissionError(errno.EACCES, "Permission denied", str(lock))
        return FileLock(lock, timeout)

    monkeypatch.setattr(runs, "FileLock", open_lock)
    assert "stopped after epoch 5" in said(capsys, "list", run)
    other = traces.finished(tmp_path / "other")
    assert cli.main(["runs", "remove", str(run), str(other), "--yes"]) == 1
    assert run.exists() and not other.exists()
    assert capsys.readouterr().err == f"error: {run / LOCK} cannot be used: Permission denied\n"


def test_clean_cache_keeps_what_an_unfinished_run_trains_on(place, capsys):
    assert place.run("launch=prepare", "seed=1", "partition=random").code == 0
    assert place.run("epochs=1", "seed=2", "partition=random").code == 0
    cache, (unfinished, _) = place.folder / "cache", sorted(place.runs(), key=lambda p: Trace(p).finished)
    kept = shard_folder(unfinished)
    for kind in ("costs", "tilings"):  # of a machine; what a run began with is in its own folder
        (cache / kind / "measured").mkdir(parents=True)
    before = {path for kind in runs.KINDS for path in (cache / kind).glob("*[!k]")}
    given = ("clean-cache", "--cache", cache, "--results", place.results)
    assert len(before) > 2 and "give --yes" in said(capsys, *given)
    assert all(path.exists() for path in before)
    said(capsys, *given, "--yes")
    assert [path for path in before if path.is_dir() and path.exists()] == [kept]
    assert place.run("seed=1", "partition=random").code == 0, "the run goes on"


def test_clean_cache_works_beside_what_was_set_aside_alone(tmp_path, capsys):
    aside = tmp_path / "results" / "cora" / "vanilla.old1"
    for folder in (aside, tmp_path / "cache" / runs.KINDS[0] / "one"):
        folder.mkdir(parents=True)
    (aside / "config.yaml").write_text("system: {}\n")
    given = ("clean-cache", "--cache", tmp_path / "cache", "--results", tmp_path / "results")
    assert said(capsys, *given, "--yes").count("removed") == 1


def test_an_extended_run_is_the_longer_run_bit_for_bit(place):
    """Its scores too: that the shorter run evaluated its last epoch is forgotten."""
    more = ("system=sancus", "model.dropout=0.5", "score=macro_f1", "evaluate.every=4")
    first = place.run(*more, "epochs=6", "keep_checkpoint=true")
    assert first.code == 0
    (short,) = place.runs()
    done = place.run("runs", "extend", str(short), "epochs=9", f"cache={place.folder / 'cache'}")
    assert done.code == 0, done.err
    extended = next(path for path in place.runs() if path != short)
    assert Trace(short).summary["epochs"] == 6 and len(Trace(extended).epochs) == 18
    ours, table = losses(extended), Trace(extended).epochs[list(SCORES)]
    metrics = Trace(extended).metrics
    shown = place.run(*more, "epochs=9")
    assert "finished before" in shown.out, "the command that asks for so many finds it"
    anew = place.run(*more, "epochs=9", "fresh=true")
    assert anew.code == 0
    assert ours.equals(losses(extended)) and table.equals(Trace(extended).epochs[list(SCORES)])
    assert len(metrics) and metrics.equals(Trace(extended).metrics)
    assert Trace(extended).resolved["attempts"][0]["first_epoch"] == 0


FINISHED = {
    "epochs=9": "kept no checkpoint of its last epoch: the command that started it, with",
    "epochs=2": "epochs=2 is not more than",
    "epochs=x": "epochs=x is not a number of epochs",
    "epoch=9": 'did you mean "epochs"?',
    "epochs=[1": '"epochs=[1" cannot be read: give epochs=VALUE',
    "epochs=2001-99-99": '"epochs=2001-99-99" cannot be read: give epochs=VALUE',
}


@pytest.mark.parametrize(
    "system, more, refusals",
    [
        ("vanilla", (), FINISHED),
        ("pscgcn", ("keep_checkpoint=true",), {"epochs=9": "follows the number of epochs"}),
        ("digest_a", ("keep_checkpoint=true",), {"epochs=9": "its system is asynchronous"}),
    ],
    ids=["vanilla", "pscgcn", "digest_a"],
)
def test_what_cannot_go_on_is_refused_in_one_sentence(tmp_path, refused, system, more, refusals):
    asked = systems.asked("dataset=twin/flickr", f"system={system}", *more, "epochs=2")
    (run := tmp_path / "run").mkdir()
    files.write_yaml_atomic(run / "config.yaml", yaml.safe_dump(asked.composed))
    for word, why in refusals.items():
        refused(cli.main, ["runs", "extend", run, word], why)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_config_that_somebody_changed_is_named_before_anything_trains(place, refused):
    assert place.run("epochs=2", "launch=prepare").code == 0
    (run,) = place.runs()
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "latest").write_text("2")
    written = files.read_yaml_text(run / "config.yaml").partition("# xxh3")[0]
    for old, new, why in (
        ("workers: 2", "workers: 1", "its config.yaml has workers=1, its shards.json 2: put the config back"),
        ("hidden: ", "hidden: -", "config.yaml: model.hidden=-"),
    ):
        assert old in written
        files.write_yaml_atomic(run / "config.yaml", written.replace(old, new))
        refused(cli.main, ["runs", "extend", run, "epochs=9", f"cache={place.folder / 'cache'}"], why)
    assert place.runs() == [run]
    refused(cli.main, ["runs", "extend", run.parent, "epochs=9"], "is no folder of a run")
    refused(cli.main, ["runs", "extend", run.name, "epochs=9"], f"{run.name} is no folder of a run")


def test_the_keys_of_a_run_name_its_graph_as_one_would_type_it(tmp_path, capsys):
    npz = {"name": "npz", "source": "npz", "path": "g.npz"}
    for number, (block, typed) in enumerate((
        (npz, "dataset=npz dataset.path=g.npz"),
        ({**npz, "name": "mine"}, "dataset=npz dataset.name=mine dataset.path=g.npz"),
        ({"name": "twin/flickr", "source": "twin", "scale": 0.5}, "dataset=twin/flickr dataset.scale=0.5"),
        ({"name": "mine", "source": "my.Source"}, "dataset.name=mine dataset.source=my.Source"),
    )):  # fmt: skip
        traces.prepare(tmp_path / str(number), {**traces.config(), "dataset": block})
        assert typed in said(capsys, "show", tmp_path / str(number))
