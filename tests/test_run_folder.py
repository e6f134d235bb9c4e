"""What may lie in a run's folder before the run: nothing, or the same run. Anything else is refused and left
as it is. The secret of a run, which lies there too: who reads it, and where it does not get.
"""

import os
import signal
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from omegaconf import OmegaConf

from harness.base.errors import InputError
from harness.results import files
from harness.results.schema import LOCK
from harness.run import config, prepare, secret
from harness.run.process import RunFailed
from tests import systems


def run_in(folder: Path, *more: str) -> config.Run:
    return systems.asked("dataset=twin/flickr", f"run_dir={folder}", *more)


def claim(run: config.Run) -> None:
    """What the command does with the folder before it prepares anything."""
    if run.settings.fresh or not prepare.is_finished(run):
        with prepare.claimed(run):
            pass


def hold(folder: Path, run: config.Run) -> Path:
    """A folder in which `run` has begun."""
    folder.mkdir()
    files.write_yaml_atomic(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(run.composed)))
    return folder


def test_what_is_no_runs_config_is_damaged_and_no_hindrance_beside(tmp_path):
    run = run_in(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for text in ("7", "system: {}\n", "system: {}\ndataset: {}\n"):
        files.write_yaml_atomic(tmp_path / "b" / "config.yaml", text)
        with pytest.raises(InputError, match=r"config.yaml is damaged \(it names no [a-z]*\)"):
            config.stored(tmp_path / "b")
        assert not run.is_in(tmp_path / "b")


def test_a_number_for_a_text_is_kept_as_text(tmp_path):
    run = run_in(hold(tmp_path / "a", run_in(tmp_path / "a", "label=2024")), "label=2024")
    assert run.system_name == config.stored(tmp_path / "a")["label"] == "2024"
    assert not prepare.is_finished(run), "and the folder is taken for the run's own"


def test_a_pipe_in_a_files_place_is_damaged_and_waited_for_by_nobody(tmp_path):
    for name, read in (("shards.json", files.read_json), ("config.yaml", files.read_yaml_text)):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match="it is not a file"):
            read(tmp_path / name)


def test_a_run_that_wrote_nothing_leaves_no_folder_that_was_not_there(tmp_path):
    claim(run_in(tmp_path / "results" / "graph" / "a"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "mine").mkdir()
    claim(run_in(tmp_path / "mine" / "graph" / "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_was_left_of_being_prepared_is_no_hindrance(tmp_path):
    for name in ("shards.json", "config.yaml.part"):
        (tmp_path / name).touch()
    claim(run_in(tmp_path))


def test_another_run_is_refused_and_set_aside_where_asked(tmp_path, capsys):
    folder = hold(tmp_path / "a", run_in(tmp_path / "a", "seed=2"))
    with pytest.raises(
        InputError, match="holds another run; give another folder, or fresh=true to set that one aside"
    ):
        claim(run_in(folder))
    claim(run_in(folder, "fresh=true"))
    assert config.stored(tmp_path / "a.old1")["seed"] == 2 and not (folder / "config.yaml").exists()
    assert capsys.readouterr().out == f"kept the earlier run as {folder}.old1\n"


@pytest.mark.parametrize("more", [(), ("fresh=true",)], ids=["goes-on", "fresh"])
def test_a_run_that_is_going_on_is_left_where_it_is(tmp_path, more):
    folder = hold(tmp_path / "a", run_in(tmp_path / "a"))
    with FileLock(folder / LOCK), pytest.raises(InputError, match="is in use: the same run is"):
        claim(run_in(folder, *more))
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("more", [(), ("fresh=true",)], ids=["goes-on", "fresh"])
def test_files_that_are_no_runs_are_refused(tmp_path, more):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty and is not a run folder; give another run_dir"):
        claim(run_in(tmp_path, *more))
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match='run_dir=".*/run" cannot be written .*; give run_dir=FOLDER that'):
        claim(run_in(tmp_path / "file" / "run"))


@pytest.mark.parametrize(
    "end, said, code",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"was killed by SIGKILL, most likely .* memory", 137),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM$", 143),
        (lambda: os._exit(3), "ended with exit code 3 and no error message", 3),
        (lambda: 1 / 0, r"failed:\n(.*\n)*ZeroDivisionError: division by zero$", 1),
    ],
    ids=["SIGKILL", "SIGTERM", "exit", "raises"],
)
def test_a_preparation_that_fails_says_why(end, said, code):
    with pytest.raises(RunFailed, match=f"preparing the graph {said}") as failed:
        prepare._in_child(end)
    assert failed.value.code == code


def test_ctrl_c_ends_a_preparation_at_once():
    launcher, children = os.getpid(), set(psutil.Process().children())

    def interrupted():
        os.kill(launcher, signal.SIGINT)
        signal.pause()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            prepare._in_child(interrupted)
    finally:
        signal.signal(signal.SIGINT, before)
    assert set(psutil.Process().children()) <= children


def test_a_run_that_has_begun_on_an_unknown_graph_is_refused(tmp_path):
    (tmp_path / "stream").mkdir()
    (tmp_path / "shards.json").write_text("{")
    assert prepare._begun_on(tmp_path) is None
    (tmp_path / "stream" / "epochs-worker0-attempt0.arrow").touch()
    with pytest.raises(InputError, match=r"shards.json is damaged .*; start the run anew with fresh=true"):
        prepare._begun_on(tmp_path)


def test_a_run_folder_has_one_that_only_its_user_reads(tmp_path):
    before = os.umask(0)  # one that leaves every right
    try:
        secret.make(tmp_path)
    finally:
        os.umask(before)
    made = secret.read(tmp_path)
    assert len(made) == 64 and (tmp_path / secret.FILE).stat().st_mode & 0o777 == 0o600
    secret.make(tmp_path)
    assert secret.read(tmp_path) == made and [p.name for p in tmp_path.iterdir()] == [secret.FILE]
    prepare._check_ours(tmp_path)
    secret.forget(tmp_path)
    assert secret.read(tmp_path) is None
    secret.forget(tmp_path)


def test_the_environment_is_asked_first(tmp_path, monkeypatch):
    secret.make(tmp_path)
    monkeypatch.setenv(secret.VARIABLE, " sixteen-or-more- ")
    assert secret.read(tmp_path) == secret.read(tmp_path / "nowhere") == b"sixteen-or-more-"


def test_a_short_one_is_refused_and_not_printed(tmp_path, monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, "tiger")
    with pytest.raises(
        InputError, match="^HALOBENCH_SECRET has 5 characters and could be guessed; give 16"
    ) as error:
        secret.read(tmp_path)
    assert "tiger" not in str(error.value)


def test_it_is_neither_read_nor_written_through_a_link(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    for name in (secret.FILE, secret.PART):
        (tmp_path / name).symlink_to(other)
    assert secret.read(tmp_path) is None
    secret.make(tmp_path)
    assert other.read_text() == "mine" and secret.read(tmp_path) != b"mine"
