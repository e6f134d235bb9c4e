"""What a plan says of bytes, against what tiny runs of every system in the tree count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cluster.config import Cluster, Device
from harness.comm.service import STORE
from harness.core.batches import BatchSystem
from harness.core.system import System
from harness.plan.sizes import Asked, epoch_traffic, parts_of
from harness.run.config import make_combine, make_model, make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.systems import Settings, label

EPOCHS = 4


def planned(outcome, block, asked: Settings, graph, parts: int):
    """Traffic by epoch, of the shards that the run was on."""
    shards = systems.shards_of(graph, outcome.assignment, parts)
    system, model = make_system(block), make_model(asked.model)
    system.cluster = Cluster(devices=[Device() for _ in range(parts)])
    combine = make_combine(asked.combine or {})
    how = Asked("float32", asked.rows, asked.features_wire, combine, asked.epochs)
    sizes = parts_of(shards, system, model, how)
    return [epoch_traffic(system, model, sizes, epoch) for epoch in range(asked.epochs)]


def counted(outcome, epoch: int, parts: int) -> dict:
    """[P, P + 1] bytes of every key that any were counted of."""
    found: dict = {}
    for rank, worker in enumerate(outcome.workers):
        for (layer, direction, purpose, peer), (_, size) in worker["sent"][epoch].items():
            key = layer, direction, purpose
            matrix = found.setdefault(key, np.zeros((parts, parts + 1)))
            matrix[rank, parts if peer == STORE else peer] += size
    return {key: matrix for key, matrix in found.items() if matrix.any()}


def held(outcome, traffic, parts: int) -> list[bool]:
    """Hold what was planned to what was counted; by epoch whether it was exact."""
    for epoch, made in enumerate(traffic):
        found = counted(outcome, epoch, parts)
        for key in found.keys() | made.least.keys():
            count = found.get(key, np.zeros((parts, parts + 1)))
            assert key in made.least, f"epoch {epoch}: {key} was not planned"
            least, most = made.least[key], made.most[key]
            assert (least <= count).all(), f"epoch {epoch}: {key} {count} is less than {least}"
            assert (count <= most).all(), f"epoch {epoch}: {key} {count} is more than {most}"
    return [made.exact for made in traffic]


SAYING = [
    variant
    for variant in {
        label(v): v for v in [*systems.EXACT_VARIANTS, *systems.SINGLE_VARIANTS, *systems.STALE_VARIANTS]
    }.values()
    if type(make_system(systems.block(variant[0], **variant[1]))).traffic is not System.traffic
]
SMALL = {"name": "gcn", "layers": 3, "hidden": 4, "dropout": 0.0}


def test_every_synchronous_full_graph_system_says_its_bytes():
    """What it sends follows from the partition, as a value or as a range: only mini-batches, whose samples
    nobody knows before, and what arrives when it does are left to a run."""
    for name in systems.VARIANTS:
        made = make_system(systems.block(name))
        says = type(made).traffic is not System.traffic
        assert says == (not made.asynchronous and not isinstance(made, BatchSystem)), name


@pytest.mark.parametrize("variant", SAYING, ids=label)
def test_bytes_are_those_that_a_run_counts(pool, variant):
    """For every system of the tree, at all knobs that its tests try, towards every worker."""
    graph, block = random_graph(21, vertices=40), systems.block(variant[0], **variant[1])
    asked = Settings(model=SMALL, dtype="float32", epochs=EPOCHS)
    workers = 3 + 3 % block.get("hosts", 1)
    outcome = systems.run(pool, graph, block, workers, settings=asked)
    exact = held(outcome, planned(outcome, block, asked, graph, workers), workers)
    knobs = type(make_system(block)).exact
    assert all(exact) or knobs is None or block != systems.block(variant[0], **knobs)


@pytest.mark.parametrize(
    "choices",
    [
        {"rows": "needed"},
        {"combine": {"_target_": "harness.core.combine.Quantised"}},
        {"combine": {"_target_": "harness.core.combine.PowerSgd", "rank": 1}},
        {"features_wire": "auto"},
        {"features_wire": "sparse", "rows": "needed"},
        {"model": {**SMALL, "norm": "batch", "residual": True}},
        {"model": {**SMALL, "name": "sage", "hidden": 9}},
        {"model": {**SMALL, "name": "gat", "heads": 2, "out_heads": 2}},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["vanilla", "cagnet", "cdfgnn", "lean"])
def test_what_a_run_asks_for_is_in_its_bytes(pool, name, choices):
    asked = Settings(**{"model": SMALL, "dtype": "float32", "epochs": 2, **choices})
    block = systems.block(name, **({"cache": False} if name == "cdfgnn" else {}))
    if asked.model["name"] not in systems.models_of(name):
        return
    if asked.rows == "needed" and make_system(block).every_row:
        return
    if (asked.model.get("norm") == "batch") and name == "lean":
        return  # statistics are of all rows
    graph = random_graph(5, vertices=30, directed=False)
    outcome = systems.run(pool, graph, block, 2, settings=asked)
    exact = held(outcome, planned(outcome, block, asked, graph, 2), 2)
    assert all(exact[1:])


def test_what_a_system_keeps_is_what_it_says(pool):
    """Of sancus, whose traces tell: its caches, and a place for the deltas that pass."""
    graph, block = random_graph(9, vertices=40), systems.block("sancus")
    asked = Settings(model={**SMALL, "hidden": 6}, dtype="float32", epochs=1)
    outcome = systems.run(pool, graph, block, 3, settings=asked)
    system = make_system(block)
    parts = parts_of(
        systems.shards_of(graph, outcome.assignment, 3), system, make_model(asked.model), Asked()
    )
    for rank, held_here in enumerate(system.held(parts)):
        told = outcome.workers[rank]["metrics"][0]
        caches = sum(value for (_, name), value in told.items() if name == "cache_bytes")
        others = np.count_nonzero(outcome.assignment != rank)
        assert caches > 0 and held_here == caches + 4 * others * sum({6, graph.num_classes})


@pytest.mark.parametrize("hosts", [1, 2])
def test_capgnns_tiers_are_as_large_as_it_says(pool, hosts):
    """What lies between hosts is in no tier, and a host has room for its own vertices alone."""
    graph = random_graph(9, vertices=40)
    block = systems.block("capgnn", hosts=hosts, rapa=False, features="refetch")
    asked = Settings(model=SMALL, dtype="float32", epochs=1)
    outcome = systems.run(pool, graph, block, 4, settings=asked)
    system = make_system(block)
    shards = systems.shards_of(graph, outcome.assignment, 4)
    system.cluster = Cluster(devices=[Device()] * 4)
    parts = parts_of(shards, system, make_model(asked.model), Asked())
    for worker, held_here in zip(outcome.workers, system.held(parts) + system.held_on_host(parts)):
        told = {name: value for (_, name), value in worker["metrics"][0].items()}
        rows = told["local_capacity"] + told["global_capacity"]
        assert held_here == 4 * sum(parts.widths[:-1]) * rows > 0


@given(seed=st.integers(0, 10_000), parts=st.integers(1, 4), directed=st.booleans(), layers=st.integers(1, 3))
@settings(max_examples=5)
def test_bytes_on_random_graphs_and_partitions(pool, seed, parts, directed, layers):
    graph, model = random_graph(seed, vertices=24, directed=directed), {**SMALL, "layers": layers}
    for name in ("vanilla", "lean", "sancus"):
        asked = Settings(model=model, dtype="float32", epochs=2, seed=seed)
        outcome = systems.run(pool, graph, systems.block(name), parts, settings=asked)
        assert all(held(outcome, planned(outcome, systems.block(name), asked, graph, parts), parts))
