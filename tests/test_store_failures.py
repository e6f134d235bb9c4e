"""What happens to a run when the process that keeps its store or its weights is killed: really doing it."""

import pytest

from tests.redis_server import RedisServer

HELD = ("epochs=60", "checkpoint_every=5", "model.layers=3")


def ends_without_its_server(place, command, kill) -> str:
    """The one sentence with which a run ends whose server `kill` ended, of the run's processes."""
    place.hold.touch()  # it cannot end before the server is killed
    run = place.start(*command)
    run.until_epoch(30)  # where the workers stand still: none is writing a checkpoint, which asks the server
    kill(run.family)
    place.hold.unlink()
    done = run.end()
    assert done.code == 1 and run.survivors() == []
    assert done.err.count("\n") == 1 and "Traceback" not in done.err, done.err
    assert "goes on from the last checkpoint" in done.err
    return done.err


def test_killed_redis_ends_the_run_with_one_sentence_and_the_run_goes_on_bit_for_bit(place, tmp_path):
    server = RedisServer(tmp_path)
    store = f"system.store={server.url}"
    command = (place.more, "system=held_digest", "system.interval=3", store, *HELD)
    said = ends_without_its_server(place, command, lambda family: server.kill())
    assert said.startswith(f"error: the store {server.url} went away in a pu")
    server.start()  # on the same port, and empty
    place.goes_on_bit_for_bit(*command)
    server.kill()


@pytest.mark.nightly(25)
def test_a_killed_parameter_server_ends_the_run_with_one_sentence_and_the_run_goes_on_bit_for_bit(place):
    killed = []

    def kill(family) -> None:
        (server,) = (process for process in family if "harness.comm.server" in process.cmdline())
        server.kill()
        killed.append(server.pid)

    command = (place.more, "system=held_digest_a", "system.order=rotation", "system.interval=2", *HELD)
    said = ends_without_its_server(place, command, kill)
    assert said.startswith(f"error: the parameter server (process {killed[0]}) went away in epoch")
    place.goes_on_bit_for_bit(*command)
