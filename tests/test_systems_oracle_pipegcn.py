"""PipeGCN with its knobs on equals its paper's equations, epoch by epoch, on random graphs; its bytes; its
staleness.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests import systems
from tests.oracles import bytes as count
from tests.oracles import pipegcn
from tests.oracles.samples import RUNS, random_graph
from tests.systems import Settings


@pytest.mark.parametrize("model", ["gcn", "sage"])
@examples(max_examples=10)
@given(
    layer_0=st.sampled_from(["once", "refetch"]),
    features=st.booleans(),
    gradients=st.booleans(),
    momentum=st.sampled_from([0.3, 0.95]),
    **RUNS,
)
def test_pipegcn_equals_its_oracle(
    pool, model, layer_0, features, gradients, momentum, seed, parts, directed, layers
):
    graph = random_graph(seed, vertices=18, directed=directed)
    knobs = {
        "smooth_features": features,
        "smooth_gradients": gradients,
        "momentum": momentum,
        "features": layer_0,
    }
    settings = Settings(model=systems.small(model, layers), epochs=7, seed=seed % 100)
    outcome = systems.run(pool, graph, systems.block("pipegcn", **knobs), parts, settings=settings)
    systems.assert_trained_alike(
        outcome,
        systems.history(pipegcn.train, graph, outcome, settings, model=model, **knobs),
    )


@pytest.mark.parametrize("features", ["once", "refetch"])
def test_bytes_are_vanillas(pool, features):
    graph = random_graph(12, vertices=40)
    settings = Settings(model=systems.small("gcn", 3, 6), dtype="float32", epochs=3)
    outcome = systems.run(pool, graph, systems.block("pipegcn", features=features), 4, settings=settings)
    for epoch in range(3):
        want = count.vanilla(graph, outcome.assignment, outcome.widths, features=features, first=epoch == 0)
        for direction in ("forward", "backward"):
            sent = systems.bytes_by_layer(outcome, epoch, direction)
            np.testing.assert_array_equal(sent, want["bytes"][direction])
