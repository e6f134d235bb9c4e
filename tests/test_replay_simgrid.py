"""`engine=simgrid`: our engine held to SimGrid's model CM02 on random programs and platforms.

SimGrid's module belongs to the system's Python; without one the tests that need it say so.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator

import numpy as np
import pytest

from harness.check import InputError
from harness.cluster.config import Cluster, Device, Link
from harness.replay import engine_simgrid as simgrid
from harness.replay.__main__ import main
from harness.replay.collectives import BROADCASTS, REDUCTIONS, Shapes
from harness.replay.critical import critical_path
from harness.replay.engine import Timeline, simulate
from harness.replay.platform import Platform, platform_of
from harness.replay.program import BACK, THERE, Begin, Operation, Post, Program, Step, Wait, Work
from harness.replay.times import times_of
from tests.test_replay import APART, recorded


@pytest.fixture(scope="module")
def module() -> None:
    """A skip where SimGrid is not there; a failure where HALOBENCH_MUST_HAVE asks for it."""
    try:
        simgrid.interpreter()
    except InputError as error:
        assert "simgrid" not in os.environ.get("HALOBENCH_MUST_HAVE", ""), str(error)
        pytest.skip(str(error))


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


def random_program(rng: np.random.Generator, P: int, epochs: int = 2) -> Program:
    made: list[Operation] = []
    steps: list[list[Step]] = [[] for _ in range(P)]
    for epoch in range(epochs):
        first, late = len(made), rng.random(P) * 1e-3
        made += operations(rng, P)
        waited = rng.random(len(made) - first) < 0.5  # at once, or at the end of the epoch
        for w in range(P):
            steps[w].append(Begin(epoch, late[w]))
            later = []
            for number in range(first, len(made)):
                steps[w].append(Work("compute", "forward", 0, float(rng.random() * 5e-3)))
                if w in made[number].parts:
                    steps[w].append(Post(number))
                    wait = Wait(number, made[number].name, 0, 1e-4)
                    (steps[w] if waited[number - first] else later).append(wait)
            steps[w] += later
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


def apart(ours: Timeline, theirs: Timeline) -> float:
    """How far the ends of segments lie apart at most, as a share of the longest epoch."""
    ends = [
        [segment.end for own in timeline.segments for epoch in own for segment in epoch]
        for timeline in (ours, theirs)
    ]
    return float(np.abs(np.subtract(*ends)).max()) / times_of(ours).epoch


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(s, marks=pytest.mark.nightly(2)) for s in range(4, 30))]
)
def test_every_moment_is_simgrids_where_latencies_are_equal(module, seed):
    rng = np.random.default_rng(seed)
    P, latency = int(rng.integers(2, 7)), float(rng.uniform(1, 200))
    program, platform = random_program(rng, P), random_platform(rng, P, (latency, latency))
    shapes = Shapes(str(rng.choice(BROADCASTS)), str(rng.choice(REDUCTIONS)))
    ours, theirs = simulate(program, platform, shapes), simgrid.simulate(program, platform, shapes)
    assert apart(ours, theirs) < 0.02
    assert times_of(theirs).epoch == pytest.approx(times_of(ours).epoch, rel=0.02)
    # What a path is made of may hang on which of two equal messages came first; its sum does not.
    paths = [sum(critical_path(timeline).values()) for timeline in (ours, theirs)]
    assert paths[1] == pytest.approx(paths[0], rel=0.02)


def test_the_default_model_is_another_and_unequal_latencies_move_little(module):
    """As docs/replay.md says; were SimGrid not asked, nothing would differ."""
    rng = np.random.default_rng(4)
    program, platform = random_program(rng, 5), random_platform(rng, 5, (20.0, 200.0))
    ours = simulate(program, platform)
    assert 0 < apart(ours, simgrid.simulate(program, platform)) < 0.1
    assert times_of(simgrid.simulate(program, platform, model="default")).epoch > times_of(ours).epoch * 1.02


def test_a_program_that_never_ends_is_one_sentence(module):
    steps = [[Begin(0), Post(0), Wait(0, "exchange", 0)], [Begin(0)]]
    program = Program(steps, [Operation("exchange", 0, "pairs", {0: {1: 5}, 1: {0: 5}})], [0])
    platform = random_platform(np.random.default_rng(0), 2, (1.0, 1.0))
    with pytest.raises(InputError, match="did not come to the end of the program.*engine=own says which"):
        simgrid.simulate(program, platform)


@pytest.fixture
def nowhere(monkeypatch):
    """No interpreter has the module."""
    monkeypatch.setenv(simgrid.INTERPRETER, "/no/python")
    simgrid.interpreter.cache_clear()
    yield
    simgrid.interpreter.cache_clear()


@pytest.mark.parametrize("words, refusal", [
    (["cluster=hosts/10g", "engine=simgrid"], "needs SimGrid's Python module, which /no/python"),
    (["engine=simgrid"], "engine=simgrid is for described clusters"),
    (["cluster=hosts/10g", "engine=simgird"], 'engine="simgird" is not known; did you mean "simgrid"?'),
])  # fmt: skip
def test_an_engine_that_cannot_be_had_is_refused_in_one_sentence(nowhere, capsys, tmp_path, words, refusal):
    assert main([str(tmp_path), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and refusal in said and said.count("\n") == 1


def test_the_childs_imports_are_its_own(module, tmp_path, monkeypatch):
    """Neither PYTHONPATH nor the program's folder, which has a platform.py, shadows what it imports."""
    (tmp_path / "simgrid.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "json.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    simgrid.interpreter.cache_clear()
    assert simgrid.interpreter()
    rng = np.random.default_rng(0)
    program, platform = random_program(rng, 2), random_platform(rng, 2, (5.0, 5.0))
    assert isinstance(simgrid.simulate(program, platform), Timeline)


def test_the_command_names_who_timed_it(module, tmp_path, capsys):
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    epochs = []
    for engine in ("own", "simgrid"):
        assert main([str(run), *APART, f"engine={engine}", "--csv", str(tmp_path / f"{engine}.csv")]) == 0
        assert ("timed by simgrid" in capsys.readouterr().out) == (engine == "simgrid")
        with open(tmp_path / f"{engine}.csv") as file:
            epochs.append(float(next(csv.DictReader(file))["epoch_s"]))
    assert epochs[1] == pytest.approx(epochs[0], rel=1e-6)
