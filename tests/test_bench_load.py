"""What else the machine does while the bench measures: others' time, and not the bench's own."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness.dev.bench import load
from harness.dev.bench.load import BUSY, Watch


def clock(monkeypatch, times, own):
    """CPU times and own seconds as a test says, one after the other."""
    answers = iter(times)
    monkeypatch.setattr(load.psutil, "cpu_times", lambda percpu: next(answers))
    seconds = iter(own)
    monkeypatch.setattr(load, "own_seconds", lambda: next(seconds))
    monkeypatch.setattr(load.os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)


def cpu(user=0.0, idle=0.0, **more):
    fields = {"user": user, "system": 0.0, "idle": idle, "iowait": 0.0, "steal": 0.0, "guest": 0.0, **more}
    return SimpleNamespace(_asdict=lambda: dict(fields))


@pytest.mark.parametrize("own, after, others", [
    (10.0, (cpu(10, 0), cpu(99, 0), cpu(0, 10)), 0.0),  # all of it ours; the CPU between is not for us
    (4.0, (cpu(10, 0), cpu(0, 0), cpu(0, 10)), 0.3),
    (0.0, (cpu(10, 0), cpu(0, 0), cpu(0, 0, steal=10.0)), 1.0),  # another machine's
    (5.0, (cpu(5, 0, guest=5.0), cpu(), cpu(0, 5, iowait=10.0)), 0.0),  # waiting is idle
    (10.02, (cpu(10, 0), cpu(), cpu(0, 10)), 0.0),  # ticks
    (0.0, (cpu(), cpu(), cpu()), 0.0),  # no time at all
])  # fmt: skip
def test_others_took_what_was_taken_and_is_not_ours(monkeypatch, own, after, others):
    clock(monkeypatch, [(cpu(), cpu(), cpu()), after], [100.0, 100.0 + own])
    found = Watch().load()
    assert found.others == pytest.approx(others) and found.busy == (others > BUSY)
    assert ("busy, not judged" in str(found)) == found.busy


def test_own_seconds_are_those_of_running_and_of_ended_children_too():
    began = load.own_seconds()
    spin = "import time\nwhile time.process_time() < 0.2: pass\n"
    subprocess.run([sys.executable, "-c", spin], check=True)
    ended = load.own_seconds()
    assert ended - began >= 0.15  # the clock of a process that has ended ticks in hundredths
    code = spin + "print('spun', flush=True)\ninput()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"spun\n"
        assert load.own_seconds() - ended >= 0.15, "it waits for its input: not ended"
    finally:
        child.communicate(b"\n")
