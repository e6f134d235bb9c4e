"""SuperGNN equals its paper's equations, epoch by epoch, on random graphs, covers shared; its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import supergnn
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings
from tests.test_systems_oracle_lean import least

KNOBS = {
    "bits": st.sampled_from([2, 4, 8, 16, 32]),
    "features": st.sampled_from(["once", "refetch"]),
}
ROWS = st.sampled_from(["all", "needed"])
METHOD = st.sampled_from(["random", "metis"])


@settings(max_examples=10)
@given(
    knobs=st.fixed_dictionaries(KNOBS),
    rows=ROWS,
    method=METHOD,
    operator=st.sampled_from(OPERATORS),
    **RUNS,
)
def test_supergnn_equals_its_oracle(pool, knobs, rows, method, operator, seed, parts, directed, layers):
    graph, (name, normalisation) = random_graph(seed, vertices=18, directed=directed), operator
    model = systems.small(name, layers, normalisation=normalisation)
    how = Settings(model, epochs=6, seed=seed, rows=rows)
    outcome = systems.run(pool, graph, systems.block("supergnn", **knobs), parts, method, how)
    knobs = knobs | {"model": name, "normalisation": normalisation, "rows": rows}
    systems.assert_trained_alike(
        outcome, systems.history(supergnn.train, graph, outcome, how, least, **knobs)
    )


@settings(max_examples=6)
@given(bits=KNOBS["bits"], rows=ROWS, method=METHOD, **RUNS)
def test_with_attention_it_equals_its_oracle(pool, bits, rows, method, seed, parts, directed, layers):
    graph = random_graph(seed, vertices=18, directed=directed)
    how = Settings(systems.small("gat", layers), epochs=5, seed=seed, rows=rows)
    outcome = systems.run(pool, graph, systems.block("supergnn", bits=bits), parts, method, how)
    knobs = {"bits": bits, "rows": rows}
    systems.assert_trained_alike(
        outcome, systems.history(supergnn.train_attention, graph, outcome, how, **knobs)
    )


@pytest.mark.parametrize(
    "bits, rows, features",
    [(2, "all", "refetch"), (8, "needed", "once"), (16, "all", "once"), (32, "needed", "refetch")],
)
def test_bytes_are_those_of_the_messages_of_a_least_cover(pool, bits, rows, features):
    graph = random_graph(12, vertices=40)
    how = Settings(systems.small("gcn", 3, 9), dtype="float32", epochs=2, rows=rows)
    block = systems.block("supergnn", bits=bits, features=features)
    outcome = systems.run(pool, graph, block, 4, settings=how)
    want = supergnn.epoch_bytes(graph, outcome.assignment, outcome.widths, least, bits=bits, rows=rows)
    for epoch in range(2):
        forward, backward = (systems.bytes_by_layer(outcome, epoch, way) for way in ("forward", "backward"))
        np.testing.assert_array_equal(backward, [0, *want[1:]])
        np.testing.assert_array_equal(forward[1:], want[1:])
        if features == "refetch":
            assert forward[0] == want[0]
