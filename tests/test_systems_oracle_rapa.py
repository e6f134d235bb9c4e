"""RAPA keeps the halo vertices that CaPGNN's Algorithms 2 and 3 keep, and training on what is kept equals the
dense one.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests import systems
from tests.oracles import capgnn, rapa
from tests.oracles.samples import RUNS, keeping, random_graph, targets_of
from tests.systems import Settings
from tests.test_systems_oracle_capgnn import assert_same_counts

TIMES = ("mm_s", "spmm_s", "h2d_s", "d2h_s", "idt_s")


def devices_of(seed: int, stated: float) -> list[dict]:
    """Four devices up to eight times apart; each time is stated with this chance."""
    rng = np.random.default_rng(seed)
    names = [name for name in TIMES if rng.random() < stated]
    return [{"kind": f"d{i}", **{name: float(2 ** rng.uniform(-3, 0)) for name in names}} for i in range(4)]


def asked(graph, assignment, devices, knobs) -> rapa.Rapa:
    """The oracle, before its first sweep."""
    block = systems.block("capgnn", **knobs)
    prices = {name: block[name] for name in ("alpha", "threshold", "vertex_bytes", "edge_bytes", "beta_mb")}
    return rapa.Rapa(graph, assignment, devices, **prices)


def assert_same_partition(outcome, passed) -> None:
    """lambda, edges and vertices by worker and iteration."""
    for i, worker in enumerate(outcome.workers):
        kinds = {"lambda": passed.costs, "edges": passed.edges, "vertices": passed.vertices}
        for name, values in kinds.items():
            told = sorted(worker["metrics"][0].items())
            have = [value for (_, metric), value in told if metric == f"rapa_{name}"]
            np.testing.assert_allclose(
                have, [each[i] for each in values], rtol=1e-12, err_msg=f"{name} of {i}"
            )


@examples(max_examples=10)
@given(
    model=st.sampled_from(["gcn", "sage"]),
    pipeline=st.booleans(),
    degrees=st.sampled_from(["global", "local"]),
    alpha=st.sampled_from([0.0, 0.35, 1.0]),
    threshold=st.sampled_from([0.0, 0.01, 0.1]),
    stated=st.sampled_from([0.0, 0.6, 1.0]),
    features=st.sampled_from(["once", "refetch"]),
    **RUNS,
)
def test_rapa_equals_its_oracle(
    pool, model, pipeline, degrees, alpha, threshold, stated, seed, parts, directed, layers, features
):
    graph, devices = random_graph(seed, vertices=24, directed=directed), devices_of(seed, stated)[:parts]
    knobs = {
        "jaca": False,
        "pipeline": pipeline,
        "rapa_degrees": degrees,
        "alpha": alpha,
        "threshold": threshold,
        "features": features,
    }
    settings = Settings(
        model=systems.small(model, layers), epochs=5, seed=seed % 100, cluster={"devices": devices}
    )
    outcome = systems.run(pool, graph, systems.block("capgnn", **knobs), parts, settings=settings)
    passed = asked(graph, outcome.assignment, devices, knobs).partition()
    assert_same_partition(outcome, passed)
    systems.assert_trained_alike(
        outcome,
        systems.history(
            rapa.train, graph, outcome, settings, passed.kept, pipeline=pipeline, degrees=degrees, model=model
        ),
    )


def test_the_cache_is_that_of_the_graph_that_rapa_leaves(pool):
    """With degrees counted again, what is left is a graph of its own."""
    graph, devices = random_graph(6, vertices=24), devices_of(6, 1.0)
    knobs = {
        "rapa_degrees": "local",
        "policy": "jaca",
        "pipeline": True,
        "local_capacity": 3,
        "global_capacity": 6,
        "refresh": 3,
        "features": "refetch",
    }
    settings = Settings(epochs=5, cluster={"devices": devices})
    outcome = systems.run(pool, graph, systems.block("capgnn", **knobs), 4, settings=settings)
    passed = asked(graph, outcome.assignment, devices, knobs).partition()
    assert_same_partition(outcome, passed)
    blocks = outcome.assignment
    reader = blocks[targets_of(graph)]
    left = (reader == blocks[graph.indices]) | passed.kept[reader, graph.indices]
    assert np.count_nonzero(~left) > 0 and passed.kept.any(), "RAPA has taken some of the halo"
    cache = {k: v for k, v in knobs.items() if k != "rapa_degrees"}
    history = systems.history(capgnn.train, keeping(graph, left), outcome, settings, **cache)
    assert_same_counts(outcome, history, first_layer=0)
    systems.assert_trained_alike(outcome, history)


@pytest.mark.nightly(20)
@given(seed=st.integers(0, 10_000), tight=st.integers(0, 2), share=st.floats(0.3, 1.0))
def test_a_device_without_room_gives_up_halo_vertices(pool, seed, tight, share):
    """Memory for a share of what the subgraph needs as it is given, beta and all: what is left fits, or no
    halo is left.
    """
    graph, devices = random_graph(seed, vertices=24), devices_of(seed, 1.0)[:3]
    knobs = {"jaca": False, "pipeline": False, "beta_mb": 2e-4, "vertex_bytes": 16, "edge_bytes": 12}
    settings = Settings(epochs=1, cluster={"devices": devices})
    free = systems.run(pool, graph, systems.block("capgnn", **knobs), 3, settings=settings)
    whole = asked(graph, free.assignment, devices, knobs)
    need = lambda i: (
        whole.vertices()[i] * (16 + 4 * graph.num_features) + whole.edges()[0][i] * 12 + 2e-4 * 2**20
    )
    devices[tight]["memory_gb"] = float(share * need(tight) / 2**30)
    outcome = systems.run(
        pool, graph, systems.block("capgnn", **knobs), 3, settings=settings, assignment=free.assignment
    )
    passed = asked(graph, outcome.assignment, devices, knobs).partition()
    assert_same_partition(outcome, passed)
    whole.kept = passed.kept
    assert need(tight) <= devices[tight]["memory_gb"] * 2**30 or not passed.kept[tight].any()


@pytest.mark.parametrize(
    "name,knobs,model",
    [("vanilla", {}, "gat"), ("capgnn", {"jaca": False, "rapa": False, "pipeline": False}, "gcn")],
)
def test_a_worker_that_reads_nobody_returns_no_gradients_and_takes_those_of_its_readers(
    pool, name, knobs, model
):
    """As after RAPA has taken a worker's whole halo: here no edge leads into part 0, and part 1 reads it."""
    graph = random_graph(5, vertices=24)
    assignment = (np.arange(24) >= 12).astype(int)
    graph = keeping(graph, (assignment[targets_of(graph)] == 1) | (assignment[graph.indices] == 0))
    settings = Settings(model=systems.small(model, 3, 8))
    outcome = systems.run(
        pool, graph, systems.block(name, **knobs), 2, settings=settings, assignment=assignment
    )
    one = systems.run(pool, graph, systems.block("vanilla"), 1, settings=settings)
    systems.assert_trained_as(outcome, one, rtol=1e-7)
