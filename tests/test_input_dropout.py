"""Dropout of the features (`model.input_dropout`): by vertex, so that the number of workers, who keeps what,
and the form of the features change nothing.
"""

import dataclasses

import numpy as np
import pytest

from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import EXACT, Settings
from tests.test_features import bag_of_words

SYSTEMS = ["vanilla", "cagnet", "pscgcn", "capgnn", "cdfgnn", "bns", "distdgl", "bytegnn"]


def losses(
    pool, system="vanilla", parts=3, *, model="gcn", features="refetch", sparse=False, labels=None, **more
):
    """Of three epochs without dropout elsewhere, in float64."""
    graph = random_graph(2, vertices=40)
    if sparse:
        graph = dataclasses.replace(graph, features=bag_of_words(40, 300, 0.03).numpy())
    block = systems.block(system, **{**EXACT[system][0], "features": features})
    settings = Settings(model=systems.small(model, 2, 6, input_dropout=0.4, **more), epochs=3, labels=labels)
    return systems.run(pool, graph, block, parts, None if parts > 1 else "block", settings).losses


@pytest.fixture(scope="module")
def alone(pool):
    """One worker's losses, which fetches nothing, by form of the features."""
    return {sparse: losses(pool, parts=1, sparse=sparse) for sparse in (False, True)}


# Sparse rows come as halo rows, in blocks, or out of a cache that is kept sparse: one system of each.
@pytest.mark.parametrize(
    "name, sparse",
    [*((name, False) for name in SYSTEMS), ("vanilla", True), ("cagnet", True), ("pscgcn", True)],
)
def test_it_is_the_same_for_any_number_of_workers(pool, alone, name, sparse):
    np.testing.assert_allclose(losses(pool, name, sparse=sparse), alone[sparse], rtol=1e-9)


@pytest.mark.parametrize(
    "model, sparse",
    [({}, True), ({"model": "sage", "residual": True}, False), ({"model": "gat"}, True)],
    ids=["gcn", "sage", "gat"],
)
def test_rows_that_are_kept_are_dropped_as_those_that_are_fetched(pool, model, sparse):
    once, fetched = (
        losses(pool, features=features, sparse=sparse, **model) for features in ("once", "refetch")
    )
    np.testing.assert_allclose(once, fetched, rtol=1e-9)


def test_every_epoch_drops_anew(pool):
    graph, block = random_graph(2, vertices=40), systems.block("vanilla")
    model, optimiser = systems.small(input_dropout=0.4), {"lr": 1e-30, "weight_decay": 0.0}
    still = Settings(model=model, optimiser=optimiser, epochs=4)
    drawn = systems.run(pool, graph, block, 2, settings=still).losses
    assert len(set(drawn)) == len(drawn)


def test_sums_over_replicas_that_are_kept_refuse_it():
    facts = dataclasses.replace(facts_of("gcn"), input_dropout=0.4)
    reason = make_system(systems.block("cdfgnn")).supports(facts)
    assert reason.startswith("model.input_dropout=0.4") and reason.endswith("give system.features=refetch")
    assert make_system(systems.block("cdfgnn", features="refetch")).supports(facts) is None
