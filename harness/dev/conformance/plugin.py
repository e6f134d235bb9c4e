"""The pytest plugin: options that say which system, and the fixtures that the checks run over.

pytest -p harness.dev.conformance.plugin --pyargs harness.dev.conformance.checks --check "system=refresh"
"""

import shlex

import pytest

from harness.dev.conformance.pool import WorkerPool
from harness.dev.conformance.subject import Subject, subject


def pytest_addoption(parser):
    group = parser.getgroup("halobench")
    group.addoption("--check", metavar="WORDS", help='a system and its knobs, as "system=refresh"')
    group.addoption("--check-config-dir", metavar="FOLDER", help="a folder with a system/NAME.yaml in it")


@pytest.fixture(scope="session")
def checked(pytestconfig) -> Subject:
    """The system that is checked."""
    words = shlex.split(pytestconfig.getoption("--check") or "")
    return subject(words, pytestconfig.getoption("--check-config-dir"))


@pytest.fixture(scope="session")
def workers():
    """Four processes for the whole session."""
    pool = WorkerPool()
    yield pool
    pool.close()
