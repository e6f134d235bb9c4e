"""Two hosts of two workers each, started by torchrun: the same training as on one host, what refuses, and
what is said when a host is lost.
"""

import json
import secrets
import shutil
import time
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from harness.results import resolved
from harness.results.reader import Trace
from tests import jobs
from tests.hosts import WAIT, Command, hosts  # noqa: F401
from tests.launching import losses
from tests.redis_server import executable

PORT = "6399"
FOUR = ("workers=4", "epochs=6", "evaluate.every=3", "checkpoint_every=3")

CACHED = ("system.rapa=false", "system.capacity=20", "system.features=refetch")


def prepared(place, *words: str) -> list[Path]:
    """Folders of the runs of a sweep, prepared, in its order."""
    done = place.run("-m", *words, "launch=prepare")
    assert done.code == 0, done.err
    return [Path(line.split()[-1]) for line in done.out.splitlines() if line.startswith("torchrun ")]


def holding(folder: Path) -> list[str]:
    """What is in the files of a folder, at any depth."""
    return [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]


def trained(pool, run_dir: Path) -> Path:
    """A copy of a prepared run, trained by the workers of this host over sockets."""
    copy = run_dir.with_name(f"{run_dir.name}-alone")
    shutil.copytree(run_dir, copy)
    pool.run(jobs.work, 4, copy, transport="sockets")
    return copy


def until_checkpoint(run_dir: Path, first: Command, second: Command) -> None:
    """Return once a run that is going on can be resumed."""
    deadline = time.monotonic() + WAIT
    while not (run_dir / "checkpoints" / "latest").exists():
        going = first.process.poll() is None and time.monotonic() < deadline
        assert going, first.said + second.said
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def secret(monkeypatch) -> str:
    """Of the runs of hosts that share no folder, as their user sets it on each."""
    made = secrets.token_hex(32)
    monkeypatch.setenv("HALOBENCH_SECRET", made)
    return made


def test_two_hosts_train_as_one_or_say_why_not(place, pool, redis_server, hosts, secret):  # noqa: F811
    """Host 1 sees no folder of host 0: it gets the run and its shards, and gives back its traces."""
    words = ("--port", PORT, "--bind", hosts.address(0), "--protected-mode", "no", "--save", "")
    hosts.start(0, executable(), *words, "--dir", str(hosts.scratch))
    stores = redis_server.url, f"redis://{hosts.address(0)}:{PORT}"
    first_runs = prepared(place, "system=vanilla,sancus,cdfgnn", *FOUR)
    of_digest = prepared(place, "system=digest", *FOUR, f"system.store={','.join(stores)}")
    # Workers of one host share CaPGNN's global tier, and each host has its own.
    of_capgnn = prepared(place, "system=capgnn", *FOUR, "system.hosts=2", *CACHED)
    alone = [trained(pool, run) for run in (*first_runs, of_digest[0], *of_capgnn)]
    runs = [*first_runs, of_digest[1], *of_capgnn]
    refused = [
        *prepared(place, "system=vanilla", *FOUR, "transport=memory"),
        *prepared(place, "system=digest_a", *FOUR),
    ]
    (long,) = prepared(place, "system=vanilla", "workers=4", "epochs=1000000", "progress=auto")
    first, second = hosts.train("tests.host_worker", *map(str, [*runs, *refused, long]), apart=place.folder)
    until_checkpoint(long, first, second)
    second.kill()
    assert first.end() != 0
    for one, both in zip(alone, runs):
        assert_frame_equal(losses(one), losses(both), check_exact=True)
        assert not (both / "stream").exists() and json.loads((both / "summary.json").read_text())["final"]
        machines = Trace(both).environment["hosts"]
        assert [each["workers"] for each in machines] == [[0, 1], [2, 3]]
        assert Trace(both).environment["cores"] == sum(each["cores"] for each in machines)
    told = f"run {len(runs)}: transport=memory but 2 of 4 workers were started elsewhere; give"
    assert told in first.said
    for command in (first, second):
        refusal = "memory is shared by the workers of one host only; give store=redis://HOST:PORT"
        assert command.said.count(f"run {len(runs) + 1}: {refusal}\n") == 2
    assert f"{long}: 4 workers on 2 hosts (2 + 2), on cpu" in first.said
    lost = {line for line in first.said.splitlines() if line.startswith("error: ")}
    assert lost and all(" lost a peer " in line and "GLOO_SOCKET_IFNAME=eth0" in line for line in lost)
    for said in (first.said, second.said, *holding(place.folder), *holding(hosts.apart)):
        assert secret not in said
    # What host 1 had of runs that ended is gone; it keeps what it was refused, or cut off from.
    assert len(list(hosts.apart.glob("**/config.yaml"))) == len([*refused, long])


@pytest.mark.nightly(150)
def test_a_run_whose_host_was_lost_goes_on_from_what_each_host_has(place, pool, hosts):  # noqa: F811
    (run_dir,) = prepared(place, "system=vanilla", "workers=4", "epochs=400", "evaluate.every=100")
    alone = trained(pool, run_dir)
    first, second = hosts.train("harness.run.worker", str(run_dir), apart=place.folder)
    until_checkpoint(run_dir, first, second)
    second.kill()
    assert first.end() != 0 and not (run_dir / "summary.json").exists()
    for command in hosts.train("harness.run.worker", str(run_dir), apart=place.folder):
        assert command.end() == 0, command.said
    assert len(resolved.read(run_dir)["attempts"]) == 2
    assert_frame_equal(losses(alone), losses(run_dir), check_exact=True)
