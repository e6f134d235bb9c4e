"""CAGNET with replicas (1.5D): exact at c = 2, and what it refuses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dev.conformance.pool import WorkerPool
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import OPERATORS, RUNS, random_graph, with_edge_weights
from tests.systems import Settings
from tests.test_plan_dry import assert_alike, dry

FEATURES = ["once", "refetch"]


def replicated(features: str = "once", replication: int = 2) -> dict:
    return systems.block("cagnet", features=features, replication=replication)


def assert_exact(pool, graph, block: dict, workers: int, method: str, model: str, **how) -> None:
    asked = Settings(model=systems.small(model, **how), epochs=3)
    outcome = systems.run(pool, graph, block, workers, method, asked)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, asked))


@settings(max_examples=6)
@given(
    seed=RUNS["seed"],
    directed=RUNS["directed"],
    layers=st.integers(1, 3),
    weighted=st.booleans(),
    block=st.builds(replicated, st.sampled_from(FEATURES), st.sampled_from([1, 2, 2])),
    method=st.sampled_from(["metis", "random"]),
    model=st.sampled_from(OPERATORS),
)
def test_one_replica_and_two_are_full_graph_training(
    pool, seed, directed, layers, weighted, block, method, model
):
    graph = random_graph(seed, vertices=20, directed=directed)
    graph = with_edge_weights(graph, seed) if weighted else graph
    name, normalisation = model
    assert_exact(pool, graph, block, 4, method, name, layers=layers, normalisation=normalisation)


@pytest.mark.nightly(15)  # it starts eight workers
def test_so_are_eight_workers_of_which_a_column_has_two_blocks():
    graph, eight = with_edge_weights(random_graph(5, vertices=30, directed=True), 5), WorkerPool(8)
    try:
        assert_exact(eight, graph, replicated("refetch"), 8, "random", "gcn")
    finally:
        eight.close()


def test_so_is_a_worker_without_vertices(pool):
    graph, asked = random_graph(5, vertices=30), Settings(epochs=2)
    owners = np.arange(30) % 3
    owners[owners == 0] = 3
    outcome = systems.run(pool, graph, replicated(), 4, settings=asked, assignment=owners)
    systems.assert_trained_alike(outcome, systems.exact(graph, outcome, asked))


def test_it_goes_on_bit_for_bit_and_a_dry_run_counts_and_computes_what_it_does(pool):
    graph, block = random_graph(21, vertices=40), replicated("refetch")
    asked = Settings(systems.small("gcn", 3, 5, dropout=0.4), dtype="float32", epochs=4)
    went_on, resumed = (
        systems.run(pool, graph, block, 4, settings=how)
        for how in (asked, dataclasses.replace(asked, stop_at=2))
    )
    assert resumed.losses == went_on.losses and resumed.scores == went_on.scores
    for mine, theirs in zip(went_on.workers, resumed.workers):
        assert theirs["sent"] == mine["sent"] and theirs["metrics"] == mine["metrics"]
    assert_alike(went_on, dry(block, asked, systems.shards_of(graph, went_on.assignment, 4)))


def test_dropout_is_that_of_one_worker(pool):
    graph = random_graph(2, vertices=40)
    asked = Settings(systems.small("sage", 3, 6, dropout=0.4, input_dropout=0.3, residual=True), epochs=3)
    one, four = (
        systems.run(pool, graph, block, workers, settings=asked).losses
        for block, workers in ((systems.block("vanilla"), 1), (replicated("refetch"), 4))
    )
    np.testing.assert_allclose(four, one, rtol=1e-9)


@pytest.mark.parametrize(
    "replication,workers,mend",
    [
        (2, 6, "system.replication=1 or workers=8"),
        (4, 8, "system.replication=2 or workers=16"),
        (3, 1, "system.replication=1 or workers=9"),
        (2**31 - 1, 4, f"system.replication=2 or workers={(2**31 - 1) ** 2}"),
    ],
)
def test_workers_that_its_square_does_not_divide_are_refused(replication, workers, mend):
    system = make_system(systems.block("cagnet", replication=replication))
    facts = dataclasses.replace(facts_of("gcn"), num_workers=workers)
    assert system.supports(facts) == (
        f"system.replication={replication} needs workers that {replication**2} divides, and"
        f" workers={workers}: give {mend}"
    )
    fits = dataclasses.replace(facts, num_workers=replication**2)
    assert system.supports(fits) is None
