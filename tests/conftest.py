from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.compiling import take_turns
from tests.launching import Place
from tests.pool import WorkerPool
from tests.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent

# Examples go to worker processes; a slow machine must not turn a slow example into a failure.
settings.register_profile("halobench", deadline=None, suppress_health_check=[HealthCheck.too_slow,
                          HealthCheck.function_scoped_fixture], derandomize=True, max_examples=20)
settings.load_profile("halobench")
take_turns()


@pytest.fixture(scope="session")
def pool():
    """Four workers for the whole session."""
    workers = WorkerPool()
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
