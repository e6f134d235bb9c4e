"""Replays of many workers: what is put together, and that it takes what it takes one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.replay import flows
from harness.model.replay.engine import simulate
from harness.model.replay.flows import Flows
from harness.model.replay.times import times_of
from tests.replayed import platform, program


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


def test_many_workers_are_replayed_and_it_is_known_how(monkeypatch):
    exact = simulate(program(48, 12, 2, 2), platform(48))
    assert not exact.merged
    monkeypatch.setattr(flows, "MANY", 100)
    near = simulate(program(48, 12, 2, 2), platform(48))
    assert near.merged
    assert times_of(near).epoch == pytest.approx(times_of(exact).epoch, rel=0.02)
    for ours, theirs in zip(times_of(near).workers, times_of(exact).workers):
        assert ours.compute == pytest.approx(theirs.compute)
