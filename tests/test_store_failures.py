"""What happens to a run when its store, or a worker beside its store, is killed: really doing it."""

from __future__ import annotations

import os
import signal

import pytest

from tests.memory import exchanges_through_memory, shared_memory
from tests.redis_server import RedisServer


def test_killed_redis_ends_the_run_with_one_sentence_and_the_run_goes_on_bit_for_bit(place, tmp_path):
    server = RedisServer(tmp_path)
    command = (
        place.more,
        "system=held_digest",
        "system.interval=3",
        f"system.store={server.url}",
        "epochs=60",
        "checkpoint_every=5",
        "model.layers=3",
    )
    place.hold.touch()  # it cannot end before the server is killed
    run = place.start(*command)
    run.until_epoch(10)
    server.kill()
    place.hold.unlink()
    done = run.end()
    assert done.code == 1 and run.survivors() == []
    assert done.err.count("\n") == 1 and "Traceback" not in done.err, done.err
    assert (
        done.err.startswith(f"error: the store {server.url} went away in a pu")
        and "goes on from the last checkpoint" in done.err
    )
    server.start()  # on the same port, and empty
    place.goes_on_bit_for_bit(*command)
    server.kill()


def test_a_killed_worker_leaves_no_shared_memory(place):
    run = place.start("system=digest", "epochs=1000000", "model.layers=3")
    run.until_epoch(2)
    mapped = {path for process in run.family for path in shared_memory(process)}
    assert len(mapped) == 2  # a file per worker
    assert sum(map(exchanges_through_memory, run.family)) == 2
    run.family[0].kill()
    assert run.end().code == 128 + signal.SIGKILL
    assert run.survivors() == [] and not any(map(os.path.exists, mapped))


@pytest.mark.nightly(25)
def test_a_killed_parameter_server_ends_the_run_with_one_sentence_and_the_run_goes_on_bit_for_bit(place):
    command = (
        place.more,
        "system=held_digest_a",
        "system.order=rotation",
        "system.interval=2",
        "epochs=60",
        "checkpoint_every=5",
        "model.layers=3",
    )
    place.hold.touch()
    run = place.start(*command)
    run.until_epoch(10)
    (server,) = (process for process in run.family if "harness.comm.server" in process.cmdline())
    server.kill()
    place.hold.unlink()
    done = run.end()
    assert done.code == 1 and run.survivors() == []
    assert done.err.count("\n") == 1 and "Traceback" not in done.err, done.err
    assert done.err.startswith(f"error: the parameter server (process {server.pid}) went away in epoch")
    assert "goes on from the last checkpoint" in done.err
    place.goes_on_bit_for_bit(*command)
