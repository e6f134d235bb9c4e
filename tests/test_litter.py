"""What a run leaves that is killed at any moment, all of its processes at once: nothing in shared memory, and
no scratch folder that the next run does not remove.
"""

import os
import time
from pathlib import Path

import psutil
import pytest

from harness.base.scratch import PREFIX
from tests.launching import PATIENCE
from tests.memory import exchanges_through_memory

# A system that has a store in shared memory and a parameter server. While there is a file that holds a
# number, each worker stands still in that sum of its start.
STANDING = """
import os, time
from pathlib import Path
from harness.comm.comm import Comm
from systems.digest_a import DigestA

at, total, sums = Path(os.environ["HALOBENCH_HOLD"]), Comm.total, 0

def standing(comm, values):
    global sums
    sums += 1
    if at.exists() and int(at.read_text()) == sums:
        Path(f"{at}-{comm.rank}").touch()
        while at.exists():
            time.sleep(0.01)
    return total(comm, values)

Comm.total = standing

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


@pytest.mark.parametrize(
    "moments", [(2, 6), pytest.param((1, 3, 4, 5, 7, 8, 9), marks=pytest.mark.nightly(90))]
)
def test_runs_killed_while_they_start_leave_nothing(place, standing, moments):
    """In sum 2 memory has been made and not yet mapped, in sum 6 the parameter server is there."""
    before = named_memory()
    for moment in moments:
        place.hold.write_text(str(moment))
        run = place.start(*standing)
        reached = [Path(f"{place.hold}-{rank}") for rank in (0, 1)]
        run.until(lambda reached=reached: all(path.exists() for path in reached))
        assert list(place.folder.glob(f"{PREFIX}*")), "where the workers meet"
        kill(run)
        for path in (place.hold, *reached):
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
