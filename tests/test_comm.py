"""The transport: right rows to the right place, gradients home again, every byte counted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from harness.data.partition.assign import assign
from harness.data.partition.build import build_shards
from harness.dev.conformance.pool import MEMORY
from tests import jobs, systems
from tests.conftest import ROOT
from tests.oracles.samples import random_graph


@pytest.mark.parametrize("transport", sorted({MEMORY, "sockets"}))
def test_exchange_brings_each_halo_row_and_returns_its_gradient_while_local_work_runs(pool, transport):
    graph = random_graph(1, vertices=40, directed=True)
    shards = list(build_shards(graph, assign(graph, "random", 4, 0), 4))
    answers = pool.run(jobs.exchange_once, 4, 3, per_worker=shards, transport=transport)
    uses = np.zeros(40)
    for shard, answer in zip(shards, answers):
        np.testing.assert_allclose(answer["halo"][:, 0], shard.halo)
        np.testing.assert_allclose(answer["halo"][:, 2], shard.halo + 0.02)
        uses[shard.halo] += 1
    for shard, answer in zip(shards, answers):
        np.testing.assert_allclose(answer["gradient"], np.repeat(2 + uses[shard.inner][:, None], 3, axis=1))
        assert answer["counted_outside"] == 0, "nothing is counted outside the train clock"
        for direction, rows in (("forward", shard.send_counts), ("backward", shard.halo_counts)):
            sent = {peer: tuple(v) for (_, way, _, peer), v in answer["sent"].items() if way == direction}
            assert sent == {p: (int(n), int(n) * 3 * 8) for p, n in enumerate(rows) if n}
        posted, waits = (
            sorted((s for s in answer["spans"] if s.kind == kind), key=lambda s: s.start)
            for kind in ("comm", "wait")
        )
        assert len(posted) == 2 and {s.id for s in posted} == {s.id for s in waits}
        for operation, wait in zip(posted, waits):
            assert operation.start < wait.start and operation.end <= wait.end + 0.05


def test_counted_bytes_are_what_the_loopback_interface_saw():
    """Within 5 %, on a loopback interface that these workers have to themselves."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.loopback"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    answer = json.loads(told.stdout)
    if not answer["alone"]:
        pytest.skip("this user may not make a network of its own, and a shared one counts others' traffic")
    assert answer["seen"] == pytest.approx(answer["counted"], rel=0.05)


@pytest.mark.parametrize("size", [1, 3])
def test_counts_and_ragged_tensors_travel(pool, size):
    for rank, answer in enumerate(pool.run(jobs.gather_ragged, size)):
        peers = [p for p in range(size) if p != rank]
        assert answer["told"] == [10 * p + rank if p != rank else 0 for p in range(size)]
        assert answer["parts"] == [[2 * i for i in range(p + 1)] for p in range(size)]
        assert answer["slots"] == [[10.0 * p + slot for p in peers] for slot in (0, 1)]
        assert answer["bytes"] == len(peers) * (8 + 8 + 8 * (rank + 1)), (
            "two counts and the tensor, to every peer"
        )


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
