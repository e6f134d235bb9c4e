"""Processes that need the same compiled loop at the same time compile it once."""

import os
import subprocess
import sys
from collections import Counter

import numba
import pytest
from filelock import FileLock, Timeout

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


@pytest.mark.parametrize("error", [OSError(38, "Function not implemented"), Timeout("compiling.lock")])
def test_without_a_lock_or_after_a_while_everybody_compiles(monkeypatch, error):
    def refuse(*given, **more):
        raise error

    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert numba.njit(lambda x: x + 1)(1) == 2


def test_a_run_takes_turns(monkeypatch):
    """Its workers do before anything else."""
    from harness.run import train

    def told():
        raise InterruptedError("asked")

    monkeypatch.setattr(train, "take_turns", told)
    with pytest.raises(InterruptedError, match="asked"):
        train.main("nowhere")
