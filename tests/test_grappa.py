"""Grappa: where it is exact, what it sends, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from harness.base.errors import InputError
from harness.run.config import make_system
from tests import systems
from tests.oracles import bytes as count
from tests.oracles.samples import random_graph, with_edge_weights
from tests.pieces import COMBINES
from tests.systems import Settings


@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("multilabel, weighted", [(False, False), (True, False), (False, True)])
def test_two_workers_hold_all_parts(pool, model, multilabel, weighted):
    """Every in-neighbour is in one of the two, so that nothing is left out and alpha is 1."""
    if model == "gat" and (multilabel or weighted):
        return
    graph = random_graph(5, vertices=24, multilabel=multilabel)
    graph = with_edge_weights(graph, 6) if weighted else graph
    how = Settings(systems.small(model, layers=3), epochs=4)
    outcome = systems.run(pool, graph, systems.block("grappa", period=1), 2, settings=how)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, how))
    assert all(m[-1, "correction"] == 1 for w in outcome.workers for m in w["metrics"])


def test_between_rotations_weights_alone_are_sent(pool):
    block, how = systems.block("grappa", period=2), Settings(dtype="float32", epochs=6)
    outcome = systems.run(pool, random_graph(12, vertices=40), block, 4, settings=how)
    weights = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(how.epochs):
        sent = {purpose: size for (_, _, purpose), (_, size) in outcome.sent(epoch).items()}
        assert sent["weights"] == count.all_reduce(weights, 4)
        rotates = {"features", "structure"} if epoch % 2 == 0 else set()  # features only where some are new
        assert {"weights"} | rotates >= sent.keys() >= {"weights"} | rotates - {"features"}


def test_the_structure_of_a_weighted_graph_has_its_weights(pool):
    """12 bytes per in-edge in place of 8."""
    graph, sent = random_graph(12, vertices=40), []
    for each in (graph, with_edge_weights(graph, 1)):
        outcome = systems.run(pool, each, systems.block("grappa"), 3, settings=Settings(dtype="float32"))
        sent.append(outcome.sent(0)[0, "forward", "structure"][1])
    edges = (np.repeat(np.arange(40), np.diff(graph.indptr)) != graph.indices).sum()
    assert sent == [8 * edges + 4 * 40, 12 * edges + 4 * 40]


@pytest.mark.parametrize("knobs", [{"correction": "none"}, {"correction": "shrunk", "shrink": 0.0}])
def test_without_correction_no_gradient_is_scaled(pool, knobs):
    graph, how = random_graph(9, vertices=40), Settings(epochs=4)
    one, other, scaled = (
        systems.run(pool, graph, systems.block("grappa", period=2, **each), 4, settings=how)
        for each in ({"correction": "none"}, knobs, {"correction": "scalar"})
    )
    assert one.losses == other.losses and not np.allclose(one.losses, scaled.losses)


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


def test_a_knob_that_cannot_be_is_refused_in_a_sentence():
    with pytest.raises(InputError, match=r'correction="all" .*none, scalar, shrunk'):
        make_system(systems.block("grappa", correction="all"))
    with pytest.raises(InputError, match="period=0"):
        make_system(systems.block("grappa", period=0))
