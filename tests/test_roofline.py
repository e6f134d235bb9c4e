"""Graphs without locality, and how a cost grows; no timing is judged."""

import numpy as np

from harness.dev.bench.epoch import epoch_curve
from harness.dev.bench.lines import exponent
from harness.dev.bench.roofline import random_graph


def test_random_graph_has_the_edges_asked_for_in_ascending_rows():
    block = random_graph(2000, 100_000)
    assert abs(block.num_entries - 100_000) < 0.03 * 100_000
    row = np.repeat(np.arange(2000), np.diff(block.indptr))
    keys = row * 2000 + block.indices
    assert np.all(np.diff(keys) > 0) and block.indices.min() >= 0 and block.indices.max() < 2000
    assert np.diff(block.indptr).max() > 5 * 50


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
