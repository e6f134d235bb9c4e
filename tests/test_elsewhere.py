"""What hosts that do not see the run folder of worker 0 are given, and what they refuse: workers are threads
here, each with a folder of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.comm.meeting import Meeting
from harness.results import files
from harness.results.environment import of_hosts
from harness.results.resolved import machine
from harness.run import separate_hosts

HOSTS = "ab"  # of worker 0 and of worker 1


def described(tmp_path: Path, folders: list[Path], hosts: str = HOSTS) -> list[tuple[list[bool], str]]:
    """What `describe` gives each worker."""
    store = tmp_path / f"store-{len(list(tmp_path.glob('store-*')))}"

    def work(rank: int) -> tuple[list[bool], str]:
        meeting = Meeting(rank, len(folders), str(store), 60)
        return separate_hosts.describe(meeting, hosts[rank], folders[rank])

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


def test_a_copy_has_what_describes_the_run_and_shards_of_its_own(tmp_path, folders):
    run, copy = folders
    found = described(tmp_path, [run, copy, copy], "abb")
    assert found == [([True, False, False], "")] * 3
    assert (copy / "config.yaml").read_text() == (run / "config.yaml").read_text()
    assert files.read_json(copy / "shards.json")["folder"] == str(copy / "shards")
    assert (copy / "shards" / "spec.json").read_text() == "{}"
    separate_hosts.forget(copy, keep=False)
    assert not copy.exists()


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_an_earlier_start_left_in_a_copy_counts_only_in_a_run_that_goes_on(tmp_path, folders, goes_on):
    run, copy = folders
    described(tmp_path, folders)
    for name in ("stream/epochs-worker1-attempt0.arrow", "checkpoints/epoch-000003/worker-1.pt"):
        (copy / name).parent.mkdir(parents=True)
        (copy / name).touch()
    if goes_on:
        (run / "checkpoints").mkdir()
        (run / "checkpoints" / "latest").write_text("3")
    assert described(tmp_path, folders)[1] == ([True, False], "")
    assert (copy / "stream").exists() == (copy / "checkpoints" / "latest").exists() == goes_on
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


def test_a_run_that_is_not_prepared_is_worker_0s_to_say(tmp_path, folders):
    (_, wrong), (_, other) = described(tmp_path, [tmp_path / "nowhere", folders[1]])
    assert "shards.json is missing or damaged" in wrong and other == ""


def test_the_environment_of_several_hosts_lists_each(tmp_path):
    one = {"processor": "p", "cores": 2, "gpus": [], "memory_bytes": 10}
    other = {"processor": "q", "cores": 4, "gpus": ["g"], "memory_bytes": 5}
    assert of_hosts([one], [(0, 1)]) == one and machine(one) == "p, 2 cores"
    both = of_hosts([one, other], [(0, 2), (1,)])
    assert (both["cores"], both["gpus"], both["memory_bytes"]) == (6, ["g"], 15)
    assert [each["workers"] for each in both["hosts"]] == [[0, 2], [1]]
    assert machine(both) == "p, 6 cores, 1 x g, 2 hosts"
