"""Grappa: where it is exact, and what it sends; who holds what, by hand."""

import numpy as np
import pytest

from tests import systems
from tests.graphs import of_pattern
from tests.oracles import grappa
from tests.oracles.samples import random_graph, targets_of, with_edge_weights
from tests.systems import Settings


@pytest.mark.parametrize(
    "model, multilabel, weighted", [("gcn", True, False), ("sage", False, True), ("gat", False, False)]
)
def test_two_workers_hold_all_parts(pool, model, multilabel, weighted):
    """Every in-neighbour is in one of the two, so that nothing is left out and alpha is 1."""
    graph = random_graph(5, vertices=24, multilabel=multilabel)
    graph = with_edge_weights(graph, 6) if weighted else graph
    how = Settings(systems.small(model, layers=3), epochs=4)
    outcome = systems.run(pool, graph, systems.block("grappa", period=1), 2, settings=how)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))
    assert all(m[-1, "correction"] == 1 for w in outcome.workers for m in w["metrics"])


def test_the_structure_of_a_weighted_graph_has_its_weights(pool):
    """12 bytes per in-edge in place of 8."""
    graph, sent, how = random_graph(12, vertices=40), [], Settings(dtype="float32", epochs=1)
    for each in (graph, with_edge_weights(graph, 1)):
        outcome = systems.run(pool, each, systems.block("grappa"), 3, settings=how)
        sent.append(outcome.sent(0)[0, "forward", "structure"][1])
    edges = (targets_of(graph) != graph.indices).sum()
    assert sent == [8 * edges + 4 * 40, 12 * edges + 4 * 40]


def test_features_travel_sparse_where_the_run_asks_for_it(pool):
    graph, block = random_graph(3, vertices=40), systems.block("grappa", period=2)
    graph = graph.replace(features=np.where(graph.features > 1, graph.features, 0).astype(np.float32))
    plain, sparse = (
        systems.run(pool, graph, block, 3, settings=Settings(dtype="float32", epochs=3, features_wire=wire))
        for wire in ("dense", "sparse")
    )
    assert plain.losses == sparse.losses
    size = [run.sent(0)[0, "forward", "features"][1] for run in (plain, sparse)]
    assert size[1] < size[0]


def test_dropout_of_features_is_that_of_whoever_has_them(pool):
    """With two workers all rows are there: masks are drawn by vertex, so one worker drops as two do."""
    graph = random_graph(4, vertices=30)
    how = Settings(systems.small("gcn", 2, dropout=0.4, input_dropout=0.3), epochs=4)
    one, two = (systems.run(pool, graph, systems.block("grappa"), parts, settings=how) for parts in (1, 2))
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-9)


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
