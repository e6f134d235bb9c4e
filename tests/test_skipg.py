"""SkipG's bytes: every block forward, deltas every bound + 1 epochs."""

from __future__ import annotations

import pytest

from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings


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
