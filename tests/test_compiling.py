"""Processes that need the same compiled loop at the same time compile it once."""

import os
import subprocess
import sys
import threading
from collections import Counter

import numba
import pytest
from filelock import FileLock
from numba.core.dispatcher import Dispatcher

from harness.base import compiling
from harness.run import train
from tests.launching import ROOT

LOOPS = """
import numba

@numba.njit(cache=True)
def inner(x):
    return x + 1

@numba.njit(cache=True)
def outer(x):
    return inner(x) * 2
"""
# Two processes that begin together, as workers do.
TWO = """
import os
from harness.base.compiling import take_turns
import loops

take_turns()
ready, go = os.pipe()
children = []
for _ in range(2):
    if not (child := os.fork()):
        os.close(go)
        os.read(ready, 1)
        assert loops.outer(1) == 4
        os._exit(0)
    children.append(child)
os.close(go)
assert not any(os.waitpid(child, 0)[1] for child in children)
"""


def test_a_loop_that_two_processes_need_is_compiled_by_one(tmp_path):
    (tmp_path / "loops.py").write_text(LOOPS)
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "kept"), "XDG_CACHE_HOME": str(tmp_path / "home"),
           "PYTHONPATH": f"{tmp_path}:{ROOT}", "NUMBA_DEBUG_CACHE": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", TWO], env={**os.environ, **own}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    saved = Counter(line for line in done.stdout.splitlines() if "data saved to" in line)
    assert len(saved) == 2 and set(saved.values()) == {1}, done.stdout


@pytest.fixture
def taken(monkeypatch, tmp_path):
    """Turns of this process, by a lock that another one has."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(Dispatcher, "compile", Dispatcher.compile)  # put back afterwards
    compiling.take_turns()
    numba.njit(lambda x: x)(1)
    (place,) = tmp_path.rglob("*.lock")
    with FileLock(place):
        yield


def test_who_waits_for_long_compiles_all_the_same(taken, monkeypatch):
    monkeypatch.setattr(compiling, "PATIENCE", 0.05)
    compiled = threading.Thread(target=numba.njit(lambda x: x + 1), args=(1,), daemon=True)
    compiled.start()
    compiled.join(30)
    assert not compiled.is_alive()


def test_where_there_are_no_locks_everybody_compiles(monkeypatch):
    def refuse(*given, **more):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert numba.njit(lambda x: x + 1)(1) == 2


def test_it_is_said_once_that_loops_are_compiled():
    said: list[str] = []
    with compiling.before_compiling(lambda: said.append("compiling")):
        assert [numba.njit(body)(1) for body in (lambda x: x + 1, lambda x: x + 2)] == [2, 3]
    assert said == ["compiling"] and numba.njit(lambda x: x + 3)(1) == 4 and len(said) == 1


def test_a_run_takes_turns(monkeypatch):
    """Its workers do before anything else."""

    def told():
        raise InterruptedError("asked")

    monkeypatch.setattr(train, "take_turns", told)
    with pytest.raises(InterruptedError, match="asked"):
        train.main("nowhere")
