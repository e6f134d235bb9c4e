"""What a run leaves that is killed at any moment, all of its processes at once: nothing in shared memory, and
no scratch folder that the next run does not remove.
"""

import os
import time

import psutil
import pytest

from harness.base.scratch import PREFIX
from tests.launching import PATIENCE
from tests.memory import exchanges_through_memory

# A system that has a store in shared memory and a parameter server. While there is a file that says "total N"
# or "_check N", each worker stands still in its N-th sum, or in the N-th look at whether all have got memory.
STANDING = """
import os, time
from pathlib import Path
from harness.comm import segments
from harness.comm.comm import Comm
from systems.digest_a import DigestA

at = Path(os.environ["HALOBENCH_HOLD"])

def stand_in(owner, name):
    method, calls = getattr(owner, name), 0

    def standing(*given, **more):
        nonlocal calls
        calls += 1
        if at.exists() and at.read_text() == f"{name} {calls}":
            Path(f"{at}-{os.getpid()}").touch()
            while at.exists():
                time.sleep(0.01)
        return method(*given, **more)

    setattr(owner, name, standing)

stand_in(Comm, "total")
stand_in(segments, "_check")

class Standing(DigestA):
    pass
"""


@pytest.fixture
def standing(place):
    """The command of such a run, and a place without litter."""
    place.derive("standing", "digest_a", STANDING)
    return (place.more, "system=standing", "epochs=1000000", "model.layers=3")


def named_memory() -> set[str]:
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def kill(run) -> None:
    """All processes of a run at once."""
    family = [run.process, *run.process.children(recursive=True)]
    for process in family:
        process.suspend()  # or one sees another die, and tidies up
    for process in family:
        process.kill()
    run.end()
    assert psutil.wait_procs(family, timeout=PATIENCE)[1] == []


def assert_nothing_is_left(place, before: set[str]) -> None:
    deadline = time.monotonic() + PATIENCE / 3
    while left := named_memory() - before:  # of other runs on this machine, for a moment
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert place.run("epochs=1").code == 0
    assert not list(place.folder.glob("halobench*")) and not list(place.folder.glob("tmp*"))


SUMS = [f"total {n}" for n in range(1, 6)]


@pytest.mark.parametrize("moments", [
    ("_check 3", "total 6"),
    pytest.param(("_check 1", "_check 2", "_check 4", *SUMS), marks=pytest.mark.nightly(90)),
])  # fmt: skip
def test_runs_killed_while_they_start_leave_nothing(place, standing, moments):
    """In looks 1 and 3 memory (between the workers, then the store's) has been made and not yet mapped, in 2
    and 4 it is mapped and its descriptors are open; in sum 6 the parameter server is there and training
    begins."""
    before = named_memory()
    for moment in moments:
        place.hold.write_text(moment)
        run = place.start(*standing)
        run.until(lambda: len(list(place.folder.glob("hold-*"))) == 2)
        assert list(place.folder.glob(f"{PREFIX}*")), "where the workers meet"
        kill(run)
        for path in place.folder.glob("hold*"):
            path.unlink()
    assert_nothing_is_left(place, before)


@pytest.mark.nightly(20)
def test_a_run_killed_while_it_trains_leaves_nothing(place, standing):
    before = named_memory()
    run = place.start(*standing)
    run.until_epoch(2)
    assert any(map(exchanges_through_memory, run.family))
    kill(run)
    assert_nothing_is_left(place, before)
