"""Grappa equals its paper's equations, epoch by epoch, on random graphs; its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import grappa
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings

KNOBS = {
    "period": st.sampled_from([1, 2, 3, 50]),
    "correction": st.sampled_from(["none", "scalar", "shrunk"]),
    "shrink": st.sampled_from([0.2, 0.5]),
}


@settings(max_examples=10)
@given(
    knobs=st.fixed_dictionaries(KNOBS),
    method=st.sampled_from(["random", "metis"]),
    operator=st.sampled_from(OPERATORS),
    **RUNS,
)
def test_grappa_equals_its_oracle(pool, knobs, method, operator, seed, parts, directed, layers):
    graph, (name, normalisation) = random_graph(seed, vertices=18, directed=directed), operator
    how = Settings(systems.small(name, layers, normalisation=normalisation), epochs=7, seed=seed)
    outcome = systems.run(pool, graph, systems.block("grappa", **knobs), parts, method, how)
    knobs = knobs | {"model": name, "normalisation": normalisation}
    systems.assert_trained_alike(outcome, systems.history(grappa.train, graph, outcome, how, **knobs))


@pytest.mark.parametrize("parts, period", [(4, 2), (3, 1), (2, 1), (1, 2)])
def test_bytes_are_those_of_parts_that_are_new(pool, parts, period):
    graph = random_graph(12, vertices=40)
    how = Settings(systems.small("gcn", 3, 6), dtype="float32", epochs=7)
    outcome = systems.run(pool, graph, systems.block("grappa", period=period), parts, settings=how)
    for epoch in range(how.epochs):
        sent = dict.fromkeys(("features", "structure"), 0)
        for (_, _, purpose), (_, size) in outcome.sent(epoch).items():
            if purpose != "weights":
                sent[purpose] += size
        assert sent == grappa.epoch_bytes(graph, outcome.assignment, parts, period, epoch), epoch
