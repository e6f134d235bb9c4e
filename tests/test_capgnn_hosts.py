"""CaPGNN on several hosts (section 5.11): each runs it on the graph that its own workers have, and weights'
gradients alone travel between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.context import RunFacts
from harness.data.partition.assign import Metis, assign
from harness.run.config import make_system
from tests import systems
from tests.oracles import capgnn, rapa
from tests.oracles.samples import RUNS, random_graph, without_cut_edges
from tests.systems import Settings
from tests.test_systems_oracle_capgnn import assert_same_counts
from tests.test_systems_oracle_rapa import asked, devices_of

AMPLE = 1000
DRAWN = {key: value for key, value in RUNS.items() if key not in ("parts", "layers")}


def on_hosts(assignment: np.ndarray, hosts: int, parts: int) -> np.ndarray:
    return assignment // (parts // hosts)


def induced(graph, vertices: np.ndarray):
    """The graph of some vertices, numbered anew."""
    rows = np.repeat(np.arange(graph.num_vertices), np.diff(graph.indptr))
    kept = np.isin(rows, vertices) & np.isin(graph.indices, vertices)
    degree = np.bincount(np.searchsorted(vertices, rows[kept]), minlength=len(vertices))
    return graph.replace(
        indptr=np.concatenate([[0], degree.cumsum()]).astype(np.int32),
        indices=np.searchsorted(vertices, graph.indices[kept]).astype(np.int32),
        **{name: getattr(graph, name)[vertices] for name in ("features", "labels", "train", "val", "test")},
    )


@examples(max_examples=8)
@given(
    tiers=st.sampled_from(["inclusive", "exclusive"]),
    gradients=st.sampled_from(["exact", "fresh"]),
    local=st.sampled_from([0, 3, AMPLE]),
    shared=st.sampled_from([0, AMPLE]),
    pipeline=st.booleans(),
    hosts=st.sampled_from([2, 4]),
    **DRAWN,
)
def test_caching_equals_the_oracles_on_the_graph_without_edges_between_hosts(
    pool, tiers, gradients, local, shared, pipeline, hosts, seed, directed
):
    graph = random_graph(seed, vertices=24, directed=directed)
    knobs = {
        "tiers": tiers,
        "gradients": gradients,
        "local_capacity": local,
        "global_capacity": shared,
        "refresh": 3,
        "pipeline": pipeline,
        "features": "refetch",
    }
    settings = Settings(epochs=5, seed=seed % 100)
    block = systems.block("capgnn", rapa=False, hosts=hosts, **knobs)
    outcome = systems.run(pool, graph, block, 4, settings=settings)
    apart = without_cut_edges(graph, on_hosts(outcome.assignment, hosts, 4))
    history = capgnn.train(
        apart, outcome.assignment, outcome.weights[0], epochs=5, **knobs, **settings.optimiser
    )
    assert_same_counts(outcome, history, first_layer=0)
    systems.assert_trained_alike(outcome, history)


def test_every_host_has_a_global_tier_of_its_own_and_only_weights_travel_between_hosts(pool):
    """The tier holds the vertices of its own workers' halos that are in most of them, as many as fit."""
    graph, room = random_graph(5, vertices=48), 4
    knobs = {"pipeline": False, "local_capacity": 0, "global_capacity": room, "features": "refetch"}
    block = systems.block("capgnn", rapa=False, hosts=2, **knobs)
    outcome = systems.run(pool, graph, block, 4, settings=Settings(epochs=2))
    halos = capgnn.halos_of(without_cut_edges(graph, outcome.assignment // 2), outcome.assignment)
    for host in (0, 1):
        own = halos[2 * host : 2 * host + 2]
        vertices, ratio = np.unique(np.concatenate(own), return_counts=True)
        assert len(vertices) > room, "more than fits"
        held = vertices[np.lexsort((vertices, -ratio))][:room]
        for worker, halo in zip(outcome.workers[2 * host :], own):
            assert worker["metrics"][1][1, "global_hits"] == np.isin(halo, held).sum() > 0
    crossing = {
        purpose
        for i, worker in enumerate(outcome.workers)
        for sent in worker["sent"]
        for (_, _, purpose, peer), (_, size) in sent.items()
        if size and peer >= 0 and peer // 2 != i // 2
    }
    # Halo ids are told to all, once, at the start.
    assert crossing == {"weights", "ids"}


@examples(max_examples=8)
@given(degrees=st.sampled_from(["global", "local"]), threshold=st.sampled_from([0.01, 0.3]), **DRAWN)
def test_every_host_balances_its_own_workers(pool, degrees, threshold, seed, directed):
    graph, devices = random_graph(seed, vertices=32, directed=directed), devices_of(seed, 1.0)
    knobs = {"jaca": False, "pipeline": False, "rapa_degrees": degrees, "threshold": threshold}
    placed = [{**device, "host": i // 2} for i, device in enumerate(devices)]
    settings = Settings(epochs=3, seed=seed % 100, cluster={"devices": placed})
    outcome = systems.run(pool, graph, systems.block("capgnn", hosts=2, **knobs), 4, settings=settings)
    host = on_hosts(outcome.assignment, 2, 4)
    kept = np.zeros((4, graph.num_vertices), bool)
    for k in (0, 1):
        vertices, first = np.flatnonzero(host == k), 2 * k
        mine, own = induced(graph, vertices), outcome.assignment[vertices] - first
        passed = asked(mine, own, devices[first : first + 2], knobs).partition()
        kept[first : first + 2, vertices] = passed.kept
        for i in (0, 1):
            metrics = sorted(outcome.workers[first + i]["metrics"][0].items())
            costs = [value for (_, name), value in metrics if name == "rapa_lambda"]
            np.testing.assert_allclose(costs, [cost[i] for cost in passed.costs], rtol=1e-12)
    history = rapa.train(
        without_cut_edges(graph, host),
        outcome.assignment,
        outcome.weights[0],
        kept,
        degrees=degrees,
        epochs=3,
        **settings.optimiser,
    )
    systems.assert_trained_alike(outcome, history)


def test_a_host_too_small_for_its_workers_fills_them_from_another():
    graph = random_graph(2, vertices=9, directed=False)
    owners = assign(graph, Metis(hosts=2), 8, seed=1)
    assert np.bincount(owners, minlength=8).min() == 1


def test_metis_cuts_for_hosts_first():
    graph = systems.planted_graph(0)
    two = assign(graph, Metis(), 2, seed=1)
    four = assign(graph, Metis(hosts=2), 4, seed=1)
    assert (four // 2 == two).all() and np.bincount(four, minlength=4).min() > 0
    for k in (0, 1):
        own = np.flatnonzero(two == k)
        assert (four[own] - 2 * k == assign(induced(graph, own), Metis(), 2, seed=1)).all()
    assert Metis(hosts=2).decides(4, 1)["hosts"] == 2 and "hosts" not in Metis().decides(4, 1)


def test_what_hosts_cannot_do_is_told_before_a_worker_starts():
    graph = random_graph(2, vertices=9)
    with pytest.raises(InputError, match=r"hosts=2 does not divide workers=3; give a divisor of it"):
        assign(graph, Metis(hosts=2), 3, seed=1)
    run = RunFacts("gcn", True, num_workers=3, symmetric=True, multilabel=False)
    refused = make_system(systems.block("capgnn", hosts=2)).supports(run)
    assert refused.startswith("system.hosts=2 does not divide workers=3; give system.hosts=1 or another")
    with pytest.raises(InputError, match=r"hosts=2 does not divide workers=1; give a divisor of it"):
        assign(graph, Metis(hosts=2), 1, seed=1)
    weighted = RunFacts("gcn", True, num_workers=4, symmetric=True, multilabel=False, weighted=True)
    refused = make_system(systems.block("capgnn", hosts=2, rapa=False)).supports(weighted)
    assert refused.startswith("system.hosts=2 counts degrees on each host, which know no edge weights")
    with pytest.raises(InputError, match=r"policy=lru knows one host, and hosts=2; give policy=jaca or"):
        make_system(systems.block("capgnn", hosts=2, policy="lru"))
    with pytest.raises(InputError, match=r"capacity_share=0.5 knows one host, and hosts=2; give capacity"):
        make_system(systems.block("capgnn", hosts=2, capacity_share=0.5))
