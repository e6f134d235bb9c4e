"""GAS against an oracle of its equations, at the knobs at which it is another system, and its clusters."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from systems.parts.seeds import ClusterBatches, metis_clusters
from tests import systems
from tests.graphs import graphs
from tests.oracles import bytes as count
from tests.oracles import gas
from tests.oracles.samples import graph_of_kind, random_graph
from tests.systems import Settings
from tests.test_systems_oracle_distdgl import assert_booked

SEEDS = st.integers(0, 10_000)
DROP = {
    "clusters": 4,
    "batch": 2,
    "outside": "drop",
    "start": "exact",
    "refresh": "epoch",
    "features": "once",
}


def batches_of(graph, assignment, parts: int, seed: int, clusters: int, batch) -> list[ClusterBatches]:
    """Of every worker."""
    shards = systems.shards_of(graph, assignment, parts)
    of = [metis_clusters(shard, clusters, seed) for shard in shards]
    seeds = [np.bincount(each[shard.train], minlength=each.max() + 1) for each, shard in zip(of, shards)]
    return [
        ClusterBatches(each, shard.train, seeds, shard.rank, seed, batch) for each, shard in zip(of, shards)
    ]


def steps_of(graph, assignment, parts: int, epochs: int, seed: int, clusters: int, batch) -> list:
    """[epoch][step][worker] global ids of the batches."""
    workers, found = batches_of(graph, assignment, parts, seed, clusters, batch), []
    own = [np.flatnonzero(assignment == part) for part in range(parts)]
    for epoch in range(epochs):
        for worker in workers:
            worker.begin(epoch)
        found.append([
            [ids[worker.rows(step)[0]] for ids, worker in zip(own, workers)]
            for step in range(workers[0].steps)
        ])  # fmt: skip
    return found


@settings(max_examples=10)
@example(seed=3, parts=3, directed=True, model="sage", layers=2, kind="weighted", knobs=DROP)
@given(
    seed=SEEDS,
    parts=st.integers(1, 4),
    directed=st.booleans(),
    model=st.sampled_from(["gcn", "sage"]),
    layers=st.integers(1, 3),
    kind=st.sampled_from(["plain", "multilabel", "weighted"]),
    knobs=st.fixed_dictionaries({
        "clusters": st.integers(1, 6),
        "batch": st.sampled_from([1, 2, 3, None]),
        "outside": st.sampled_from(["history", "history", "zero", "drop"]),
        "start": st.sampled_from(["exact", "zeros"]),
        "refresh": st.sampled_from(["never", "epoch"]),
        "features": st.sampled_from(["once", "refetch"]),
    }),
)  # fmt: skip
def test_losses_weights_and_bytes_equal_the_oracle(pool, seed, parts, directed, model, layers, kind, knobs):
    graph = graph_of_kind(kind, seed, directed)
    shape = systems.small(model, layers)
    how = Settings(model=shape, seed=seed % 100, epochs=3)
    outcome = systems.run(pool, graph, systems.block("gas", **knobs), parts, settings=how)
    drawn = parts, how.epochs, how.seed, knobs["clusters"], knobs["batch"]
    steps = steps_of(graph, outcome.assignment, *drawn)
    given_too = {name: knobs[name] for name in ("outside", "start", "refresh", "features")}
    want = systems.history(gas.train, graph, outcome, how, steps, model=model, **given_too)
    systems.assert_trained_alike(outcome, want, rtol=1e-6)
    assert_booked(outcome, want, steps)
    told = 8 * parts * (parts - 1) * layers if parts > 1 and knobs["outside"] == "history" else 0
    for epoch in range(how.epochs):
        sizes = [size for (_, _, what), (_, size) in outcome.sent(epoch).items() if what == "counts"]
        assert sum(sizes) == told * len(steps[epoch])


def test_attention_takes_histories_as_digest_takes_its_store(pool):
    """With dropout too, whose masks depend on neither."""
    graph = random_graph(6, vertices=24)
    how = Settings(model=systems.small("gat", 3, dropout=0.4))
    block = systems.block("digest", interval=1, loss="global")
    want = systems.run(pool, graph, block, 3, settings=how)
    outcome = systems.run(pool, graph, systems.block("gas", batch=None), 3, settings=how)
    systems.assert_trained_as(outcome, want)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_one_worker_in_one_batch_drops_what_full_batch_training_drops(pool, model):
    graph = random_graph(6, vertices=24)
    how = Settings(model=systems.small(model, 3, dropout=0.4, input_dropout=0.3, residual=True))
    full = systems.run(pool, graph, systems.block("vanilla"), 1, "block", how)
    for name, knobs in (("gas", {"batch": None}), ("graphsaint", {"budget": None})):
        outcome = systems.run(pool, graph, systems.block(name, **knobs), 1, "block", how)
        systems.assert_trained_as(outcome, full)


def test_what_exact_passes_send_outside_the_clock_is_recorded(pool):
    graph, how = random_graph(5, vertices=30), Settings(dtype="float32", epochs=3)
    block = systems.block("gas", clusters=4, batch=2, refresh="epoch")
    outcome = systems.run(pool, graph, block, 3, settings=how)
    halo_rows = count.halo_rows(graph, outcome.assignment).sum()
    for epoch in range(3):
        reported = [worker["metrics"][epoch] for worker in outcome.workers]
        assert sum(each[-1, "refresh_bytes"] for each in reported) == halo_rows * 4 * 4
        assert sum(each.get((-1, "start_bytes"), 0) for each in reported) == halo_rows * 4 * 4 * (epoch == 0)


@settings(max_examples=20)
@given(
    graph=graphs(min_vertices=4),
    parts=st.integers(1, 3),
    seed=SEEDS,
    clusters=st.integers(1, 8),
    batch=st.sampled_from([1, 2, 3, None]),
    epoch=st.integers(0, 5),
)
def test_every_training_vertex_is_in_one_batch_of_an_epoch(graph, parts, seed, clusters, batch, epoch):
    assignment = np.arange(graph.num_vertices) % parts
    workers = batches_of(graph, assignment, parts, seed, clusters, batch)
    most = workers[0].steps
    for worker in workers:
        worker.begin(epoch)
    taken = Counter()
    for step in range(workers[0].steps):
        seeds = 0
        for part, worker in enumerate(workers):
            own = np.flatnonzero(assignment == part)
            rows, count_here = worker.rows(step)
            train = graph.train[own[rows]]
            assert train[:count_here].all() and not train[count_here:].any()
            assert len(rows) == 0 or count_here > 0, "a batch without training vertices is skipped"
            taken.update(own[rows].tolist())
            seeds += count_here
        assert {worker.totals[step] for worker in workers} == {seeds}
        assert seeds or not graph.train.any()
    assert set(taken.values()) <= {1} and set(np.flatnonzero(graph.train)) <= set(taken)
    assert {worker.steps for worker in workers} == {workers[0].steps} and workers[0].steps <= most


def test_clusters_are_shuffled_anew_in_every_epoch_and_follow_the_seed():
    graph = random_graph(2, vertices=40)

    def batches(seed: int, epoch: int) -> list[list[int]]:
        (worker,) = batches_of(graph, np.zeros(40, int), 1, seed, 8, 2)
        worker.begin(epoch)
        return [worker.rows(step)[0].tolist() for step in range(worker.steps)]

    assert batches(1, 0) == batches(1, 0)
    assert batches(1, 0) != batches(1, 1) and batches(1, 0) != batches(2, 0)
