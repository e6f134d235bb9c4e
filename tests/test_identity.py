"""What makes a run the same run: what was asked for, what it became, and the code that computed it."""

import copy
from functools import cache, reduce
from operator import getitem
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from harness.base.errors import InputError
from harness.results import files, resolved
from harness.results.reader import Trace, checksums
from harness.results.report import groups
from harness.run import config, prepare
from tests import systems, traces


@cache
def run_of_defaults() -> dict[str, Any]:
    return run_of().composed


def run_of(*overrides: str) -> config.Run:
    return systems.asked("dataset=twin/flickr", *overrides)


def changed(word: str, **more: str) -> config.Run:
    """The run of the defaults, and of one more word."""
    name, _, value = word.partition("=")
    composed = {**copy.deepcopy(run_of_defaults()), **more}
    *blocks, key = name.split(".")
    reduce(getitem, blocks, composed)[key] = yaml.safe_load(value)
    return config.check(composed)


def test_where_a_run_is_kept_and_how_it_is_shown_is_no_part_of_it():
    same = config.check(run_of_defaults()).fingerprint
    words = """results=/elsewhere data_dir=/elsewhere cache=/elsewhere run_dir=/elsewhere stale=rerun
        fresh=true progress=true verbose=true launch=prepare keep_checkpoint=true checkpoint_every=7
        rendezvous=100 patience=100 objective=bytes_total"""
    assert [word for word in words.split() if changed(word).fingerprint != same] == []


def test_whatever_else_is_asked_for_makes_another_run(tmp_path):
    one = config.check({**run_of_defaults(), "results": str(tmp_path)})
    words = """transport=sockets transport=memory threads=1 device=cpu kernel=numba seed=2 diverged=go_on
        evaluate.every=3"""
    for word in words.split():
        other = changed(word, results=str(tmp_path))
        assert one.fingerprint != other.fingerprint and one.directory != other.directory, word
        assert not other.is_in(one.directory), word


def test_where_workers_meet_at_checkpoints_these_belong_to_the_run():
    assert (
        run_of("system=digest_a").fingerprint != run_of("system=digest_a", "checkpoint_every=7").fingerprint
    )


def test_a_folder_whose_config_lacks_keys_is_found_under_its_own_name(tmp_path):
    """What a key that came later does by default is what was done without it."""
    asked = ("system=pipegcn", "transport=sockets", f"results={tmp_path}", "gpus=2")
    run = run_of(*asked)
    lacking = {key: value for key, value in run.composed.items() if key not in ("stale", "diverged")}
    later_keys = {"system": "features", "model": "norm", "optimiser": "weight_decay", "evaluate": "every"}
    for block, later in later_keys.items():
        lacking[block] = {key: value for key, value in run.composed[block].items() if key != later}
    folder = run.directory.with_name(run.directory.name[:-8] + "01234567")
    traces.finished(folder, lacking, ran_on={"code": "0ld"})
    again = run_of(*asked)
    assert again.directory == folder != run.directory and prepare.is_finished(again)
    assert prepare.other_code(again).startswith("computed by code 0ld; this is code ")
    files.write_json_atomic(
        folder / "shards.json", {"folder": "", "stats": {}, "graph": {"files": {"twin.py": "of then"}}}
    )
    assert prepare.is_finished(again), (
        "a twin that the generator would make otherwise now is told, and no hindrance"
    )
    assert prepare.other_code(again).endswith("on a twin that another version of the generator made")
    # Another run of the same system, number of workers and seed is not taken for it, nor one over another
    # transport.
    for other in ("model.hidden=8", "transport=memory"):
        assert run_of(*asked, other).directory != folder
    assert prepare.anew(run_of(*asked, "stale=rerun"))


def test_workers_and_gpus_are_one_key():
    """A run is the same by either name."""
    new = {**run_of_defaults(), "workers": 3, "gpus": None}
    old = {**run_of_defaults(), "workers": None, "gpus": 3}
    one, other = config.check(new), config.check(old)
    assert one.composed == other.composed and one.settings.workers == 3 and "gpus" not in one.composed
    assert one.directory == other.directory
    assert config.completed(old) == config.completed(new) == config.completed(one.composed)
    with pytest.raises(InputError, match="workers=3 and gpus=3 are two names of one key"):
        config.check({**run_of_defaults(), "workers": 3, "gpus": 3})


def test_a_run_stored_under_gpus_is_found_and_read(tmp_path):
    run = run_of(f"results={tmp_path}", "workers=3")
    old = {**{k: v for k, v in run.composed.items() if k != "workers"}, "gpus": 3}
    traces.finished(run.directory, {**old, "epochs": 4})
    files.write_yaml_atomic(run.directory / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(old)))
    again = run_of(f"results={tmp_path}", "gpus=3")
    assert again.directory == run.directory and prepare.is_finished(again)
    assert Trace(run.directory).config["workers"] == config.load(run.directory).settings.workers == 3
    (group,), _ = groups.load([run.directory])
    assert group.workers == 3


def test_a_damaged_config_beside_is_no_hindrance(tmp_path):
    """Folders of the same system, workers and seed are looked into for a run of another version."""
    run = run_of(f"results={tmp_path}")
    other = run.directory.with_name(run.directory.name[:-8] + "01234567")
    other.mkdir(parents=True)
    lacking = OmegaConf.to_yaml(OmegaConf.create({**run.composed, "system": None}))
    files.write_yaml_atomic(other / "config.yaml", lacking)
    assert run_of(f"results={tmp_path}").directory == run.directory
    with pytest.raises(InputError, match="is damaged: its system=None is not a block of keys"):
        config.stored(other)


def test_a_graph_of_ones_own_goes_by_its_file(tmp_path):
    asked = ("dataset=npz", "dataset.path=data/roads.npz", f"results={tmp_path}", "workers=2")
    run, named = run_of(*asked), run_of(*asked, "dataset.name=mine")
    assert (run.graph_name, named.graph_name) == ("roads", "mine")
    assert (run.directory.parent, named.directory.parent) == (tmp_path / "roads", tmp_path / "mine")
    traces.finished(run.directory, run.composed)
    (group,), _ = groups.load([run.directory])
    assert group.dataset == "roads"


# Code


@pytest.mark.nightly(15)
def test_a_finished_run_that_other_code_computed_says_so_and_is_computed_again_where_asked(place):
    place.run("epochs=2")
    (run_dir,) = place.runs()
    same = place.run("epochs=2")
    assert "code" not in same.out and "finished before" in same.out
    found = resolved.read(run_dir)
    other = {**found, "attempts": [{**found["attempts"][0], "code": "0ld"}]}
    files.write_json_atomic(run_dir / resolved.FILE, other)
    summary = files.read_json(run_dir / "summary.json")
    files.write_json_atomic(run_dir / "summary.json", {**summary, "files": checksums(run_dir)})
    shown = place.run("epochs=2")
    now = found["attempts"][0]["code"]
    assert (
        f"note: computed by code 0ld; this is code {now}; stale=rerun computes it again" in shown.out
        and shown.code == 0
    )
    swept = place.run("-m", "epochs=2", "seed=1,2")
    assert "note: other code computed 1 of these 2 runs; stale=rerun computes such" in swept.out
    again = place.run("epochs=2", "stale=rerun")
    assert again.code == 0 and "kept the earlier run as" in again.out
    assert resolved.read(run_dir)["attempts"][0]["code"] == now
    assert "kept" not in place.run("epochs=2", "stale=rerun").out


def test_a_run_that_was_only_prepared_was_computed_by_no_code(tmp_path):
    run = run_of(f"run_dir={tmp_path}")
    traces.prepare(tmp_path, run.composed)
    assert prepare.other_code(run) is None and not prepare.anew(run_of(f"run_dir={tmp_path}", "stale=rerun"))
