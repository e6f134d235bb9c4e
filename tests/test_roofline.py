"""The roofline's graphs, byte counts and rows; no timing is judged."""

import numpy as np

from harness.bench.epoch import epoch_curve
from harness.bench.lines import exponent
from harness.bench.roofline import (
    available_kernels,
    compulsory_bytes,
    cost_curve,
    random_graph,
    roofline_rows,
    spmm_bytes,
)
from harness.partition.shard import Csr


def test_random_graph_has_the_edges_asked_for_in_ascending_rows():
    block = random_graph(2000, 100_000)
    assert abs(block.num_entries - 100_000) < 0.03 * 100_000
    row = np.repeat(np.arange(2000), np.diff(block.indptr))
    keys = row * 2000 + block.indices
    assert np.all(np.diff(keys) > 0) and block.indices.min() >= 0 and block.indices.max() < 2000
    assert np.diff(block.indptr).max() > 5 * 50


def test_bytes_of_a_block_by_hand():
    block = Csr(np.array([0, 2, 3], np.int32), np.array([0, 2, 1], np.int32), 3)
    assert spmm_bytes(block, 8) == 12 + 12 + 3 * 32 + 2 * 32
    assert compulsory_bytes(block, 8) == 12 + 12 + 3 * 32 + 2 * 32
    assert compulsory_bytes(Csr(block.indptr, np.zeros(3, np.int32), 1), 8) == 12 + 12 + 32 + 2 * 32


def test_the_exponent_of_a_power_law_is_found():
    rows = [{"edges": edges, "seconds": 3e-9 * edges**1.2} for edges in (1e5, 1e6, 3e6, 1e7)]
    assert np.isclose(exponent(rows), 1.2)


def test_an_epochs_cost_is_measured_over_twins_of_the_sizes_asked_for():
    rows = epoch_curve(points=2, least=1e5, most=2e5, width=4)
    assert [round(row["edges"] / 1e5, 1) for row in rows] == [1.0, 2.0]
    assert np.isclose(
        rows[0]["edges"] / rows[0]["vertices"], rows[1]["edges"] / rows[1]["vertices"], rtol=0.02
    ), "at one mean degree"
    assert all(np.isclose(row["ns_per_edge"] * row["edges"], 1e9 * row["seconds"]) for row in rows)


def test_rows_and_curve():
    rows = roofline_rows({"small": (300, 9000)}, (5, 16))
    assert [(row["width"], row["kernel"]) for row in rows] == [
        (w, k) for w in (5, 16) for k in available_kernels()
    ]
    assert all(np.isclose(row["ratio"], row["bytes_per_s"] / row["copy_bytes_per_s"]) for row in rows)
    curve = cost_curve("numba", width=8, points=2, least=1e3, most=1e4)
    assert [row["kernel"] for row in curve] == ["numba"] * 2 and curve[0]["edges"] < curve[1]["edges"]
    assert all(np.isclose(row["ns_per_edge"] * row["edges"], 1e9 * row["seconds"]) for row in curve)
