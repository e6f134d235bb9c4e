"""SkipG equals its oracle, epoch by epoch, on random graphs; its bytes."""

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
    settings = Settings(model=systems.small(model, layers), epochs=epochs, seed=seed % 100)
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


@pytest.mark.parametrize("bound", [0, 1, 2])
def test_bytes_are_the_closed_form(pool, bound):
    settings = Settings(dtype="float32", epochs=5)
    outcome = systems.run(
        pool,
        random_graph(13, vertices=30),
        systems.block("skipg", bound=bound, features="refetch"),
        4,
        settings=settings,
    )
    f0, f1, f2 = outcome.widths
    for epoch in range(5):
        sent = {
            way: sum(
                size
                for (_, direction, purpose), (_, size) in outcome.sent(epoch).items()
                if direction == way and purpose != "weights"
            )
            for way in ("forward", "backward")
        }
        assert sent["forward"] == 4 * 3 * 30 * (f0 + f1)
        assert sent["backward"] == (4 * 3 * 30 * (f1 + f2) if epoch % (bound + 1) == 0 else 0)
        assert all(
            worker["metrics"][epoch][-1, "active"] == (epoch % (bound + 1) == 0) for worker in outcome.workers
        )
