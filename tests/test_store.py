"""The representation store: each worker's halo as its owners pushed it, counted, and nothing left behind."""

import socketserver
import sys
import threading

import numpy as np
import pytest
import torch

from harness.base.errors import InputError, typed
from harness.comm import redis_store
from harness.comm.backend import PASSWORD, Layout, check_address
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.comm.store import Store
from harness.data.partition.assign import assign
from systems.digest import Digest
from tests import jobs, systems
from tests.oracles.samples import random_graph
from tests.redis_server import RedisServer


def shards_of(vertices=40, parts=3):
    graph = random_graph(1, vertices=vertices)
    return systems.shards_of(graph, assign(graph, "random", parts, 0), parts)


def opened(address: str) -> Store:
    """That of a run's only worker: one layer, three columns wide."""
    (shard,) = shards_of(parts=1)
    return Store(address, Comm(0, 1, torch.device("cpu"), Recorder()), shard, {1: 3})


def expected(shard, layer, stamp):
    return (shard.halo + 1000 * layer + 10_000 * stamp).astype(np.float32)


@pytest.mark.parametrize("kept", ["shared", "redis in small blocks"])
def test_each_worker_pulls_its_halo_as_it_was_pushed_and_every_byte_is_counted(pool, request, kept):
    address = "shared" if kept == "shared" else request.getfixturevalue("redis_server").url
    job = jobs.through_small_blocks if "small" in kept else jobs.through_store
    shards = shards_of()
    for shard, answer in zip(shards, pool.run(job, 3, address, per_worker=shards)):
        for stamp in (8, 9):
            for layer, width in ((1, 3), (2, 5)):
                for pulled, of in (("pulled", stamp), ("late", stamp - 1)):
                    rows = answer[pulled][stamp][layer]
                    assert rows.shape == (shard.num_halo, width)
                    np.testing.assert_array_equal(
                        rows.numpy(), expected(shard, layer, of)[:, None].repeat(width, 1)
                    )
        np.testing.assert_array_equal(answer["newest"][:, 0], expected(shard, 1, 9))
        assert set(answer["stamps"]) == {9}
        # A second store that was given back what the first one held goes on where that was.
        np.testing.assert_array_equal(answer["again"][:, 0], shard.halo)
        np.testing.assert_array_equal(answer["again_late"][:, 0], expected(shard, 2, 8))
        assert answer["nbytes"] == 40 * (3 + 5) * 4, "eq. 7: a row per vertex and layer"
        assert_counted(shard, answer["sent"], answer["spans"])
    if kept != "shared":
        server = redis_store.redis.Redis.from_url(address)
        assert server.keys("halobench:*") == [], "who leaves takes back what it wrote"


def test_what_is_written_or_read_on_a_server_is_kept_for_another_day(redis_server, monkeypatch):
    """A worker's index is written once, and read in every round."""
    monkeypatch.setattr(redis_store, "draw_token", lambda comm: "lasting")
    rows = np.arange(8, dtype=np.float32).reshape(4, 2)
    layout = Layout(0, [4], [np.array([1, 3])], {1: 2}, 2, np.dtype(np.float32))
    store = redis_store.Redis(redis_server.url, layout, comm=None)
    store.write(1, 0, rows, stamp=7)
    keys = store.server.keys("halobench:lasting:*")
    for key in keys:
        store.server.expire(key, 60)
    store.write(1, 0, rows, stamp=8)
    out = np.empty((2, 2), np.float32)
    assert store.read(1, 0, 8, out) == 8
    np.testing.assert_array_equal(out, rows[[1, 3]])
    left = [store.server.ttl(key) for key in keys]
    store.server.delete(*keys)
    assert len(left) == 3 and min(left) > redis_store.EXPIRY - 60


def assert_counted(shard, sent, spans) -> None:
    """A push and two pulls: the bytes of each, and a span in flight and a wait for each."""
    want = {(1, "forward", "push", -1): [shard.num_inner, shard.num_inner * 12]}
    for owner, count in enumerate(shard.halo_counts.tolist()):
        if count:
            want[2, "forward", "pull", owner] = [count, count * 20]
            want[1, "forward", "pull", owner] = [count, count * 12]
            want[1, "forward", "stamps", owner] = [0, 8]
    assert sent == want
    flights, waits = ([s for s in spans if s.kind == kind] for kind in ("comm", "wait"))
    assert [s.name for s in flights] == ["push", "pull", "pull"]
    assert [w.id for w in waits] == [f.id for f in flights]
    assert all(f.start <= w.start and f.end <= w.end for f, w in zip(flights, waits))
    assert sum(s.bytes for s in flights) == sum(size for _, size in sent.values())


def test_an_exception_in_the_background_is_raised_where_it_is_waited_for(pool):
    for said in pool.run(jobs.failing_push, 2, "shared", per_worker=shards_of(parts=2)):
        assert said.startswith("ValueError: could not broadcast")


def test_a_pull_never_mixes_two_pushes(pool):
    answers = pool.run(jobs.racing, 3, 400, per_worker=shards_of(vertices=600))
    assert all(answer["torn"] == 0 for answer in answers)
    assert max(answer["seen"] for answer in answers[1:]) > 3, "the readers saw it change"


def test_who_leaves_takes_no_keys_of_others(redis_server):
    """Nor those of another worker whose block has this worker's number."""
    store = opened(redis_server.url)
    store.push(1, torch.ones(40, 3), 7).wait()
    prefix = store.backend.prefix
    others = {f"{prefix}:1:2:0:0", f"{prefix}:1:20", f"{prefix}:index:2:1:0:0"}
    server = redis_store.redis.Redis.from_url(redis_server.url)
    for key in others:
        server.set(key, "", ex=60)
    store.close()
    assert set(map(bytes.decode, server.keys(f"{prefix}:*"))) == others
    server.delete(*others)


@pytest.mark.parametrize(
    "address, shown",
    [
        ("redis://:hunter2@127.0.0.1:1", "redis://***@127.0.0.1:1"),
        ("rediss://:hunt://er2?@h:1", "rediss://***@h:1"),
        ("redis://h:1?db=1&password=hunter2", "redis://h:1"),
        ("redis://h:1?password=hunter2@h", "redis://***@h"),
        ("unix://:hunter2@/run/redis", "unix://***@/run/redis"),
        ("user:hunter2@h:1", "redis://***@h:1"),
    ],
)
def test_an_address_with_a_password_is_refused_without_repeating_it(address, shown):
    with pytest.raises(InputError) as refused:
        check_address(address)
    assert str(refused.value) == (
        f"store={shown} holds a password, which would be kept with the run; leave it out and set the"
        " environment variable HALOBENCH_REDIS_PASSWORD"
    )


@pytest.mark.parametrize("address", ["redis://h:1", "rediss://user@h:1/2", "unix:///run/redis?db=1"])
def test_an_address_without_one_is_not(address):
    check_address(address)


def test_without_its_client_a_server_is_refused_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    said = r'^system.store=redis://h:1 needs redis: pip install "halobench\[redis\]"$'
    with pytest.raises(InputError, match=said):
        typed(Digest, {"store": "redis://h:1"}, "system")


REFUSES = f"refuses the password in {PASSWORD}; correct it, or unset it if the server has none$"


class Unguarded(socketserver.StreamRequestHandler):
    """The answer of a server without a password to a client that gives one."""

    def handle(self):
        self.rfile.readline()
        self.wfile.write(
            b"-ERR AUTH <password> called without any password configured for the default user. "
        )
        self.wfile.write(b"Are you sure your configuration is correct?\r\n")


def test_a_password_for_a_server_that_has_none_is_not_asked_for_again(monkeypatch):
    monkeypatch.setenv(PASSWORD, "hunter2")
    with socketserver.TCPServer(("127.0.0.1", 0), Unguarded) as server:
        threading.Thread(target=server.handle_request).start()
        with pytest.raises(InputError, match=REFUSES):
            opened(f"redis://127.0.0.1:{server.server_address[1]}")


@pytest.fixture
def guarded(tmp_path, monkeypatch):
    """A server that asks for the password hunter2."""
    monkeypatch.delenv(PASSWORD, raising=False)
    server = RedisServer(tmp_path, "hunter2")
    yield server
    server.kill()


def test_a_password_comes_from_the_environment(guarded, monkeypatch):
    asks = f"store={guarded.url} asks for a password; set the environment variable {PASSWORD}"
    with pytest.raises(InputError, match=f"^{asks}$"):
        opened(guarded.url)
    monkeypatch.setenv(PASSWORD, "another")
    with pytest.raises(InputError, match=REFUSES):
        opened(guarded.url)
    monkeypatch.setenv(PASSWORD, "hunter2")
    store = opened(guarded.url)
    store.push(1, torch.ones(40, 3), 7).wait()
    assert store.contents()[1][7].tolist() == [[1.0] * 3] * 40
    store.close()


def test_a_password_is_stored_nowhere(place, guarded):
    """A run that uses one, and one that was given one where it does not belong."""
    place.derive(
        "guarded",
        "digest",
        f"import os\nfrom systems.digest import Digest\nos.environ['{PASSWORD}'] = 'hunter2'\n"
        "class Guarded(Digest):\n    pass\n",
    )
    command = (place.more, "system=guarded", "epochs=3", "keep_checkpoint=true")
    done = place.run(*command, f"system.store={guarded.url}")
    assert done.code == 0, done.err
    refused = place.run(*command, f"system.store={guarded.url.replace('//', '//:hunter2@')}")
    assert refused.code == 2 and "holds a password" in refused.err
    assert "hunter2" not in done.out + done.err + refused.out + refused.err
    kept = [path for path in place.results.rglob("*") if path.is_file()]
    assert len(place.runs()) == 1 and len(kept) > 5
    assert not [path for path in kept if b"hunter2" in path.read_bytes()]


def test_an_address_where_nothing_answers_gets_one_sentence():
    said = r"store=redis://127.0.0.1:1 does not answer \(.*refused.*\); start redis-server there"
    with pytest.raises(InputError, match=said):
        opened("redis://127.0.0.1:1")
