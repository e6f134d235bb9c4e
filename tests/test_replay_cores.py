"""Threads that share a host's cores in a replay, and batches that threads beside the training make."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm.names import BATCH, STRAGGLE
from harness.comm.recorder import Epoch, Span
from harness.core.cluster import Cluster, Device, Link
from harness.model.replay.cores import Cores
from harness.model.replay.engine import Timeline, simulate
from harness.model.replay.platform import platform_of
from harness.model.replay.program import (
    Aside,
    Begin,
    Beside,
    Operation,
    Post,
    Program,
    Take,
    Wait,
    Work,
    grown,
    held_up,
)
from harness.model.replay.read import program_of
from harness.model.replay.settings import parse
from harness.model.replay.times import critical_path, first_epoch, times_of
from harness.results import writer
from harness.results.reader import Trace
from tests import traces

seconds = st.floats(0.01, 10)


def ends(cores: list[float], jobs: list[tuple[float, int, float, int]]) -> dict[int, float]:
    """When each job (begin, host, seconds, threads) ends."""
    shared, found, waiting = Cores(cores), {}, sorted(enumerate(jobs), key=lambda job: job[1][0])
    while waiting or shared.next_end() < math.inf:
        if waiting and waiting[0][1][0] <= shared.next_end():
            name, (begin, host, lasts, threads) = waiting.pop(0)
            shared.add(host, name, lasts, threads, begin)
        else:
            now = shared.next_end()
            found[shared.end()] = now
    return found


def plainly(cores: float, jobs: list[tuple[float, int, float, int]]) -> dict[int, float]:
    """The same on one host: what each job still lacks, from one change to the next."""
    left = {name: job[2] for name, job in enumerate(jobs)}
    now, found = 0.0, {}
    while left:
        there = [name for name in left if jobs[name][0] <= now]
        later = min((jobs[name][0] for name in left if jobs[name][0] > now), default=math.inf)
        threads = sum(jobs[name][3] for name in there)
        speed = min(1.0, cores / threads) if threads else 1.0
        step = min([later - now, *(left[name] / speed for name in there)])
        for name in there:
            left[name] -= step * speed
        now += step
        for name in [name for name in there if left[name] <= 1e-12]:
            found[name] = now
            del left[name]
    return found


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0, 20), st.just(0), seconds, st.integers(1, 4)), min_size=1, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_threads_have_equal_parts_of_the_cores(cores, jobs):
    found = ends([float(cores)], jobs)
    assert found == pytest.approx(plainly(cores, jobs), rel=1e-6)
    # Nobody's jobs on another host change that.
    other = [(begin, 1, lasts, threads) for begin, _, lasts, threads in jobs]
    both = ends([float(cores), 1.0], jobs + other)
    assert [both[name] for name in range(len(jobs))] == pytest.approx([found[n] for n in range(len(jobs))])


def cluster(hosts: list[int], cores: int | None = None, device_cores: int | None = 1) -> Cluster:
    free = Link(gbytes_per_s=math.inf, latency_us=0)
    devices = [Device(host=host) for host in hosts]
    return Cluster("mine", devices, inside=free, between=free, host_cores=cores, device_cores=device_cores)


def program(workers: int, train: list[float], beside: Beside | None, clock: str = "cpu") -> Program:
    """An epoch of a batch and then work, several times."""
    steps = [Begin(0)]
    for each in train:
        steps += [Take(BATCH, -1)] * (beside is not None) + [Work("compute", "forward", 0, each)]
    made = [] if beside is None else [beside] * workers
    return Program([list(steps) for _ in range(workers)], [], [0], None, made, clock)


def run(made: Program, on: Cluster, **more: int) -> Timeline:
    return simulate(made, platform_of(on, made.workers, **more))


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=8), st.integers(1, 3), st.integers(0, 3))
@settings(max_examples=20, deadline=None)
def test_batches_are_made_ahead_of_the_training(pairs, threads, ahead):
    """With cores for all: a batch is begun once a thread is free and the training is near enough."""
    train, batches = [a for a, _ in pairs], [b for _, b in pairs]
    now, asked, made, free = 0.0, [], [], [0.0] * threads
    for at, lasts in enumerate(train):
        asked.append(now)
        # Which are begun by now or while the training waits: up to `at` + ahead.
        for batch in range(len(made), min(len(batches), at + ahead + 1)):
            thread = free.index(min(free))
            free[thread] = max(free[thread], now) + batches[batch]
            made.append(free[thread])
        now = max(now, made[at]) + lasts
    timeline = run(program(1, train, Beside(batches, threads, ahead)), cluster([0]))
    times = times_of(timeline)
    assert times.epoch == pytest.approx(now)
    assert times.workers[0].compute == pytest.approx(sum(train))
    assert times.workers[0].exposed == pytest.approx(now - sum(train)), "waiting for batches is exposed"
    assert sum(critical_path(timeline).values()) == pytest.approx(now)
    # One core does one thing at a time, and never has nothing to do.
    alone = run(program(1, train, Beside(batches, 1, ahead)), cluster([0], cores=1))
    assert times_of(alone).epoch == pytest.approx(sum(train) + sum(batches))


def test_workers_share_their_hosts_cores_only_in_cpu_seconds():
    on = cluster([0, 0, 1], cores=1)
    shared = run(program(3, [1.0], None), on)
    assert [own.epoch for own in times_of(shared).workers] == pytest.approx([2, 2, 1])
    # Wall seconds hold already what others took from a worker.
    assert times_of(run(program(3, [1.0], None, "wall"), on)).epoch == pytest.approx(1)
    for silent in (cluster([0, 0, 1]), cluster([0, 0, 1], 1, None)):  # as GPUs, which are of no core
        assert times_of(run(program(3, [1.0], None), silent)).epoch == pytest.approx(1)
    assert times_of(run(program(3, [1.0], None), on, cores=1)).epoch == pytest.approx(3), "one machine"


def test_a_device_of_several_cores_is_as_many_threads():
    """Two threads of one device and one beside them on two cores have two thirds of a core each."""
    on = cluster([0], cores=2, device_cores=2)
    # The second batch is begun with the first step of training, and both take a second of each thread.
    timeline = run(program(1, [1.0, 1.0], Beside([0.0, 1.0], 1, 1)), on)
    assert times_of(timeline).epoch == pytest.approx(1.5 + 1.0)
    assert times_of(run(program(1, [1.0], None), on)).epoch == pytest.approx(1)


def test_who_is_held_up_needs_no_core():
    steps = [[Begin(0), Work("rest", STRAGGLE, -1, 1.0)], [Begin(0), Work("compute", "forward", 0, 1.0)]]
    assert times_of(run(Program(steps, [], [0], clock="cpu"), cluster([0, 0], 1))).epoch == pytest.approx(1)
    slower = held_up(Program(steps, [], [0]), 0, 0.0, 3.0)
    assert slower.steps == steps, "a sleep is as long on any device"


def test_the_transports_threads_take_from_the_cores_and_from_nobody_elses_time():
    own = [Begin(0), Post(0), Aside(0.5), Work("compute", "forward", 0, 1.0), Wait(0, "x", 0)]
    made = Program([list(own), list(own)], [Operation("exchange", 0, "pairs", {0: {}, 1: {}})], [0])
    for clock, cores, epoch in (("cpu", 2, 1.5), ("cpu", None, 1.0), ("cpu", 4, 1.0), ("wall", 2, 1.0)):
        # Four threads on two cores: half a second of each takes one, then two are left.
        timeline = run(replace(made, clock=clock), cluster([0, 0], cores))
        assert times_of(timeline).epoch == pytest.approx(epoch)


def test_a_larger_graphs_batches_take_as_much_longer():
    made = program(1, [1.0, 1.0], Beside([0.5, 0.5], 1, 0))
    assert times_of(run(grown(made, 3.0), cluster([0]))).epoch == pytest.approx(9)
    # So does what the transport does for a layer's rows, and not for sums of weights.
    posted = [Begin(0), Post(0), Aside(0.5), Post(1), Aside(0.5)]
    of = [Operation("exchange", 0, "pairs", {0: {}}), Operation("all_reduce", -1, "ring", {0: {}})]
    steps = grown(Program([posted], of, [0]), 3.0).steps[0]
    assert [step.seconds for step in steps if isinstance(step, Aside)] == [1.5, 0.5]
    # Nor for what a layer's batch norm adds up, whose bytes stay as they are.
    of[1] = Operation("all_reduce", 0, "ring", {0: {0: 516}})
    larger = grown(Program([posted], of, [0]), 3.0)
    assert [step.seconds for step in larger.steps[0] if isinstance(step, Aside)] == [1.5, 0.5]
    assert larger.operations[1] == of[1]


def sampled(
    folder: Path, sampler: list[float], ahead: float | None = 0.0, transport: float = 0.0, threads: int = 1
) -> Trace:
    """A run of one worker with two batches per epoch, waited for for 5 ms each, and 10 ms of work after each,
    which posts an operation; `sampler` CPU seconds of the thread beside it, by epoch, and those of the
    transport's threads. In epoch e `ahead` + e batches are begun ahead."""
    traces.prepare(folder, traces.config(gpus=1, epochs=len(sampler)), 4, threads=1)
    out, now = writer.TraceWriter(folder, 0, 0), 100.0
    for e, took in enumerate(sampler):
        made, begin = Epoch(e), now
        for number in range(2):
            posted = ("comm", "kept", 0, now + 0.006, now + 0.007)
            made.spans.append(Span(*posted, bytes=4, peers=(0,), id=f"{e}:{number}", route="own"))
            made.spans.append(Span("wait", BATCH, -1, now, now + 0.005, cpu=0.0, id=""))
            made.spans.append(Span("compute", "forward", 0, now + 0.005, now + 0.015, cpu=0.01, id=""))
            now += 0.015
        made.train, made.cpu = now - begin, 0.02 + took + transport
        made.metrics[-1, "sampler_s"] = took
        if ahead is not None:
            made.metrics[-1, "sampler_ahead"] = ahead + e
            made.metrics[-1, "sampler_threads"] = threads
        out.write(made, loss=1.0, scores=traces.scored(0.5, 0.6, 0.5), peak_rss_bytes=2**20)
    out.close()
    return Trace(traces.close(folder))


def test_a_trace_says_what_its_batches_took(tmp_path):
    trace = sampled(tmp_path / "run", [5.0, 0.01, 0.06], ahead=-0.7)
    _, replayer, _ = parse([str(trace.run_dir), "cluster=cdfgnn", "clock=cpu"])
    made = replayer.program(trace)
    # The first epoch compiles loops: its batches are taken for those of the others. So is what is ahead: 0.3
    # and 1.3, in the mean 0.8, rounded up.
    parts = pytest.approx([0.0175, 0.0175, 0.005, 0.005, 0.03, 0.03])
    assert made.beside == [Beside(parts, 1, 1)]
    names = [type(step).__name__ for step in made.steps[0]]
    assert names == ["Begin", *["Take", "Work", "Post", "Work"] * 2] * 3
    # On its own machine a wait for a batch lasts as it did.
    _, own, _ = parse([str(trace.run_dir)])
    assert times_of(own.replay(trace)).epoch == pytest.approx(0.03)
    # The second epoch's are there when they are asked for; the third's are begun 10 ms before that, one after
    # the other: 20 ms of waiting, 10 of work, 20 of waiting and 10 of work.
    timeline = replayer.replay(trace)
    assert times_of(timeline).epoch == pytest.approx((0.02 + 0.06) / 2)
    assert first_epoch(timeline) < 0.1, "what compiling took is no part of a first epoch"
    several = sampled(tmp_path / "several", [0.04, 0.01], threads=3)
    assert program_of(several, "cpu").beside[0].threads == 3
    with pytest.raises(
        InputError, match="cores=1 are fewer than a device of cluster=mine is made of: give 2"
    ):
        platform_of(cluster([0, 0], 4, 2), 2, cores=1)


def test_what_nobody_else_took_is_the_transports(tmp_path):
    """Of a process's CPU seconds, those of no segment and no sampler; in equal parts from each posting on."""
    trace = sampled(tmp_path / "run", [0.04, 0.01], transport=0.008)
    for clock, parts in (("cpu", [0.004] * 4), ("wall", [])):
        steps = program_of(trace, clock).steps[0]
        assert [step.seconds for step in steps if isinstance(step, Aside)] == pytest.approx(parts)
        assert all(isinstance(steps[at - 1], Post) for at, s in enumerate(steps) if isinstance(s, Aside))
    # Where kernels have threads of their own, nobody knows which were the transport's.
    traces.resolve(trace.run_dir, 0, threads=2)
    steps = program_of(Trace(trace.run_dir), "cpu").steps[0]
    assert not any(isinstance(step, Aside) for step in steps)


def test_a_trace_of_before_says_nothing_of_threads(tmp_path):
    trace = sampled(tmp_path / "run", [0.04, 0.01], ahead=None)
    _, replayer, _ = parse([str(trace.run_dir), "cluster=cdfgnn", "clock=cpu"])
    assert replayer.program(trace).beside == []
    assert times_of(replayer.replay(trace)).epoch == pytest.approx(0.02), "as if batches were there"
