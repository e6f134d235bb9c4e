"""Workers that no longer move are named, and what workers started ends with them."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from types import SimpleNamespace

import psutil
import pytest

from harness.comm.server import Settings
from harness.run.silence import LENGTH, SINCE, STOPPED, Heartbeats, Silence
from tests.launching import PATIENCE

FROZEN = """
import harness.run.silence
from held import HeldVanilla

harness.run.silence.LEAST = 0.5

class Impatient(HeldVanilla):
    pass
"""


def until(condition) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def sleepers():
    """Two processes that do nothing, the second of which is stopped."""
    made = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    made[1].send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(made[1].pid).status() in STOPPED)
    yield {worker: process.pid for worker, process in enumerate(made)}
    for process in made:
        process.kill()
        process.wait()


def looked(beats: Heartbeats, processes=None, times: int = 1) -> list[str]:
    silence = Silence(beats, processes or {})
    return [told for _ in range(times) if (told := silence.look())]


@pytest.fixture
def beats(tmp_path, monkeypatch):
    """Of two workers in epoch 9, of which the longest has taken a second, silent for 61 s."""
    monkeypatch.setattr("harness.run.silence.time", SimpleNamespace(monotonic=lambda: 1000.0))
    beats = Heartbeats(tmp_path / "beats", 2)
    for worker in (0, 1):
        beats.begin(worker, 9)
        beats.rows[worker, SINCE] -= 61
        beats.rows[worker, LENGTH] = 1
    return beats


def test_the_worker_that_is_stopped_is_named_once(beats, sleepers):
    (told,) = looked(beats, sleepers, times=3)
    assert told.startswith("worker 1 has not moved since it began epoch 10, for 61 s (stopped by a signal")


def test_the_worker_that_is_behind_is_named_and_all_where_nothing_tells_them_apart(beats):
    assert looked(beats) == ["workers 0, 1 have not moved since they began epoch 10, for 61 s"]
    beats.rows[1, 0] = 8
    assert looked(beats) == ["worker 1 has not moved since it began epoch 9, for 61 s"]


@pytest.mark.parametrize("calm", ["young", "long epochs", "ended", "not begun"])
def test_nothing_is_said_of_workers_that_may_well_be_at_work(calm, beats, tmp_path):
    if calm == "young":
        beats.rows[:, SINCE] += 2
    elif calm == "long epochs":
        beats.rows[0, LENGTH] = 13  # a straggler's
    elif calm == "ended":
        beats.end(0), beats.end(1)
    else:
        beats = Heartbeats(tmp_path / "others", 2)
    assert looked(beats) == []


def test_workers_of_a_run_that_stand_still_are_named_and_go_on(place):
    place.derive("impatient", "vanilla", FROZEN)
    place.hold.touch()
    run = place.start(place.more, "system=impatient", "epochs=32", "checkpoint_every=10")
    run.until(lambda: "workers 0, 1 have not moved since they began epoch 31, for " in run.told())
    place.hold.unlink()
    assert run.end().code == 0


def test_a_frozen_parameter_server_ends_with_the_worker_that_started_it(tmp_path):
    """It could not see for itself that its standard input was closed."""
    settings = Settings(workers=1, order="arrival", scale=1.0, dtype="float32", adam=None, updates=1)
    script = (
        "import subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-m', 'harness.comm.server', *sys.argv[1:]],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "assert p.stdout.readline() == b'ready\\n'\n"
        "print(p.pid, flush=True)\n"
        "p.wait()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "socket"), json.dumps(asdict(settings))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as parent:
        server = psutil.Process(int(parent.stdout.readline()))
        server.send_signal(signal.SIGSTOP)
        until(lambda: server.status() in STOPPED)
        parent.kill()
    assert psutil.wait_procs([server], timeout=PATIENCE)[1] == []
