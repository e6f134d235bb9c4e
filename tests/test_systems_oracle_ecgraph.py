"""EC-Graph equals its paper's equations, epoch by epoch, on random graphs; its bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import systems
from tests.oracles import ecgraph
from tests.oracles.samples import OPERATORS, RUNS, random_graph
from tests.systems import Settings

# An odd width: where p = 0 and ReLU has left 0 in some columns, p and the mean with c are equally
# near when the odd numbers 2 q + 1 of the other columns add up to as many, and rounding would choose.
HIDDEN = 5
KNOBS = {
    "period": st.sampled_from([2, 3, 5, 10]),
    "bits": st.sampled_from([1, 2, 4, 8]),
    "backward_bits": st.sampled_from([1, 2, 4, 8, 32]),
    "tune": st.booleans(),
    "rate": st.sampled_from(["sent", "computed"]),
    "features": st.sampled_from(["once", "refetch"]),
}


@settings(max_examples=10)
@given(
    knobs=st.fixed_dictionaries(KNOBS),
    rows=st.sampled_from(["all", "all", "needed"]),
    method=st.sampled_from(["random", "metis"]),
    operator=st.sampled_from(OPERATORS),
    **RUNS,
)
def test_ecgraph_equals_its_oracle(pool, knobs, rows, method, operator, seed, parts, directed, layers):
    graph, (name, normalisation) = random_graph(seed, vertices=18, directed=directed), operator
    model = systems.small(name, layers, HIDDEN, normalisation=normalisation)
    how = Settings(model, epochs=8, seed=seed, rows=rows)
    outcome = systems.run(pool, graph, systems.block("ecgraph", **knobs), parts, method, how)
    knobs = knobs | {"model": name, "normalisation": normalisation, "rows": rows}
    systems.assert_trained_alike(outcome, systems.history(ecgraph.train, graph, outcome, how, **knobs))


@pytest.mark.parametrize(
    "knobs",
    [
        dict(period=3, bits=2),
        dict(period=4, bits=1, backward_bits=2, rate="computed", features="refetch"),
        dict(period=3, bits=8, backward_bits=32, features="refetch"),
        dict(period=1, backward_bits=32),
    ],
    ids=str,
)
def test_bytes_are_those_of_rows_that_were_not_predicted(pool, knobs):
    graph = random_graph(12, vertices=40)
    how = Settings(systems.small("gcn", 3, HIDDEN), dtype="float32", epochs=9)
    outcome = systems.run(pool, graph, systems.block("ecgraph", **knobs), 4, settings=how)
    history = systems.history(ecgraph.train, graph, outcome, how, **knobs)
    for epoch, want in enumerate(history.sent):
        for way in ("forward", "backward"):
            sent = systems.bytes_by_layer(outcome, epoch, way)
            assert sent.tolist() == [want[layer, way] for layer in range(3)], (epoch, way)
