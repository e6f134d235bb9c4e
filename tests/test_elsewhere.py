"""What hosts that do not see the run folder of worker 0 are given, and what they refuse: workers are threads
here, each with a folder of its own.
"""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.base import checksum
from harness.base.errors import InputError
from harness.comm.meeting import Meeting
from harness.data.partition import io
from harness.results import files
from harness.run import separate_hosts

HOSTS = "ab"  # of worker 0 and of worker 1


def described(tmp_path: Path, folders: list[Path]) -> list[tuple[list[bool], str]]:
    """What `describe` gives each worker."""
    store = tmp_path / f"store-{len(list(tmp_path.glob('store-*')))}"

    def work(rank: int) -> tuple[list[bool], str]:
        meeting = Meeting(rank, len(folders), str(store), 60)
        return separate_hosts.describe(meeting, HOSTS[rank], folders[rank])

    with ThreadPoolExecutor(len(folders)) as threads:
        return list(threads.map(work, range(len(folders))))


@pytest.fixture
def folders(tmp_path) -> list[Path]:
    """A prepared run folder, and where its copy goes."""
    shards, run = tmp_path / "cache", tmp_path / "run"
    for folder in (shards, run):
        folder.mkdir()
    (shards / "spec.json").write_text("{}")
    (run / "config.yaml").write_text("system: {}\n")
    files.write_json_atomic(run / "shards.json", {"folder": str(shards), "stats": {}})
    return [run, tmp_path / "copy"]


def test_a_folder_that_all_see_is_left_as_it_is(tmp_path, folders):
    before = sorted(path.name for path in folders[0].iterdir())
    assert described(tmp_path, [folders[0]] * 2) == [([True, True], "")] * 2
    assert sorted(path.name for path in folders[0].iterdir()) == before


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_an_earlier_start_left_in_a_copy_counts_only_in_a_run_that_goes_on(tmp_path, folders, goes_on):
    run, copy = folders
    described(tmp_path, folders)
    checkpoints = ("checkpoints/epoch-000003/worker-1.pt", "checkpoints/latest")
    made = ("stream/epochs-worker1-attempt0.arrow", *checkpoints, "devices.json")
    for name in made:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).touch()
    if goes_on:
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "latest").write_text("3")
    assert described(tmp_path, folders)[1] == ([True, False], "")
    assert {(copy / name).exists() for name in made} == {goes_on}
    separate_hosts.forget(copy, keep=True)
    assert copy.exists() and not (copy / "stream").exists()


@pytest.mark.parametrize(
    "name, sentence",
    [("config.yaml", "holds another run on this host than on that of worker 0"), ("photo.png", "no run's")],
)
def test_a_folder_of_something_else_is_refused_and_kept(tmp_path, folders, name, sentence):
    copy = folders[1]
    copy.mkdir()
    (copy / name).write_text("mine")
    (_, own), (_, wrong) = described(tmp_path, folders)
    assert own == "" and sentence in wrong and f'RUN_DIR="{copy}"' in wrong
    separate_hosts.forget(copy, keep=False)
    assert (copy / name).read_text() == "mine"


def told_by_worker_0(tmp_path: Path, copy: Path, files_: dict[str, str]) -> str:
    """What is wrong with worker 1, whose host makes `copy` from what a worker 0 that is not ours says."""

    def worker_0() -> None:
        meeting = Meeting(0, 2, str(tmp_path / "store"), 60)
        for name, value in (("folder", [".seen", True]), ("sees", ["a", True]), ("describing", files_)):
            meeting.tell(name, value)
        meeting.tell("described", None)

    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(worker_0)
        _, wrong = separate_hosts.describe(Meeting(1, 2, str(tmp_path / "store"), 60), "b", copy)
        other.result(60)
    return wrong


def tree(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["../evil", "{here}/evil", "shards/../../evil", "epochs.parquet", "x\x1b[2J"]
)
def test_only_what_describes_a_run_is_written(tmp_path, folders, name):
    (run, copy), name = folders, name.replace("{here}", str(tmp_path))
    good = {"config.yaml": "system: {}\n", "shards.json": (run / "shards.json").read_text()}
    before = tree(tmp_path)
    wrong = told_by_worker_0(tmp_path, copy, {**good, name: "evil"})
    shown = name.replace("\x1b", "\\x1b")
    assert wrong.startswith(
        f'host {socket.gethostname()} does not write "{shown}" from worker 0: it is none of'
    )
    assert "\n" not in wrong and not copy.exists()
    assert {**tree(tmp_path), str(tmp_path / "store"): ""} == {**before, str(tmp_path / "store"): ""}


def test_a_file_that_is_larger_than_any_runs_is_not_written(tmp_path, folders, monkeypatch):
    monkeypatch.setattr(separate_hosts, "LARGEST", 9)
    wrong = told_by_worker_0(tmp_path, folders[1], {"config.yaml": "x" * 10})
    assert 'does not write "config.yaml" from worker 0: it has 10 characters, and' in wrong
    assert not folders[1].exists()


def test_a_shard_that_came_damaged_is_refused(folders, monkeypatch):
    shards, name = separate_hosts.configs.shard_folder(folders[0]), io.shard_name(1)
    entry = checksum.sealed({"files": {name: "that of another"}})
    (shards / "spec.json").write_text(json.dumps(entry))
    monkeypatch.setattr(separate_hosts, "told", lambda comm, value: [False, value])
    monkeypatch.setattr(separate_hosts, "_carry", lambda *given: given[-1].write_bytes(b"damaged"))
    with pytest.raises(InputError, match=f"{name} is damaged: its checksum is not that of its content"):
        separate_hosts.bring_shards(SimpleNamespace(rank=1), folders[0], [True, False])


@pytest.mark.parametrize("name", ["checkpoints", "config.yaml.part", "shards/spec.json"])
def test_a_copy_is_not_written_through_a_link(tmp_path, folders, name):
    copy, other = folders[1], tmp_path / "other"
    described(tmp_path, folders)
    other.mkdir()
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(other if name == "checkpoints" else other / "file")
    (folders[0] / "checkpoints").mkdir()
    (folders[0] / "checkpoints" / "latest").write_text("3")
    _, (_, wrong) = described(tmp_path, folders)
    assert wrong.startswith(
        f'host {socket.gethostname()} does not write "{copy / name}", which is a link; remove'
    )
    assert list(other.iterdir()) == []


def test_worker_0_takes_back_streams_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(separate_hosts, "told", lambda comm, own: [[], ["../../evil"]])
    comm = SimpleNamespace(rank=0, size=2)
    with pytest.raises(
        InputError, match=r'^worker 1 wants to give back "\.\./\.\./evil", which no worker traces'
    ):
        separate_hosts.take_back(comm, tmp_path, [True, False], [[0], [1]])


def test_a_run_that_is_not_prepared_is_worker_0s_to_say(tmp_path, folders):
    (_, wrong), (_, other) = described(tmp_path, [tmp_path / "nowhere", folders[1]])
    assert "shards.json is missing or damaged" in wrong and other == ""
