"""Sylvie equals its paper's equations, epoch by epoch, on random graphs, draws shared; its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import adaqp, sylvie
from tests.oracles import bytes as count
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings

KNOBS = {
    "bits": st.sampled_from([1, 1, 2, 4, 8]),
    "mode": st.sampled_from(["synchronous", "asynchronous", "asynchronous"]),
    "period": st.sampled_from([0, 1, 2, 3, 20]),
    "features": st.sampled_from(["once", "refetch"]),
}
CASES = {**RUNS, "model": st.sampled_from(OPERATORS)}


def trained(pool, knobs, run):
    """Outcome of a run of the system; what every oracle takes by place, and by name."""
    graph, (name, normalisation) = (
        random_graph(run["seed"], vertices=18, directed=run["directed"]),
        run["model"],
    )
    model = {"name": name, "layers": run["layers"], "hidden": 4, "dropout": 0.0}
    how = Settings(model | {"normalisation": normalisation}, epochs=7, seed=run["seed"])
    outcome = systems.run(pool, graph, systems.block("sylvie", **knobs), run["parts"], settings=how)
    data = (graph, outcome.assignment, outcome.weights[0], systems.drawer(how.seed))
    names = dict(model=name, normalisation=normalisation, features=knobs["features"])
    return outcome, data, names | dict(epochs=how.epochs, **how.optimiser)


@settings(max_examples=10)
@given(knobs=st.fixed_dictionaries(KNOBS), run=st.fixed_dictionaries(CASES))
def test_sylvie_equals_its_oracle(pool, knobs, run):
    outcome, data, how = trained(pool, knobs, run)
    systems.assert_trained_alike(outcome, sylvie.train(*data, **how | knobs))


@settings(max_examples=4)
@given(features=KNOBS["features"], run=st.fixed_dictionaries(CASES))
def test_synchronous_with_8_bits_it_is_adaqp_with_8_bits(pool, features, run):
    outcome, data, how = trained(pool, dict(bits=8, mode="synchronous", features=features), run)
    systems.assert_trained_alike(outcome, adaqp.train(*data, bits=8, **how))


@pytest.mark.parametrize("bits, mode, features", [(1, "asynchronous", "refetch"), (4, "synchronous", "once")])
def test_bytes_are_those_of_the_bits_and_two_constants(pool, bits, mode, features):
    """A row of f columns is f bits / 8 bytes, rounded up, and two numbers of 4 bytes, in every epoch, whether
    it is used or dropped; under "once" layer 0 is fetched exact, in the first epoch alone."""
    graph = random_graph(12, vertices=40)
    how = Settings({"name": "gcn", "layers": 3, "hidden": 9, "dropout": 0.0}, dtype="float32", epochs=5)
    block = systems.block("sylvie", bits=bits, mode=mode, period=2, features=features)
    outcome = systems.run(pool, graph, block, 4, settings=how)
    row = np.array({1: [1 + 8, 2 + 8, 2 + 8], 4: [4 * 5, 5 + 8, 5 + 8]}[bits])  # of 5, 9 and 9 columns
    for epoch in range(5):
        want = count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)
        for way in ("forward", "backward"):
            sent = systems.bytes_by_layer(outcome, epoch, way)
            np.testing.assert_array_equal(sent, row * want["rows"][way])
