"""Folders that a process needs until it ends: nobody takes one whose owner lives, and the next process
removes what a killed one left.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.base.scratch import MARK, PREFIX, place, scratch

OWNER = """
import os, sys
from pathlib import Path
from harness.base.scratch import scratch

with scratch(parent=Path(sys.argv[1])) as folder:
    forked = len(sys.argv) > 2 and os.fork() == 0
    if not forked:
        print(folder, flush=True)
    sys.stdin.read()
    if forked:
        os._exit(0)
"""


def owner(parent, *forks) -> tuple[subprocess.Popen, str]:
    """A process, and with `forks` one that it forks, that has a folder in `parent` until it is told to end;
    and the folder."""
    command = [sys.executable, "-c", OWNER, str(parent), *forks]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_is_not(tmp_path):
    (killed, left), (living, kept) = owner(tmp_path), owner(tmp_path)
    with open(f"{left}/content", "w") as file:
        file.write("something")
    (tmp_path / "halobench-another").mkdir()
    killed.kill()
    killed.wait()
    assert sorted(map(str, tmp_path.glob(f"{PREFIX}*"))) == sorted([left, kept])
    with scratch(parent=tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        assert sorted(map(str, tmp_path.glob(f"{PREFIX}*"))) == sorted([kept, str(folder)])
    living.communicate("", timeout=60)
    assert [path.name for path in tmp_path.iterdir()] == ["halobench-another"]


def test_a_folder_that_a_forked_process_still_uses_is_not_removed(tmp_path):
    """As workers may outlive their launcher by a moment."""
    killed, left = owner(tmp_path, "forks")
    killed.kill()
    killed.wait()
    with scratch(parent=tmp_path):
        assert os.path.exists(left)
    killed.stdin.close()
    killed.stdout.read()  # until the forked process has ended
    with scratch(parent=tmp_path):
        assert not os.path.exists(left)


def test_many_at_once_never_take_each_others(tmp_path):
    def work(number: int) -> bool:
        with scratch(parent=tmp_path) as folder:
            (folder / "number").write_text(str(number))
            return (folder / "number").read_text() == str(number)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(100)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mark", [None, "1", "not a number"])
def test_a_folder_of_such_a_name_that_was_not_made_here_is_never_removed(tmp_path, mark):
    """A user's own, or one out of somebody's archive, which may hold a copy of a mark."""
    (folder := tmp_path / ".import.of-mine").mkdir()
    if mark is not None:
        (folder / MARK).write_text(mark)
    with scratch(parent=tmp_path, prefix=".import."):
        pass
    assert list(tmp_path.iterdir()) == [folder]


def test_a_name_is_where_others_look_and_cannot_be_had_twice(tmp_path):
    with scratch("abc", tmp_path) as folder:
        assert folder == place("abc", tmp_path)
        with pytest.raises(FileExistsError), scratch("abc", tmp_path):
            pass
    assert not folder.exists()


def test_a_folder_that_cannot_be_opened_is_not_left(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="Too many"):
        patched.setattr("harness.base.scratch.os.open", refuse)
        with scratch("abc", tmp_path):
            pass
    assert list(tmp_path.iterdir()) == []


def test_without_locks_nothing_is_ever_taken_for_left(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks here")

    monkeypatch.setattr("harness.base.scratch.fcntl.flock", refuse)
    with scratch(parent=tmp_path) as one, scratch(parent=tmp_path) as other:
        assert one.exists() and other.exists()
