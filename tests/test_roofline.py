"""How a cost grows; no timing is judged."""

import numpy as np

from harness.dev.bench.epoch import curve_lines
from harness.dev.bench.lines import exponent


def test_the_exponent_of_a_power_law_is_found():
    rows = [{"edges": edges, "seconds": 3e-9 * edges**1.2} for edges in (1e5, 1e6, 3e6, 1e7)]
    assert np.isclose(exponent(rows), 1.2)


def test_an_epochs_cost_is_measured_over_twins_of_the_sizes_asked_for():
    *lines, grown = curve_lines(points=2, least=3e4, most=6e4, width=4, rounds=2)
    edges, vertices = (
        [int(text.split()[0].replace(",", "")) for text in texts]
        for texts in ([line.name for line in lines], [line.note for line in lines])
    )
    assert [round(each / 3e4, 1) for each in edges] == [1.0, 2.0]
    assert np.isclose(edges[0] / vertices[0], edges[1] / vertices[1], rtol=0.02), "at one mean degree"
    assert all(len(line.samples) == 2 for line in lines) and np.isfinite(grown.ours)
