"""The oracle of Grappa against full-graph training; who holds what, by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import of_pattern
from tests.oracles import dense, grappa
from tests.oracles.samples import CASES, assert_same_run, case


@settings(max_examples=8)
@given(
    parts=st.integers(1, 2),
    correction=st.sampled_from(["none", "scalar", "shrunk"]),
    seed=CASES["seed"],
    operator=CASES["operator"],
)
def test_with_one_part_or_two_it_is_full_graph_training(parts, correction, seed, operator):
    data, how = case(seed, parts, operator)
    run = grappa.train(*data, correction=correction, period=2, **how)
    assert_same_run(run, dense.train(data[0], data[2], **how))


def test_second_parts_by_hand():
    assert [grappa.second(0, t, 4, 2) for t in range(9)] == [1, 1, 2, 2, 3, 3, 1, 1, 2]
    assert [grappa.second(3, t, 4, 1) for t in range(4)] == [0, 1, 2, 0]
    assert [grappa.second(i, 9, 2, 1) for i in range(2)] == [1, 0]
    assert grappa.second(0, 5, 1, 1) is None


def test_the_correction_by_hand():
    """Of three edges into vertex 0 two begin in K, of one into vertex 1 none; none into vertex 2."""
    edges, k = np.zeros((5, 5), bool), np.array([1, 1, 1, 0, 0], bool)
    edges[0, [1, 2, 3]] = edges[1, 4] = True
    seeds = [np.isin(range(5), some) for some in ([0], [1], [2], [0, 1, 2], [])]
    np.testing.assert_allclose([grappa.alpha(edges, each, k) for each in seeds], [2 / 3, 0, 1, 5 / 9, 1])


def test_bytes_are_features_that_are_new_and_second_parts():
    """A directed ring of four, a part each: what is new is counted."""
    ring = np.roll(np.eye(4, dtype=bool), 1, axis=0)  # v - 1 -> v
    graph, blocks = of_pattern(ring), np.arange(4)
    sizes = [grappa.epoch_bytes(graph, blocks, 4, 2, t) for t in range(7)]
    row, structure = 4 * graph.num_features, 4 * (8 + 4)
    # N(0, t): 3 0 1, then 3 0 1 2, then 2 3 0, then 3 0 1
    assert [size["features"] for size in sizes] == [4 * 2 * row, 0, 4 * row, 0, 0, 0, 4 * row]
    assert [size["structure"] for size in sizes] == [structure, 0, structure, 0, structure, 0, structure]
    two = [grappa.epoch_bytes(graph, blocks // 2, 2, 1, t) for t in range(3)]
    assert two == [{"features": 2 * 2 * row, "structure": 2 * (2 * 8 + 2 * 4)}] + 2 * [
        {"features": 0, "structure": 0}
    ]
