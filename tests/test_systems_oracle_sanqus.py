"""SANCUS^q equals its oracle, epoch by epoch, on random graphs, draws shared; its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import sanqus
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.oracles.split import blocks_of
from tests.systems import Settings
from tests.test_systems_oracle import flags_of, sancus_knobs

CODED = {"bits": st.sampled_from([2, 4, 8, 32]), "gradients": st.sampled_from(["coded", "coded", "exact"])}
CASES = {**RUNS, "model": st.sampled_from(OPERATORS), "method": st.sampled_from(["block", "random"])}


def settings_of(run) -> Settings:
    name, normalisation = run["model"]
    model = {"name": name, "layers": run["layers"], "hidden": 4, "dropout": 0.0}
    return Settings(model | {"normalisation": normalisation}, epochs=7, seed=run["seed"])


def trained(pool, name, knobs, run):
    """The graph and the outcome of a run."""
    graph = random_graph(run["seed"], vertices=18, directed=run["directed"])
    block, how = systems.block(name, **knobs), settings_of(run)
    return graph, systems.run(pool, graph, block, run["parts"], run["method"], how)


@settings(max_examples=10)
@given(knobs=sancus_knobs(), coded=st.fixed_dictionaries(CODED), run=st.fixed_dictionaries(CASES))
def test_sanqus_equals_its_oracle(pool, knobs, coded, run):
    (graph, outcome), how, knobs = (
        trained(pool, "sanqus", knobs | coded, run),
        settings_of(run),
        knobs | coded,
    )
    data = (graph, outcome.assignment, outcome.weights[0], systems.drawer(how.seed))
    named = dict(model=how.model["name"], normalisation=how.model["normalisation"], epochs=how.epochs)
    want = sanqus.train(*data, **named, **knobs, **how.optimiser)
    systems.assert_trained_alike(outcome, want)
    first = 1 if knobs["features"] == "once" else 0
    got = flags_of(outcome, run["parts"], how.epochs, run["layers"])
    np.testing.assert_array_equal(got[:, first:], np.asarray(want.active)[:, first:])


@settings(max_examples=3)
@given(knobs=sancus_knobs(), gradients=CODED["gradients"], run=st.fixed_dictionaries(CASES))
def test_with_32_bits_it_is_sancus(pool, knobs, gradients, run):
    coded = {"bits": 32, "gradients": gradients}
    outcomes = [trained(pool, "sanqus", knobs | coded, run)[1], trained(pool, "sancus", knobs, run)[1]]
    assert outcomes[0].losses == outcomes[1].losses
    for epoch in range(7):
        for way in ("forward", "backward"):
            sent = [systems.bytes_by_layer(outcome, epoch, way) for outcome in outcomes]
            np.testing.assert_array_equal(*sent)


def row_bytes(width: int, bits: int) -> int:
    return 4 * width if bits == 32 else -(-width * bits // 8) + 2 * 4


@pytest.mark.parametrize("bits, gradients, features", [
    (2, "coded", "once"), (4, "exact", "kept"), (4, "coded", "kept"), (8, "coded", "refetch"),
    (32, "coded", "refetch"),
])  # fmt: skip
def test_bytes_are_those_of_the_bits_and_two_constants(pool, bits, gradients, features):
    """A broadcast of n rows to P - 1 others: each row of f columns is f bits / 8 bytes, rounded up, and two
    numbers of 4 bytes. Blocks take turns. Layer 0 is exact but for "refetch", and broadcast once."""
    graph, parts = random_graph(12, vertices=37), 3
    how = Settings({"name": "gcn", "layers": 3, "hidden": 9, "dropout": 0.0}, dtype="float32", epochs=4)
    knobs = dict(bits=bits, gradients=gradients, features=features, staleness="epoch_adaptive", bound=1)
    outcome = systems.run(pool, graph, systems.block("sanqus", **knobs), parts, settings=how)
    sizes, widths = [len(rows) for rows in blocks_of(outcome.assignment)], outcome.widths
    for epoch in range(4):
        due = sum(n for j, n in enumerate(sizes) if epoch == 0 or j % 2 == epoch % 2)
        forward = [due * row_bytes(width, bits) for width in widths[:-1]]
        if features != "refetch":
            forward[0] = 37 * 4 * widths[0] if epoch == 0 else 0
        backward = [37 * row_bytes(width, 32 if gradients == "exact" else bits) for width in widths[1:]]
        if features == "once":
            backward[0] = 0
        for way, want in (("forward", forward), ("backward", backward)):
            sent = systems.bytes_by_layer(outcome, epoch, way)
            np.testing.assert_array_equal(sent, (parts - 1) * np.array(want), err_msg=way)
