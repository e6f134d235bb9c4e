"""SkipG equals its oracle, epoch by epoch, on random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests import systems
from tests.oracles import skipg
from tests.oracles.samples import RUNS, random_graph
from tests.systems import Settings


@pytest.mark.parametrize("model", ["gcn", "sage"])
@examples(max_examples=10)
@given(bound=st.integers(0, 4), features=st.sampled_from(["refetch", "once"]), **RUNS)
def test_skipg_equals_its_oracle(pool, model, bound, features, seed, parts, directed, layers):
    graph, epochs = random_graph(seed, vertices=18, directed=directed), 7
    settings = Settings(
        model={"name": model, "layers": layers, "hidden": 4, "dropout": 0.0}, epochs=epochs, seed=seed % 100
    )
    outcome = systems.run(
        pool, graph, systems.block("skipg", bound=bound, features=features), parts, settings=settings
    )
    want = skipg.train(
        graph,
        outcome.assignment,
        outcome.weights[0],
        bound=bound,
        features=features,
        model=model,
        epochs=epochs,
        **settings.optimiser,
    )
    systems.assert_trained_alike(outcome, want)
    assert all(
        [worker["metrics"][epoch][-1, "active"] for epoch in range(epochs)] == want.renewed
        for worker in outcome.workers
    )
