"""What a run folder that came from somebody else can make this program do: nothing, unless it is allowed."""

import re
import time

import numpy as np
import pytest
import yaml

from harness import cli
from harness.base import target
from harness.base.errors import InputError
from harness.results import files
from harness.results.reader import Trace
from harness.run import config, prepare
from harness.run.composing import compose

EVIL = """
import pathlib
from harness.core.kernels.spmm import NumbaKernel
from systems.vanilla import Vanilla

pathlib.Path(__file__).with_name("ran").touch()

class System(Vanilla):
    pass

class Kernel(NumbaKernel):
    pass
"""
NAMED = [("system", "EVIL.System"), ("kernel", "EVIL.Kernel")]


@pytest.fixture
def from_elsewhere(tmp_path, monkeypatch):
    """A function that makes a run folder whose config names a module on the path, which nobody has typed; and
    the file that the module writes when it is imported."""
    monkeypatch.setattr(target, "_named", set())
    monkeypatch.delenv(target.ALLOW, raising=False)
    name = f"evil_{time.monotonic_ns()}"
    (tmp_path / f"{name}.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)

    def made(*changes):
        composed = config.check(compose(["dataset=twin/flickr"])).composed
        for block, value in changes:
            composed = {**composed, block: value.replace("EVIL", name) if block == "kernel" else {
                **composed[block], "_target_": value.replace("EVIL", name)}}  # fmt: skip
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        files.write_yaml_atomic(folder / "config.yaml", yaml.safe_dump(composed))
        return folder, name

    return made, tmp_path / "ran"


@pytest.mark.parametrize("change", NAMED)
def test_a_module_that_only_a_run_folder_names_is_not_imported(change, from_elsewhere):
    made, ran = from_elsewhere
    folder, name = made(change)
    with pytest.raises(
        InputError, match=rf'{change[0]}.*="{name}.*HALOBENCH_ALLOW={name} in the environment'
    ):
        config.load(folder)
    stored = config.stored(folder)
    config.completed(stored)  # what looking for a run's folder does with every folder beside
    assert Trace(folder).config[change[0]] and not ran.exists()


def test_a_module_that_the_environment_allows_is_imported(from_elsewhere, monkeypatch):
    made, ran = from_elsewhere
    folder, name = made(("system", "EVIL.System"))
    monkeypatch.setenv(target.ALLOW, f"other, {name}")
    assert type(config.load(folder).system).__name__ == "System" and ran.exists()


def test_what_was_typed_is_trusted_from_then_on_and_handed_on(from_elsewhere):
    made, ran = from_elsewhere
    folder, name = made(("system", "EVIL.System"))
    run = config.check(config.stored(folder))
    assert ran.exists() and target.trusted_in(run.composed) == name
    assert config.load(folder).system_name == name


def test_what_a_folder_of_ones_own_configs_names_is_trusted_where_the_folder_is_given(
    from_elsewhere, tmp_path
):
    made, ran = from_elsewhere
    folder, name = made(("system", "EVIL.System"))
    (tmp_path / "conf" / "system").mkdir(parents=True)
    (tmp_path / "conf" / "system" / "broken.yaml").write_text("a: [")
    (tmp_path / "conf" / "system" / "mine.yaml").write_text(f"_target_: {name}.System\n")
    words = ["runs", "extend", str(folder), "epochs=300", "--config-dir", str(tmp_path / "conf")]
    assert cli.main(words[:-2]) == 2 and not ran.exists()
    assert cli.main(words) == 2 and ran.exists()  # the run was never trained


def test_a_package_is_trusted_with_its_modules_and_no_other_of_like_name(monkeypatch):
    monkeypatch.setattr(target, "_named", set())
    monkeypatch.setenv(target.ALLOW, "mine")
    assert target.is_trusted("mine.a.B") and target.is_trusted("mine.B") and target.is_trusted("systems.x.Y")
    assert not target.is_trusted("mine2.B") and not target.is_trusted("systems_of_mine.x.Y")
    assert not target.is_trusted("Bare")


def test_the_line_for_torchrun_carries_what_its_workers_may_import(place):
    done = place.run(*place.trouble, "launch=prepare")
    assert done.code == 0
    assert re.search(r"^HALOBENCH_ALLOW=trouble torchrun --nproc-per-node 2 ", done.out, re.M)


def test_an_alias_which_no_run_writes_is_refused_by_whoever_reads_a_config(tmp_path):
    files.write_yaml_atomic(tmp_path / "config.yaml", "a: &a [x, x]\nsystem: {c: *a}\ndataset: {}\n")
    for read in (config.stored, lambda folder: Trace(folder).config):
        with pytest.raises(InputError, match=r"config.yaml.*an alias, \*a: give what it stands for"):
            read(tmp_path)


def hungry():
    return len([np.empty(1 << 30, np.uint8) for _ in range(1 << 12)])  # 4 TiB, of which no page is touched


def test_preparing_that_asks_for_more_memory_than_there_is_is_told_so():
    with pytest.raises(InputError, match=r"more than the [\d.]+ GB of memory that there are; take a smaller"):
        prepare._in_child(hungry)
