"""The event simulation: closed forms of collectives, sharing, waiting, and where an epoch's time goes;
max-min fair sharing of links, and many flows, of which those near each other are put together.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.cluster import Cluster, Device, Link
from harness.model.replay import flows
from harness.model.replay.engine import simulate
from harness.model.replay.flows import HOPS, NONE, Flows, max_min
from harness.model.replay.platform import instant, platform_of
from harness.model.replay.program import BACK, THERE, Begin, Operation, Post, Program, Wait, Work, grown
from harness.model.replay.times import critical_path, times_of
from tests.replayed import platform, program
from tests.test_replay_simgrid import random_program

B, L = 1e9, 1e-3  # bytes per second, seconds


def cluster(
    hosts: list[int], inside: float = 1.0, between: float = 1.0, bridge: float | None = None
) -> Cluster:
    """Bandwidths in GB/s; a millisecond of latency within a host and between hosts."""
    return Cluster(
        name="mine",
        devices=[Device(host=host) for host in hosts],
        inside=Link(gbytes_per_s=inside, latency_us=1e6 * L),
        between=Link(gbytes_per_s=between, latency_us=1e6 * L),
        bridge=Link(gbytes_per_s=bridge),
    )


def one(workers: int, operation: Operation, work: list[float] | None = None) -> Program:
    """One epoch in which all work, post one operation and wait for it."""
    steps = [
        [Begin(0), Work("compute", "forward", 0, (work or [0.0] * workers)[w]), Post(0), Wait(0, "x", 0)]
        if w in operation.parts
        else [Begin(0)]
        for w in range(workers)
    ]
    return Program(steps, [operation], [0])


def seconds(operation: Operation, hosts: list[int], broadcast: str = "ring", **links: float) -> float:
    platform = platform_of(cluster(hosts, **links), len(hosts))
    return times_of(simulate(one(len(hosts), operation), platform, broadcast)).epoch


def exchange(size: int, workers: int) -> Operation:
    parts = {w: {p: size for p in range(workers) if p != w} for w in range(workers)}
    return Operation("exchange", 0, "pairs", parts)


def all_reduce(size: int, workers: int) -> Operation:
    share = 2 * (workers - 1) * size // workers
    return Operation("all_reduce", -1, "ring", {w: {(w + 1) % workers: share} for w in range(workers)})


workers = st.integers(2, 9)
sizes = st.integers(1, 1000).map(lambda k: k * 2520)  # which all numbers of workers divide


@given(workers, sizes)
@settings(max_examples=10, deadline=None)
def test_an_operation_takes_the_time_of_its_shape(P, n):
    """As the formulas of `harness.model.replay.collectives` say."""
    assert seconds(exchange(n, P), [0] * P) == pytest.approx(L + (P - 1) * n / B)
    # Each host sends to the others over one link, whatever the devices in it could do.
    assert seconds(exchange(n, P), [*range(P)], inside=100.0) == pytest.approx(L + (P - 1) * n / B)
    assert seconds(all_reduce(n, P), [0] * P) == pytest.approx(2 * (P - 1) * (L + n / P / B), rel=1e-6)
    root = Operation("broadcast", 0, "broadcast", {w: {} for w in range(P)})
    root.parts[1] = {p: n for p in range(P) if p != 1}
    assert seconds(root, [0] * P, "ring") == pytest.approx((P - 1) * L + n / B)
    assert seconds(root, [0] * P, "direct") == pytest.approx(L + (P - 1) * n / B)


def test_a_broadcast_goes_at_the_rate_of_broadcasts():
    n = 10**6
    made = cluster([0, 0, 1])
    made.inside.broadcast_gbytes_per_s, made.between.broadcast_gbytes_per_s = 0.5, 2.0
    platform = platform_of(made, 3)
    root = Operation("broadcast", 0, "broadcast", {0: {1: n, 2: n}, 1: {}, 2: {}})
    direct = times_of(simulate(one(3, root), platform, "direct")).epoch
    assert direct == pytest.approx(L + n / (0.5 * B))  # the nearer one is the slower
    pairs = times_of(simulate(one(3, exchange(n, 3)), platform)).epoch
    assert pairs == pytest.approx(L + 2 * n / B)  # host 1's link takes two rows of n


def test_what_is_taken_or_asked_of_a_server_needs_no_peer():
    n = 10**6
    taken = Operation("pull", 0, "take", {0: {1: n, 2: n}})
    assert seconds(taken, [0, 0, 0]) == pytest.approx(L + 2 * n / B)
    asked = Operation("update", -1, "server", {2: {THERE: n, BACK: 3 * n}})
    assert seconds(asked, [0, 0, 1], inside=50.0) == pytest.approx(2 * L + 4 * n / B)
    assert seconds(Operation("push", 0, "own", {0: {0: n}}), [0]) == 0.0


def test_a_long_ring_without_latency_is_no_deep_recursion():
    program = one(150, all_reduce(300, 150))  # 298 rounds
    assert times_of(simulate(program, instant(150))).epoch == 0.0
    # A broadcast whose first hop is the slowest: all others are through when it arrives.
    parts = {0: dict.fromkeys(range(1, 1101), 8), **{worker: {} for worker in range(1, 1101)}}
    slow = Operation("broadcast", 0, "broadcast", parts)
    assert seconds(slow, [0] + [1] * 1100, between=1e-9) >= 8.0


def test_devices_of_a_host_share_its_bridge_and_hosts_their_link():
    n = 10**6
    pair = Operation("exchange", 0, "pairs", {0: {1: n}, 1: {0: n}, 2: {3: n}, 3: {2: n}})
    assert seconds(pair, [0, 0, 0, 0]) == pytest.approx(L + n / B)
    assert seconds(pair, [0, 0, 0, 0], bridge=1.0) == pytest.approx(L + 4 * n / B)
    apart = Operation("exchange", 0, "pairs", {0: {2: n}, 1: {3: n}, 2: {}, 3: {}})
    assert seconds(apart, [0, 0, 1, 1]) == pytest.approx(L + 2 * n / B)
    assert seconds(apart, [0, 1, 2, 3]) == pytest.approx(L + n / B)


def test_a_message_is_paid_for_only_where_it_is_waited_for():
    n = 10**6
    steps = [
        [Begin(0), Post(0), Work("compute", "forward", 0, 0.5), Wait(0, "exchange", 0)],
        [Begin(0), Work("rest", "pack", 0, 0.1), Post(0), Wait(0, "exchange", 0)],
    ]
    program = Program([list(own) for own in steps], [exchange(n, 2)], [0])
    timeline = simulate(program, platform_of(cluster([0, 0]), 2))
    first, second = times_of(timeline).workers
    assert (first.epoch, first.compute, first.exposed, first.idle) == pytest.approx((0.5, 0.5, 0.0, 0.0))
    assert first.comm == pytest.approx(0.1 + L + n / B), "in flight from its posting on"
    assert second.exposed == pytest.approx(L + n / B) and second.rest == pytest.approx(0.1)
    assert second.behind == pytest.approx(0.5 - 0.1 - L - n / B)
    assert critical_path(timeline) == {"worker 0: forward, layer 0": pytest.approx(0.5)}


def test_waiting_for_a_slower_worker_is_idle_and_for_bytes_is_exposed():
    n = 2 * 10**6
    program = one(2, exchange(n, 2), [0.1, 0.3])
    timeline = simulate(program, platform_of(cluster([0, 0]), 2))
    first, second = times_of(timeline).workers
    assert (first.idle, first.exposed) == pytest.approx((0.2, L + n / B))
    assert (second.idle, second.exposed) == pytest.approx((0.0, L + n / B))
    assert critical_path(timeline) == {
        "worker 1: forward, layer 0": pytest.approx(0.3),
        "exchange, layer 0: worker 1 to worker 0, inside host 0": pytest.approx(L + n / B),
    }


def block(size: int, workers: int) -> Operation:
    """A broadcast of worker 0."""
    parts = {0: dict.fromkeys(range(1, workers), size), **{worker: {} for worker in range(1, workers)}}
    return Operation("broadcast", 0, "broadcast", parts)


@pytest.mark.parametrize("broadcast", ["ring", "direct"])
def test_a_block_is_waited_for_where_only_others_that_it_goes_to_are_late(broadcast):
    n, late = 2 * 10**6, 0.3
    timeline = simulate(one(4, block(n, 4), [0, 0, 0, late]), platform_of(cluster([0] * 4), 4), broadcast)
    root, second, third, last = times_of(timeline).workers
    # Once each block on worker 1's way is there it goes on: around the ring its own hop too.
    lasts = 2 * L + n / B if broadcast == "ring" else L + 2 * n / B
    assert (second.idle, second.exposed) == pytest.approx((0.0, lasts))
    whose = third if broadcast == "ring" else root  # sends to the late one
    assert (whose.idle, whose.exposed) == pytest.approx((late, L + n / B))
    assert (last.idle, last.exposed) == pytest.approx((0.0, L + n / B))


def test_a_block_that_goes_around_a_ring_is_on_the_critical_path_where_it_is_slowest():
    n = 2 * 10**6
    # Between two hosts of two workers each. A hop behind a slower one is through when that is.
    for between, hops in ((1.0, (L + n / B, L, L)), (0.1, (L, L + n / (0.1 * B)))):
        timeline = simulate(one(4, block(n, 4)), platform_of(cluster([0, 0, 1, 1], between=between), 4))
        where = ("inside host 0", "host 0 to host 1", "inside host 1")
        assert critical_path(timeline) == {
            f"broadcast, layer 0: worker {hop} to worker {hop + 1}, {where[hop]}": pytest.approx(lasts)
            for hop, lasts in enumerate(hops)
        }


def test_what_is_in_flight_when_an_epoch_ends_goes_on_in_the_next():
    n = 10**8  # 0.1 s
    late = [Wait(0, "exchange", 0), Work("compute", "backward", 0, 0.01)]
    steps = [[Begin(0), Post(0), Work("compute", "forward", 0, 0.04), Begin(1), *late] for _ in range(2)]
    timeline = simulate(Program(steps, [exchange(n, 2)], [0, 1]), platform_of(cluster([0, 0]), 2))
    assert times_of(timeline).epoch == pytest.approx(L + n / B - 0.04 + 0.01)
    path = critical_path(timeline)
    assert path["worker 0: backward, layer 0"] == pytest.approx(0.01)
    assert [name for name in path if name.endswith("begun in an earlier epoch")]


@given(st.integers(0, 10**6), st.integers(2, 5), st.booleans())
@settings(max_examples=20, deadline=None)
def test_every_second_is_somewhere_and_a_faster_network_is_never_slower(seed, P, apart):
    program = random_program(np.random.default_rng(seed), P)
    hosts = [*range(P)] if apart else [0] * P
    slow = simulate(program, platform_of(cluster(hosts), P))
    for worker in times_of(slow).workers:
        parts = worker.compute + worker.rest + worker.exposed + worker.idle
        assert worker.epoch == pytest.approx(parts) and min(worker.exposed, worker.idle) >= -1e-12
    begun = min(begins[1] for begins in slow.begins)  # of the epoch after the first
    ended = max(slow.ends(worker, 1) for worker in range(P))
    assert sum(critical_path(slow).values()) == pytest.approx(ended - begun, abs=1e-9)
    free = simulate(program, platform_of(cluster(hosts, math.inf, math.inf), P))
    assert times_of(free).epoch <= times_of(slow).epoch * (1 + 1e-9)


def test_a_program_that_waits_for_ever_is_one_sentence():
    program = one(2, exchange(8, 2))
    program.steps[1] = [Begin(0)]
    with pytest.raises(InputError, match="worker 0 would wait for ever for exchange, layer 0, which workers"):
        simulate(program, platform_of(cluster([0, 0]), 2))
    program.steps[0] = [Begin(0), Begin(1)]
    with pytest.raises(InputError, match=r"workers \[0\] begin an epoch that the others do not"):
        simulate(program, platform_of(cluster([0, 0]), 2))


def test_a_platform_says_what_it_lacks_and_what_it_assumes():
    lacking = cluster([0, 0, 1])
    lacking.between.gbytes_per_s = None
    with pytest.raises(InputError, match="how fast its links between are: give cluster.between.gbytes_per_s"):
        platform_of(lacking, 3)
    assert platform_of(lacking, 2).assumed == [], "two workers of one host need no link between hosts"
    lacking.inside.latency_us = None
    assert platform_of(lacking, 2).assumed == ["inside.latency_us=0"]
    lacking.inside.gbytes_per_s = None
    alone = platform_of(lacking, 1)
    assert alone.path(0, 1).links == ()
    assert alone.assumed == ["inside.gbytes_per_s=inf", "inside.latency_us=0"]
    with pytest.raises(
        InputError, match=r"cluster=mine has devices \(3\); give another cluster, or a run of fewer"
    ):
        platform_of(lacking, 4)
    with pytest.raises(InputError, match="per_host=2 is too large: host 0 of cluster=.* has 1 device; give"):
        platform_of(cluster([0, 1, 2]), 3, per_host=2)
    assert platform_of(cluster([0, 0, 1]), 3, per_host=2).hosts == [0, 0, 1], "the last needs one alone"
    with pytest.raises(InputError, match="per_host=1 is too small for 3 workers on the 2 hosts"):
        platform_of(cluster([0, 0, 1]), 3, per_host=1)
    assert platform_of(cluster([0, 0, 1, 1]), 2, per_host=1).hosts == [0, 1]
    assert platform_of(cluster([0, 0, 1, 1]), 3).hosts == [0, 0, 1]


def test_a_larger_graph_has_more_work_and_rows_and_the_same_weights():
    steps = [
        [Begin(0), Work("compute", "forward", 0, 0.1), Post(0), Post(1),
         Wait(0, "x", 0), Wait(1, "y", -1), Work("compute", "optimiser", -1, 0.5)]
        for _ in range(2)
    ]  # fmt: skip
    program = Program(steps, [exchange(1000, 2), all_reduce(600, 2)], [0])
    assert grown(program, 1) is program
    larger = grown(program, 2.5)
    assert [step.seconds for step in larger.steps[0] if isinstance(step, Work)] == [0.25, 0.5]
    assert larger.operations[0].parts == {0: {1: 2500}, 1: {0: 2500}}
    assert larger.operations[1] == program.operations[1]


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


def test_a_bridge_adds_its_latency_once_inside_a_host_and_twice_between_hosts():
    made = cluster([0, 0, 1], bridge=1.0)
    made.bridge.latency_us = 1e6 * L / 4
    platform = platform_of(made, 3)
    assert [platform.path(0, other).latency for other in (0, 1, 2)] == pytest.approx([0.0, 1.25 * L, 1.5 * L])
