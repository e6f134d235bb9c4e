# ruff: noqa: E402 -- what follows is imported without looking for garbage, which would take a quarter of it
import gc

gc.disable()

import bisect
import datetime
import itertools
import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness.base.compiling import take_turns
from harness.dev.conformance.pool import WorkerPool
from tests.launching import Place
from tests.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent

# Examples go to worker processes; a slow machine must not turn a slow example into a failure.
settings.register_profile(
    "halobench",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
    max_examples=20,
)
settings.load_profile("halobench")
take_turns()


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """From here on garbage is looked for, but not among what was imported and collected: that stays."""
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


def pytest_addoption(parser):
    parser.addoption(
        "--share",
        type=float,
        metavar="SECONDS",
        help="of the nightly tests run only what fits into so long; begin with another one every day, which"
        " runs however long it takes",
    )


GOLDEN_RATIO = 0.6180339887  # of its multiples, modulo 1, any few that follow each other lie far apart


@pytest.hookimpl(trylast=True)  # of the nightly tests alone: once `-m nightly` has left these
def pytest_collection_modifyitems(config, items):
    """Under --share, begin with the nightly test whose turn it is: every day elsewhere, by the seconds that
    they take, so that one which takes a whole share has as many more days on which it is the first.
    """
    if config.getoption("--share") is not None and items:
        ends = list(itertools.accumulate(item.get_closest_marker("nightly").args[0] for item in items))
        turn = bisect.bisect(ends, datetime.date.today().toordinal() * GOLDEN_RATIO % 1 * ends[-1])
        items[:] = items[turn:] + items[:turn]
        config.share_began = None


def pytest_runtest_setup(item):
    """A nightly test says how many seconds it takes on a slow machine: `@pytest.mark.nightly(90)`."""
    share = item.config.getoption("--share")
    if share is not None:
        began = item.config.share_began = item.config.share_began or time.monotonic()
        left = share - (time.monotonic() - began)
        # one that takes longer than a share runs where it is the first of a day
        if min(item.get_closest_marker("nightly").args[0], share) > left:
            pytest.skip(f"{left:.0f} s of the day's share are left, too few; make nightly runs all")


@pytest.fixture(scope="session")
def pool():
    """Four workers for the whole session."""
    workers = WorkerPool(preload=["tests.jobs", "tests.forker"])
    yield workers
    workers.close()


@pytest.fixture(scope="session")
def launcher(tmp_path_factory):
    """A process that has imported the command, and starts it without the seconds that importing takes."""
    place = Place(tmp_path_factory.mktemp("place"))
    yield place
    place.close()


@pytest.fixture
def place(launcher):
    """Where a test runs `python -m harness`; what it left is gone afterwards."""
    yield launcher
    launcher.settle()


@pytest.fixture
def refused(capsys):
    """A function: that a command ends with one sentence, which says `said`; it gives the sentence."""

    def sentence(main, words: list, said: str = "") -> str:
        capsys.readouterr()  # what was told before
        assert main([*map(str, words)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("error: ") and said in told and told.count("\n") == 1, told
        return told

    return sentence


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """One redis-server for all tests that do not kill it."""
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.kill()


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real raw graphs, or a skip that says why."""
    folder = Path(os.environ.get("HALOBENCH_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real graphs at {folder}; set HALOBENCH_DATA to their folder")
    return folder
