"""Replays of many workers: what is put together, and that it takes what it takes one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.replay import collectives, flows
from harness.model.replay.__main__ import main
from harness.model.replay.collectives import lumped, messages
from harness.model.replay.engine import simulate
from harness.model.replay.flows import Flows
from harness.model.replay.program import Begin, Operation, Post, Program, Wait
from harness.model.replay.times import times_of
from tests.recorded import recorded
from tests.replayed import platform, program


def alone(operation: Operation, workers: int) -> Program:
    """An epoch of one operation, which all workers post at once."""
    return Program(
        [[Begin(0), Post(0), Wait(0, operation.name, -1)] for _ in range(workers)], [operation], [0]
    )


RING, ALL_TO_ALL = 16, 24  # workers
SHARE = 2 * (RING - 1) * 32_000_000 // RING


@pytest.mark.parametrize(("most", "operation"), [
    (1, Operation("all_reduce", -1, "ring", {w: {(w + 1) % RING: SHARE} for w in range(RING)})),
    (100, Operation("exchange", 0, "pairs", {
        w: {p: 1_000_000 for p in range(ALL_TO_ALL) if p != w} for w in range(ALL_TO_ALL)})),
])  # fmt: skip
def test_what_is_put_together_takes_what_it_takes_one_by_one(monkeypatch, most, operation):
    """Where one link is as slow as every other, and where those between hosts are the slow ones."""
    workers = len(operation.parts)
    one_by_one = times_of(simulate(alone(operation, workers), platform(workers))).epoch
    monkeypatch.setattr(collectives, "MOST", most)
    together = simulate(alone(operation, workers), platform(workers))
    assert times_of(together).epoch == pytest.approx(one_by_one, rel=0.02)
    (said,) = together.lumps
    assert said.startswith(operation.name)
    assert said.endswith(" as one flow per pair of hosts, or of neighbours in a ring")


@pytest.mark.parametrize("route", ["pairs", "broadcast"])
def test_bytes_between_hosts_are_all_there(monkeypatch, route):
    workers, there = 24, platform(24)
    hosts = there.hosts
    rng = np.random.default_rng(1)
    others = {w: [p for p in range(workers) if p != w] for w in range(workers)}
    if route == "pairs":
        parts = {w: {p: int(rng.integers(1, 9)) for p in others[w]} for w in range(workers)}
    else:
        parts = {w: dict.fromkeys(others[w], 10 + w) for w in range(workers)}
    operation = Operation(route, 0, route, parts)
    assert lumped(operation, there, "direct") is None
    monkeypatch.setattr(collectives, "MOST", 100)
    made = lumped(operation, there, "direct")
    assert len(made) == 3 * 2 + 3 * 8 * 7  # pairs of hosts, and of workers of one host
    sent: dict[tuple[int, int], int] = {}
    for each, sign in ((messages(operation, workers, "direct"), 1), (made, -1)):
        for message in each:
            key = hosts[message.source], hosts[message.target]
            sent[key] = sent.get(key, 0) + sign * message.size
    assert not any(sent.values()) and len(sent) == 9


@given(st.integers(0, 10**6))
@settings(max_examples=20, deadline=None)
def test_many_flows_end_when_they_would_one_by_one(seed):
    rng = np.random.default_rng(seed)
    capacity = rng.uniform(1, 10, 6)
    given = [(float(t), rng.choice(6, 2, replace=False), float(s)) for t, s in
             zip(np.sort(rng.uniform(0, 1, 40)), rng.uniform(1, 20, 40))]  # fmt: skip

    def ends(many: int) -> np.ndarray:
        network, found = Flows(capacity), np.zeros(len(given))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(flows, "MANY", many)
            waiting = [*enumerate(given)]
            while waiting or network.count or network.joining:
                if waiting and waiting[0][1][0] < network.next_end():
                    name, (begun, route, size) = waiting.pop(0)
                    network.add(name, route, size, begun)
                    continue
                moment = network.next_end()
                found[network.end()] = moment
        return found

    exact, near = ends(10**9), ends(4)
    begun = np.array([each[0] for each in given])
    assert (exact > begun).all() and (near > 0).all()
    # A short flow waits for others to begin, some NEAR of what flows usually take; and all do what others do.
    usual = np.median(exact - begun)
    np.testing.assert_allclose(near - begun, exact - begun, rtol=0.05, atol=4 * flows.NEAR * usual)


def test_many_workers_are_replayed_and_it_is_said_how(monkeypatch):
    exact = simulate(program(48, 12, 2, 2), platform(48))
    assert not exact.lumps
    monkeypatch.setattr(collectives, "MOST", 2000)
    monkeypatch.setattr(flows, "MANY", 100)
    near = simulate(program(48, 12, 2, 2), platform(48))
    assert near.lumps == [
        "all_reduce as one flow per pair of hosts, or of neighbours in a ring",
        "flows that begin or end within 0.5% of their duration of one another",
    ]
    assert times_of(near).epoch == pytest.approx(times_of(exact).epoch, rel=0.02)
    for ours, theirs in zip(times_of(near).workers, times_of(exact).workers):
        assert ours.compute == pytest.approx(theirs.compute)


def test_what_is_put_together_is_printed(monkeypatch, tmp_path, capsys):
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    words = [str(run), "cluster=cdfgnn", "per_host=1"]
    assert main(words) == 0 and "put together" not in capsys.readouterr().out
    monkeypatch.setattr(collectives, "MOST", 1)
    assert main(words) == 0
    assert "put together: all_reduce as one flow per pair of hosts" in capsys.readouterr().out
