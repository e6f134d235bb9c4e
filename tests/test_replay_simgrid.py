"""Our engine held to SimGrid's model CM02 on random programs and platforms.

SimGrid's module belongs to the system's Python; without one the tests that need it say so.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.cluster import Cluster, Device, Link
from harness.model.replay.collectives import BROADCASTS, Message, messages
from harness.model.replay.engine import Timeline, simulate
from harness.model.replay.platform import Platform, platform_of
from harness.model.replay.program import ALONE, BACK, THERE, Begin, Operation, Post, Program, Step, Wait, Work
from harness.model.replay.times import times_of

# The interpreter that has the module; neither its script's folder nor PYTHONPATH is searched.
INTERPRETER = [os.environ.get("HALOBENCH_SIMGRID", "/usr/bin/python3"), "-I"]
# Without a share for acknowledgements, a bound by TCP's window, and weights by 1 / bandwidth.
CM02 = ["network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0", "network/weight-S:0"]


@pytest.fixture(scope="module")
def module() -> None:
    """A skip where SimGrid is not there; a failure where HALOBENCH_MUST_HAVE asks for it."""
    if subprocess.run([*INTERPRETER, "-c", "import simgrid"], capture_output=True).returncode:
        lacking = f"{INTERPRETER[0]} has no module simgrid"
        assert "simgrid" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), lacking
        pytest.skip(lacking)


def by_simgrid(
    program: Program, platform: Platform, broadcast: str = "ring", options: list[str] = CM02
) -> np.ndarray:
    """`moments` by SimGrid."""
    operations = [
        {"members": sorted(operation.parts), "messages": [told(message, operation) for message in made]}
        for operation in program.operations
        for made in [messages(operation, program.workers, broadcast)]
    ]
    ends = sorted({(m["source"], m["target"]) for each in operations for m in each["messages"]})
    given = {
        "capacity": platform.capacity,
        "paths": [(*pair, platform.path(*pair).links, platform.path(*pair).latency) for pair in ends],
        "steps": [[step_of(step) for step in steps] for steps in program.steps],
        "operations": operations,
        "options": [f"--cfg={option}" for option in options],
    }
    command = [*INTERPRETER, str(Path(__file__).with_name("simgrid_program.py"))]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.array(json.loads(done.stdout))


def told(message: Message, operation: Operation) -> dict[str, Any]:
    names = ("source", "target", "size", "after", "along")
    posts = {message.source, message.target}
    if operation.route in ALONE:
        posts &= operation.parts.keys()
    return {**{name: getattr(message, name) for name in names}, "posts": sorted(posts)}


def step_of(step: Step) -> tuple[str, *tuple[Any, ...]]:
    if isinstance(step, Begin):
        return "begin", step.late
    if isinstance(step, Work):
        return "work", step.seconds
    return ("post", step.operation) if isinstance(step, Post) else ("wait", step.operation, step.tail)


def moments(timeline: Timeline) -> np.ndarray:
    """Where workers' epochs begin, and their work and waits end, worker by worker."""
    return np.array(
        [
            moment
            for begins, epochs in zip(timeline.begins, timeline.segments)
            for begin, segments in zip(begins, epochs)
            for moment in (begin, *(segment.end for segment in segments))
        ]
    )


def operations(rng: np.random.Generator, P: int) -> Iterator[Operation]:
    """Some of every route, of random sizes."""

    def size() -> int:
        return int(rng.integers(1, 40) * 100_000)

    for number in range(int(rng.integers(3, 7))):
        kind = rng.choice(["pairs", "broadcast", "ring", "take", "server"])
        if kind == "pairs":
            parts = {w: {p: size() for p in range(P) if p != w and rng.random() < 0.7} for w in range(P)}
        elif kind == "broadcast":
            root = int(rng.integers(P))
            n = size()
            parts = {w: {p: n for p in range(P) if p != w} if w == root else {} for w in range(P)}
        elif kind == "ring":
            share = size()
            parts = {w: {(w + 1) % P: share} for w in range(P)}
        elif kind == "take":
            w = int(rng.integers(P))
            parts = {w: {p: size() for p in range(P) if p != w}}
        else:
            parts = {int(rng.integers(P)): {THERE: size(), BACK: size()}}
        yield Operation(kind, number, kind, parts)


def random_program(rng: np.random.Generator, P: int) -> Program:
    """Two epochs of work and operations in one order on all workers, which wait for an operation at once, at
    the end of its epoch or of the next one."""
    epochs, made = 2, list[Operation]()
    steps: list[list[Step]] = [[] for _ in range(P)]
    due: dict[int, list[int]] = {}  # by epoch, the operations waited for at its end
    for epoch in range(epochs):
        first, late = len(made), rng.random(P) * 1e-3
        made += operations(rng, P)
        numbers = range(first, len(made))
        at_once = {number for number in numbers if rng.random() < 0.5}
        for number in numbers:
            if number not in at_once:
                due.setdefault(min(epoch + int(rng.integers(2)), epochs - 1), []).append(number)
        for w in range(P):
            steps[w].append(Begin(epoch, late[w]))
            for number in numbers:
                steps[w].append(Work("compute", "forward", 0, float(rng.random() * 5e-3)))
                if w in made[number].parts:
                    steps[w].append(Post(number))
                    if number in at_once:
                        steps[w].append(Wait(number, made[number].name, 0, 1e-4))
            steps[w] += [
                Wait(number, made[number].name, 0, 1e-4)
                for number in due.get(epoch, ())
                if w in made[number].parts
            ]
    return Program(steps, made, list(range(epochs)))


def random_platform(rng: np.random.Generator, P: int, latencies: tuple[float, float]) -> Platform:
    """latencies   microseconds inside a host and between hosts"""
    drawn = rng.integers(0, int(rng.integers(1, P + 1)), P)
    hosts = sorted(np.unique(drawn, return_inverse=True)[1].tolist())  # numbered without a gap

    def rate() -> float:
        return float(rng.uniform(0.2, 4.0))

    cluster = Cluster(
        name="random",
        devices=[Device(host=host) for host in hosts],
        inside=Link(gbytes_per_s=rate(), latency_us=latencies[0]),
        between=Link(gbytes_per_s=rate(), latency_us=latencies[1]),
        bridge=Link(gbytes_per_s=rate() if rng.random() < 0.5 else None, latency_us=0),
    )
    return platform_of(cluster, P)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.nightly(2)) for s in range(4, 30))]
)
def test_every_moment_is_simgrids_where_latencies_are_equal(module, seed):
    rng = np.random.default_rng(seed)
    P, latency = int(rng.integers(2, 7)), float(rng.uniform(1, 200))
    program, platform = random_program(rng, P), random_platform(rng, P, (latency, latency))
    broadcast = str(rng.choice(BROADCASTS))
    ours = simulate(program, platform, broadcast)
    apart = np.abs(moments(ours) - by_simgrid(program, platform, broadcast))
    assert apart.max() < 0.02 * times_of(ours).epoch


def test_the_default_model_is_another_and_unequal_latencies_move_little(module):
    """As docs/replay.md says; were SimGrid not asked, nothing would differ."""
    rng = np.random.default_rng(4)
    program, platform = random_program(rng, 5), random_platform(rng, 5, (20.0, 200.0))
    ours = simulate(program, platform)
    apart = np.abs(moments(ours) - by_simgrid(program, platform))
    assert 0 < apart.max() < 0.1 * times_of(ours).epoch
    assert by_simgrid(program, platform, options=[]).max() > 1.02 * moments(ours).max()
