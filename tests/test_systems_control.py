"""Where remote information matters, a system that uses remote rows beats the control, which has none.

One of each way to save bytes; `harness.dev.conformance` asks it of every system at night.
"""

import numpy as np
import pytest
from scipy import stats

from tests import systems
from tests.systems import Settings, label

VARIANTS = [
    ("adaqp", {"bits": 4}),
    ("bns", {"rate": 0.5}),
    ("digest", {"interval": 2}),
    ("lean", {}),
    ("pipegcn", {}),
    ("sancus", {}),
]


@pytest.fixture(scope="module")
def planted():
    return [systems.planted_graph(seed) for seed in range(5)]


def accuracy(pool, graphs, name: str, knobs: dict) -> tuple[float, float]:
    """Mean test accuracy over the graphs and the half width of its 95 % interval."""
    how = Settings(
        model=systems.small("gcn", 2, 16),
        optimiser={"lr": 0.015, "weight_decay": 5e-4},
        dtype="float32",
        epochs=30,
    )
    scores = [
        systems.run(pool, graph, systems.block(name, **knobs), 4, settings=how).scores[-1][2]
        for graph in graphs
    ]
    return np.mean(scores), stats.t.ppf(0.975, len(scores) - 1) * np.std(scores, ddof=1) / len(scores) ** 0.5


@pytest.fixture(scope="module")
def control(pool, planted):
    return accuracy(pool, planted, "zero_halo", {})


@pytest.mark.parametrize("variant", VARIANTS, ids=label)
def test_a_system_that_uses_remote_rows_beats_the_control(pool, planted, control, variant):
    """By more than the seeds' 95 % intervals together."""
    score, half = accuracy(pool, planted, *variant)
    assert score - half > control[0] + control[1], (
        f"{score:.3f} +- {half:.3f} against {control[0]:.3f} +- {control[1]:.3f}"
    )
