"""Max-min fair sharing: nobody over a link's capacity, everybody stopped by a full link, no link idle; and
many flows, of which those near each other are put together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.model.replay import flows
from harness.model.replay.engine import simulate
from harness.model.replay.flows import HOPS, NONE, Flows, max_min
from harness.model.replay.times import times_of
from tests.replayed import platform, program

LINKS = 6


@st.composite
def networks(draw) -> tuple[list[list[int]], np.ndarray]:
    """Routes of distinct links, and the links' capacities over nine decades."""
    routes = draw(
        st.lists(st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=HOPS, unique=True), max_size=12)
    )
    capacity = draw(st.lists(st.floats(1e-3, 1e6), min_size=LINKS, max_size=LINKS))
    return routes, np.array(capacity)


def padded(routes: list[list[int]]) -> np.ndarray:
    made = np.full((len(routes), HOPS), NONE, np.int32)
    for row, route in zip(made, routes):
        row[: len(route)] = route
    return made


@given(networks())
@settings(max_examples=100, deadline=None)
def test_rates_are_max_min_fair(network):
    routes, capacity = network
    rates = max_min(padded(routes), capacity)
    load = np.zeros(LINKS)
    for route, rate in zip(routes, rates):
        load[route] += rate
    assert (load <= capacity * (1 + 1e-9)).all(), "no link carries more than its capacity"
    for route, rate in zip(routes, rates):
        # A full link on which nobody has more: this flow can have more only from one that has no more.
        most = {link: max(r for other, r in zip(routes, rates) if link in other) for link in route}
        full = [link for link in route if load[link] >= capacity[link] * (1 - 1e-9)]
        assert any(rate >= most[link] * (1 - 1e-9) for link in full), "every flow has a bottleneck"


@given(
    st.lists(st.tuples(st.integers(0, LINKS - 1), st.integers(1, 10**9), st.floats(0, 10)), max_size=12),
    st.lists(st.floats(1e3, 1e9), min_size=LINKS, max_size=LINKS),
)
@settings(max_examples=50, deadline=None)
def test_a_link_in_use_is_used_wholly_and_every_flow_ends_once(given_flows, capacity):
    """Work-conserving: flows over one link each are through when the link has carried all bytes that came, as
    a queue is that never rests while there is work."""
    network, ended = Flows(capacity), {}

    def end_up_to(now: float) -> None:
        while (network.count or network.joining) and network.next_end() <= now:
            when = network.next_end()
            for name in network.end():
                assert name not in ended
                ended[name] = when

    arrivals = sorted(enumerate(given_flows), key=lambda each: each[1][2])
    for name, (link, size, begin) in arrivals:
        end_up_to(begin)
        network.add(name, [link], size, begin)
    end_up_to(np.inf)
    assert ended.keys() == set(range(len(given_flows)))
    for link in range(LINKS):
        busy = 0.0  # until when the link is at work
        for _, (over, size, begin) in arrivals:
            if over == link:
                busy = max(busy, begin) + size / capacity[link]
        last = max((ended[name] for name, (over, _, _) in arrivals if over == link), default=0.0)
        assert last == pytest.approx(busy, rel=1e-6)


def test_flows_that_are_nearly_through_late_in_a_run_end():
    """A remaining time that is lost in the digits of the time of day must not keep a flow for ever."""
    network = Flows([1e9])
    network.add(0, [0], 1, 1e6)
    assert network.next_end() >= 1e6 and network.end() == [0] and not network.count


def test_many_workers_are_replayed_and_it_is_known_how(monkeypatch):
    exact = simulate(program(24, 6, 2, 2), platform(24))
    assert not exact.merged
    monkeypatch.setattr(flows, "MANY", 40)
    near = simulate(program(24, 6, 2, 2), platform(24))
    assert near.merged
    assert times_of(near).epoch == pytest.approx(times_of(exact).epoch, rel=0.02)
    for ours, theirs in zip(times_of(near).workers, times_of(exact).workers):
        assert ours.compute == pytest.approx(theirs.compute)
        assert ours.epoch == pytest.approx(theirs.epoch, rel=0.05)
