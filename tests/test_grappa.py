"""Grappa: where it is exact, and what it sends."""

from __future__ import annotations

import numpy as np
import pytest

from tests import systems
from tests.oracles.samples import random_graph, with_edge_weights
from tests.pieces import COMBINES
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
    graph, sent = random_graph(12, vertices=40), []
    for each in (graph, with_edge_weights(graph, 1)):
        outcome = systems.run(pool, each, systems.block("grappa"), 3, settings=Settings(dtype="float32"))
        sent.append(outcome.sent(0)[0, "forward", "structure"][1])
    edges = (np.repeat(np.arange(40), np.diff(graph.indptr)) != graph.indices).sum()
    assert sent == [8 * edges + 4 * 40, 12 * edges + 4 * 40]


@pytest.mark.parametrize(
    "choices", [{"features_wire": "sparse"}, {"combine": COMBINES["quantised"]}], ids=str
)
def test_weights_and_features_travel_as_the_run_asks(pool, choices):
    graph, block = random_graph(3, vertices=40), systems.block("grappa", period=2)
    graph = graph.replace(features=np.where(graph.features > 1, graph.features, 0).astype(np.float32))
    plain, other = (
        systems.run(pool, graph, block, 3, settings=Settings(dtype="float32", epochs=4, **each))
        for each in ({}, choices)
    )
    if "features_wire" in choices:
        assert plain.losses == other.losses
    total = [sum(size for e in range(4) for _, size in run.sent(e).values()) for run in (plain, other)]
    assert total[1] < total[0]


def test_dropout_of_features_is_that_of_whoever_has_them(pool):
    """With two workers all rows are there: masks are drawn by vertex, so one worker drops as two do."""
    graph = random_graph(4, vertices=30)
    how = Settings(systems.small("gcn", 2, dropout=0.4, input_dropout=0.3), epochs=4)
    one, two = (systems.run(pool, graph, systems.block("grappa"), parts, settings=how) for parts in (1, 2))
    np.testing.assert_allclose(two.losses, one.losses, rtol=1e-9)
