"""How a cost grows; no timing is judged."""

import numpy as np

from harness.dev.bench.epoch import epoch_curve
from harness.dev.bench.lines import exponent


def test_the_exponent_of_a_power_law_is_found():
    rows = [{"edges": edges, "seconds": 3e-9 * edges**1.2} for edges in (1e5, 1e6, 3e6, 1e7)]
    assert np.isclose(exponent(rows), 1.2)


def test_an_epochs_cost_is_measured_over_twins_of_the_sizes_asked_for():
    rows = epoch_curve(points=2, least=3e4, most=6e4, width=4, rounds=2)
    assert [round(row["edges"] / 3e4, 1) for row in rows] == [1.0, 2.0]
    assert np.isclose(
        rows[0]["edges"] / rows[0]["vertices"], rows[1]["edges"] / rows[1]["vertices"], rtol=0.02
    ), "at one mean degree"
    assert all(len(row["samples"]) == 2 and row["seconds"] == np.median(row["samples"]) for row in rows)
