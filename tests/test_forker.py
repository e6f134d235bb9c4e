"""The process from which tests fork commands leaves nothing behind when its session is killed."""

from __future__ import annotations

import json
import subprocess
import sys

import psutil

from tests.launching import PATIENCE

# A forker whose command neither ends nor looks at anything; modules that take seconds to import are empty.
FORKER = """
import runpy, signal, sys, types
run = ("command", "config", "overrides", "preload")
empty = ("harness.cli", "harness.results.report.table", *(f"harness.run.{name}" for name in run))
sys.modules.update({name: types.ModuleType(name) for name in empty})
sys.modules["harness.cli"].main = lambda arguments: signal.pause()
sys.modules["harness.run.overrides"].check = lambda words, conf: None
sys.modules["harness.run.config"].check = lambda composed: types.SimpleNamespace(code="any")
runpy.run_module("tests.forker", run_name="__main__")
"""
# A test session: it starts the forker and asks for a command; then it stands still.
SESSION = f"""
import signal, subprocess, sys
forker = subprocess.Popen([sys.executable, "-c", {FORKER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
forker.stdin.write(sys.argv[1].encode() + b"\\n")
forker.stdin.flush()
print(forker.pid, forker.stdout.readline().decode(), flush=True)
signal.pause()
"""


def test_forker_and_command_end_when_the_session_is_killed(tmp_path):
    words = json.dumps([[], str(tmp_path / "out"), str(tmp_path / "err")])
    session = subprocess.Popen([sys.executable, "-c", SESSION, words], stdout=subprocess.PIPE, text=True)
    left = [psutil.Process(int(pid)) for pid in session.stdout.readline().split()]
    assert len(left) == 2 and all(process.is_running() for process in left)
    session.kill()
    session.wait()
    _, stayed = psutil.wait_procs(left, timeout=PATIENCE)
    for process in stayed:
        process.kill()
    assert stayed == []
