"""Every byte is counted, and named with the peer that it goes to."""

import multiprocessing
import os
from collections import Counter

import pytest

from tests import loopback, systems
from tests.oracles.samples import random_graph


def test_counted_bytes_are_what_the_loopback_interface_saw(pool):
    """Within 5 %, on a loopback interface that these workers have to themselves."""
    context = multiprocessing.get_context("forkserver")  # the pool's, which has imported what workers need
    ours, theirs = context.Pipe()
    alone = context.Process(target=loopback.measure, args=(theirs,))
    alone.start()
    theirs.close()
    told = ours.recv()  # EOFError where it has failed
    alone.join()
    if told is None:
        lacking = "this user may not make a network of its own, and a shared one counts others' traffic"
        assert "netns" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), lacking
        pytest.skip(lacking)
    counted, seen = told
    assert seen == pytest.approx(counted, rel=0.05)


@pytest.mark.parametrize(
    ("name", "knobs", "routes"),
    [
        ("sancus", {}, {"broadcast", "ring"}),
        ("digest", {"interval": 2}, {"pairs", "take", "own", "ring"}),
        ("digest_a", {"order": "rotation", "interval": 2}, {"pairs", "take", "own", "server"}),
        ("distdgl", {}, {"take", "ring"}),
        ("capgnn", {"global_capacity": 8}, {"pairs", "take", "own", "ring"}),
    ],
)
def test_operations_say_how_many_bytes_go_to_each_peer(pool, name, knobs, routes):
    """What all operations of an epoch name, by peer, is what was counted of it, by peer."""
    graph = random_graph(1, vertices=60)
    outcome = systems.run(pool, graph, systems.block(name, **knobs), 3, settings=systems.Settings(epochs=3))
    seen = set()
    for worker in outcome.workers:
        for sent, (_, spans) in zip(worker["sent"], worker["spans"]):
            named, counted = Counter(), Counter()
            for span in (span for span in spans if span.kind == "comm"):
                seen.add(span.route)
                assert sum(span.peer_bytes) == (0 if span.route == "own" else span.bytes)
                assert span.route in ("server", "own") or len(span.peers) == len(span.peer_bytes)
                if span.route == "server":
                    named[-1] += sum(span.peer_bytes)
                elif span.route == "own" and span.name == "push":  # a put is not counted
                    named[-1] += span.bytes
                else:
                    named.update(dict(zip(span.peers, span.peer_bytes)))
            for (_, _, purpose, peer), (_, size) in sent.items():
                # capgnn's ids travel before training, and are counted in epoch 0
                counted[peer] += size if (name, purpose) != ("capgnn", "ids") else 0
            assert +named == +counted
    assert seen == routes
