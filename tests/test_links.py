"""Two hosts whose link is bad, or of which one lacks the secret: bits as without, or one sentence on each in
time. Workers are started by torchrun, or by themselves where the store's port is not torchrun's.
"""

import shutil
import sys
import time
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from tests import jobs
from tests.hosts import WAIT, Command, Hosts, badly_linked, hosts  # noqa: F401
from tests.launching import losses
from tests.test_hosts import FOUR, prepared, secret, trained, until_checkpoint  # noqa: F401

LONG = ("workers=4", "epochs=1000000", "checkpoint_every=3")
SLOW = 20  # seconds that a slow machine may take beside what is waited for


def until(true, command: Command) -> None:
    deadline = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < deadline and command.process.poll() is None, command.said
        time.sleep(0.02)


def errors(command: Command) -> set[str]:
    """What a host's workers say before they end."""
    return {line for line in command.said.splitlines() if line.startswith("error: ")}


def by_themselves(place: Hosts, run_dir: Path) -> list[Command]:
    """A worker on each of two hosts, as srun starts them."""
    meeting = "WORLD_SIZE=2", f"MASTER_ADDR={place.address(0)}", "MASTER_PORT=29513"
    words = sys.executable, "-m", "harness.run.worker", str(run_dir)
    return [place.start(rank, "env", f"RANK={rank}", *meeting, *words) for rank in range(2)]


@pytest.mark.nightly(120)
def test_a_link_that_loses_delays_and_reorders_changes_no_bit(place, pool, badly_linked):  # noqa: F811
    runs = prepared(place, "system=vanilla,sancus,pipegcn", *FOUR)
    alone = [trained(pool, run) for run in runs]
    for command in badly_linked.train("tests.host_worker", *map(str, runs), apart=place.folder):
        assert command.end() == 0, command.said
    assert badly_linked.link.lost > 10 and badly_linked.link.overtaken > 100
    for one, both in zip(alone, runs):
        assert_frame_equal(losses(one), losses(both), check_exact=True)


@pytest.mark.nightly(120)
def test_a_link_that_stays_down_ends_both_hosts_within_patience(place, badly_linked):  # noqa: F811
    (run,) = prepared(place, "system=vanilla", *LONG, "patience=30")
    both = badly_linked.train("harness.run.worker", str(run))
    until_checkpoint(run, *both)
    badly_linked.link.loss, cut = 1.0, time.monotonic()
    for command in both:
        assert command.end() != 0
        assert any("no worker has made progress for patience=30 s" in line for line in errors(command))
    assert time.monotonic() - cut < 30 + SLOW


@pytest.mark.nightly(60)
def test_a_host_without_the_secret_is_named_by_both(place, hosts, monkeypatch):  # noqa: F811
    monkeypatch.delenv("HALOBENCH_SECRET")
    (run,) = prepared(place, "system=vanilla", "workers=2", "rendezvous=120")
    first, second = hosts.train("harness.run.worker", str(run), apart=place.folder, workers=1)
    assert first.end() != 0 and second.end() != 0
    assert all("HALOBENCH_SECRET" in line and "host " in line for line in errors(first) | errors(second))
    assert errors(first) and errors(second), first.said + second.said
    assert not (hosts.apart / run.relative_to(place.folder) / "config.yaml").exists()


@pytest.mark.nightly(150)
@pytest.mark.parametrize("silent", [{0, 1}, {1}], ids=["both", "host 1"])
def test_a_link_that_is_down_before_workers_meet_ends_both_hosts(place, badly_linked, silent):  # noqa: F811
    """No frame of a silent host comes out, and nobody is told."""
    (run,) = prepared(place, "system=vanilla", "workers=2", "rendezvous=15")
    badly_linked.link.cut = frozenset(silent)
    said = []
    for command in by_themselves(badly_linked, run):
        assert command.end() == 1
        said += errors(command)
        assert "Traceback" not in command.said
    first, second = said
    assert "worker 0 (host " in first and "came there within rendezvous=15 s" in first
    assert "worker 1 (host " in second and "could not reach the store" in second


@pytest.mark.nightly(90)
def test_a_link_that_comes_back_in_time_changes_no_bit(place, pool, badly_linked):  # noqa: F811
    (run,) = prepared(place, "system=vanilla", *FOUR[1:], "workers=2", "rendezvous=120")
    alone = run.with_name(f"{run.name}-alone")
    shutil.copytree(run, alone)
    pool.run(jobs.work, 2, alone, transport="sockets")
    badly_linked.link.cut = frozenset((0, 1))
    both = by_themselves(badly_linked, run)
    until(lambda: badly_linked.link.lost > 5, both[1])  # it has asked more than once
    badly_linked.link.cut = frozenset()
    for command in both:
        assert command.end() == 0, command.said
    assert_frame_equal(losses(alone), losses(run), check_exact=True)
