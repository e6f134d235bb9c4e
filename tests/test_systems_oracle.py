"""Inherited by every system: with its knobs on it equals its paper's equations, epoch by epoch, on random
graphs.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests import systems
from tests.oracles import bytes as count
from tests.oracles import halo, sancus
from tests.oracles.samples import OPERATORS, random_graph
from tests.systems import Settings

SEEDS = st.integers(0, 10_000)


@pytest.mark.parametrize("model", ["gcn", "sage"])
@pytest.mark.parametrize("name", ["zero_halo", "local"])
@examples(max_examples=10)
@given(seed=SEEDS, parts=st.integers(2, 4), directed=st.booleans())
def test_controls_equal_their_oracle(pool, name, model, seed, parts, directed):
    graph = random_graph(seed, vertices=18, directed=directed)
    settings = Settings(model=systems.small(model), seed=seed % 100)
    outcome = systems.run(pool, graph, systems.block(name), parts, settings=settings)
    oracle = halo.zero_halo if name == "zero_halo" else halo.local
    systems.assert_trained_alike(
        outcome,
        systems.history(oracle, graph, outcome, settings, model=model),
    )


@st.composite
def sancus_knobs(draw) -> dict:
    staleness = draw(st.sampled_from(["epoch_fixed", "epoch_adaptive", "variation_gap"]))
    bound = draw(
        st.sampled_from([0.001, 0.005, 0.02, 0.1, 0.3]) if staleness == "variation_gap" else st.integers(0, 3)
    )
    return {
        "staleness": staleness,
        "bound": bound,
        "phase": draw(st.sampled_from(["stagger", "paper"])),
        "norm": draw(st.sampled_from(["relative", "max", "fro", "mean"])),
        "flags": draw(st.sampled_from(["layer", "worker"])),
        "features": draw(st.sampled_from(["refetch", "kept", "once"])),
        "clip": draw(st.sampled_from([math.inf, 0.05, 0.005])),
        "clip_scale": draw(st.sampled_from(["sqrt", "inverse"])),
        "warmup": draw(st.sampled_from([1, 1, 2, 3])),
    }


def flags_of(outcome, parts: int, epochs: int, layers: int) -> np.ndarray:
    """active[e, l, j] as the workers reported them; layers that are fetched once report none."""
    active = np.zeros((epochs, layers, parts), bool)
    for j, worker in enumerate(outcome.workers):
        for e in range(epochs):
            for (layer, name), value in worker["metrics"][e].items():
                if name == "active":
                    active[e, layer, j] = value == 1.0
    return active


@given(
    knobs=sancus_knobs(),
    seed=SEEDS,
    parts=st.integers(2, 4),
    directed=st.booleans(),
    layers=st.integers(2, 3),
    operator=st.sampled_from(OPERATORS),
)
def test_sancus_equals_its_oracle(pool, knobs, seed, parts, directed, layers, operator):
    graph, (model, normalisation) = random_graph(seed, vertices=18, directed=directed), operator
    settings = Settings(
        model=systems.small(model, layers, normalisation=normalisation), epochs=7, seed=seed % 100
    )
    outcome = systems.run(pool, graph, systems.block("sancus", **knobs), parts, settings=settings)
    how = dict(model=model, normalisation=normalisation)
    want = systems.history(sancus.train, graph, outcome, settings, **how, **knobs)
    systems.assert_trained_alike(outcome, want)
    first = 1 if knobs["features"] == "once" else 0
    got = flags_of(outcome, parts, settings.epochs, layers)
    np.testing.assert_array_equal(got[:, first:], np.asarray(want.active)[:, first:])


def test_sancus_bytes_follow_its_flags(pool):
    settings = Settings(dtype="float32", epochs=6)
    knobs = {"staleness": "variation_gap", "bound": 0.02, "features": "refetch"}
    outcome = systems.run(
        pool, random_graph(6, vertices=32), systems.block("sancus", **knobs), 4, settings=settings
    )
    active = flags_of(outcome, 4, 6, 2)
    assert not active.all(), "nothing was skipped: the bound tests nothing"
    for epoch in range(6):
        want = count.sancus(active[epoch], outcome.assignment, outcome.widths, features="refetch")
        got = {"forward": np.zeros(2, int), "backward": np.zeros(2, int), "flags": np.zeros(2, int)}
        for (layer, direction, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose != "weights":
                got["flags" if purpose == "flags" else direction][layer] += size
        for key in got:
            np.testing.assert_array_equal(got[key], want[key], err_msg=key)


def test_sancus_official_is_the_published_schedule(pool):
    """Layer 0's blocks once, its deltas always; layer 1 in epochs 0 to 50, the first 51, and in every second
    one after."""
    outcome = systems.run(
        pool, random_graph(4, vertices=20), systems.block("sancus/official"), 3, settings=Settings(epochs=57)
    )
    active = flags_of(outcome, 3, 57, 2)
    np.testing.assert_array_equal(active[:, 1, 0], [1] * 51 + [0, 1, 0, 1, 0, 1])
    assert all(((0, "forward", "blocks") in outcome.sent(e)) == (e == 0) for e in range(57))
    assert all((0, "backward", "deltas") in outcome.sent(e) for e in range(57))
    unclipped = {"clip": math.inf, "clip_scale": "sqrt"}
    assert (
        systems.block("sancus/official").items()
        >= {
            "staleness": "epoch_fixed",
            "bound": 1,
            "warmup": 51,
            **unclipped,
        }.items()
    )
