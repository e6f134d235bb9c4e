"""GraphSAINT against an oracle of its equations, at the knobs at which it is another system, and its sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.partition.shard import Csr
from systems.parts.subgraphs import Counts, Sampler, induced
from tests import systems
from tests.graphs import graphs
from tests.oracles import bytes as count
from tests.oracles import graphsaint
from tests.oracles.samples import graph_of_kind, keeping, random_graph, targets_of
from tests.systems import Settings

SEEDS = st.integers(0, 10_000)
KINDS = st.sampled_from(["walk", "edge", "node"])


def whole_of(graph, index=np.int32) -> Csr:
    """The edges of a graph as a single worker's shard has them: without self-loops. index: of `indptr`, which
    is int64 from 2^31 edges on."""
    left = keeping(graph, targets_of(graph) != graph.indices)
    return Csr(left.indptr.astype(index), np.asarray(left.indices), graph.num_vertices)


def rows_of(edges: Csr) -> np.ndarray:
    return np.repeat(np.arange(edges.num_rows), np.diff(edges.indptr))


def pools_of(graph, assignment, parts: int, seed: int, knobs: dict) -> tuple[list[list[np.ndarray]], int]:
    """By worker, the sets that it trains on, as global ids; and the steps of an epoch."""
    pools, most = [], 0
    for part in range(parts):
        members = graphsaint.members_of(graph, assignment, part, knobs["graph"] == "train")
        among = induced(whole_of(graph), members.astype(np.int32))[0]
        sampler = Sampler(among, knobs["sampler"], knobs["budget"], knobs["length"], seed, part)
        sets = Counts.of(sampler, knobs["coverage"]).sets
        pools.append([members[sampler.vertices(number)] for number in range(sets)])
        most = max(most, len(members))
    return pools, 1 if knobs["budget"] is None else max(1, -(-most // knobs["budget"]))


@settings(max_examples=9)
@given(
    seed=SEEDS,
    parts=st.integers(1, 3),
    directed=st.booleans(),
    model=st.sampled_from(["gcn", "sage"]),
    layers=st.integers(1, 3),
    kind=st.sampled_from(["plain", "multilabel", "weighted"]),
    knobs=st.fixed_dictionaries({
        "sampler": KINDS,
        "budget": st.sampled_from([1, 3, 7, 12, None]),
        "length": st.integers(1, 3),
        "coverage": st.sampled_from([0.5, 2.0, 6.0]),
        "graph": st.sampled_from(["all", "train"]),
    }),
)  # fmt: skip
def test_losses_and_weights_equal_the_oracle(pool, seed, parts, directed, model, layers, kind, knobs):
    graph = graph_of_kind(kind, seed, directed)
    shape = systems.small(model, layers)
    how = Settings(model=shape, seed=seed % 100, epochs=3)
    outcome = systems.run(pool, graph, systems.block("graphsaint", **knobs), parts, settings=how)
    drawn = pools_of(graph, outcome.assignment, parts, how.seed, knobs)
    among = {"model": model, "train_only": knobs["graph"] == "train"}
    want = systems.history(graphsaint.train, graph, outcome, how, *drawn, **among)
    systems.assert_trained_alike(outcome, want, rtol=1e-6)
    parameters = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(how.epochs):
        reported = [worker["metrics"][epoch] for worker in outcome.workers]
        assert {each[-1, "steps"] for each in reported} == {drawn[1]}
        sent = outcome.sent(epoch)
        assert {purpose for _, _, purpose in sent} <= {"weights"}
        if parts > 1:
            size = drawn[1] * 2 * count.all_reduce(parameters, parts)  # of float64
            assert sent[-1, "backward", "weights"][1] == size


@settings(max_examples=25)
@given(
    graph=graphs(min_vertices=3),
    kind=KINDS,
    budget=st.integers(1, 9),
    length=st.integers(1, 3),
    coverage=st.sampled_from([1.0, 4.0]),
    seed=SEEDS,
)
def test_weights_are_unbiased_over_the_counted_sets(graph, kind, budget, length, coverage, seed):
    """Over the sets, N / C_v has mean 1 at every vertex that one of them holds, and over those that hold v,
    C_v / C_vu has mean 1 at every edge that one of them holds."""
    whole = whole_of(graph)
    sampler = Sampler(whole, kind, budget, length, seed, 0)
    counts = Counts.of(sampler, coverage)
    sets = [sampler.vertices(number) for number in range(counts.sets)]
    sizes = np.array([len(each) for each in sets])
    assert sizes.sum() > coverage * graph.num_vertices >= sizes[:-1].sum(), "as few sets as cover enough"
    seeds, edges = np.zeros(graph.num_vertices), np.zeros(whole.num_entries)
    rows = rows_of(whole)
    for found in sets:
        assert len(set(found.tolist())) == len(found) and (np.diff(found) > 0).all()
        seeds[found] += counts.sets / counts.vertices[found]
        places = induced(whole, found)[1]
        edges[places] += counts.vertices[rows[places]] / counts.edges[places]
    held = counts.vertices > 0
    np.testing.assert_allclose(seeds[held] / counts.sets, 1)
    met = counts.edges > 0
    np.testing.assert_allclose(edges[met] / counts.vertices[rows[met]], 1)


@settings(max_examples=25)
@given(
    graph=graphs(min_vertices=2), seed=SEEDS, mixed=st.booleans(), index=st.sampled_from([np.int32, np.int64])
)
def test_an_induced_graph_has_the_edges_between_its_vertices(graph, seed, mixed, index):
    """Numbered as they are given: two ascending runs, as a batch has them, or one."""
    generator = np.random.default_rng(seed)
    chosen = np.flatnonzero(generator.random(graph.num_vertices) < 0.6)
    if mixed:
        first = generator.random(len(chosen)) < 0.5
        chosen = np.concatenate([chosen[first], chosen[~first]])
    dense = np.zeros((graph.num_vertices, graph.num_vertices), int)
    whole = whole_of(graph, index)
    dense[rows_of(whole), whole.indices] = 1
    scratch = np.full(graph.num_vertices, -1, np.int32)
    found, places = induced(whole, chosen.astype(np.int32), scratch)
    assert found.indptr.dtype == index and (scratch == -1).all()
    made = np.zeros((len(chosen), len(chosen)), int)
    made[rows_of(found), found.indices] = 1
    np.testing.assert_array_equal(made, dense[np.ix_(chosen, chosen)])
    np.testing.assert_array_equal(whole.indices[places], chosen[found.indices])
    assert all((np.diff(found.indices[a:b]) > 0).all() for a, b in zip(found.indptr, found.indptr[1:]))


@pytest.mark.parametrize("kind", ["walk", "edge", "node"])
def test_vertices_are_drawn_as_often_as_is_said(kind):
    """A walk of one step, an edge, or two vertices per set, over 10,000 sets: within five standard
    deviations."""
    graph, sets = random_graph(3, vertices=12), 10_000
    whole = whole_of(graph)
    degrees, rows, n = np.diff(whole.indptr), rows_of(whole), graph.num_vertices
    sampler = Sampler(whole, kind, 2, 1, 5, 0)
    found = np.zeros(graph.num_vertices)
    for number in range(sets):
        found[sampler.vertices(number)] += 1
    if kind == "walk":  # a root and a step: at v, or at another and then at v
        step = np.zeros((n, n))
        step[rows, whole.indices] = 1 / degrees[rows]
        expected = 1 / n + step.sum(0) / n
    elif kind == "node":  # two draws
        shares = np.maximum(degrees, 1)
        expected = 1 - (1 - shares / shares.sum()) ** 2
    else:
        inverse = 1 / np.maximum(degrees, 1)
        shares = inverse[rows] + inverse[whole.indices]
        ends = np.bincount(rows, shares, n) + np.bincount(whole.indices, shares, n)
        expected = ends / shares.sum()
    deviation = np.sqrt(expected * (1 - expected) / sets)
    assert (np.abs(found / sets - expected) < 5 * deviation + 1e-9).all()


def test_sets_follow_seed_worker_and_number():
    graph = random_graph(2, vertices=40)
    whole = whole_of(graph)

    def sets(seed: int, worker: int, kind: str) -> list[list[int]]:
        sampler = Sampler(whole, kind, 10, 2, seed, worker)
        return [sampler.vertices(number).tolist() for number in range(4)]

    for kind in ("walk", "edge", "node"):
        first = sets(1, 0, kind)
        assert first == sets(1, 0, kind) and len({str(each) for each in first}) == 4
        assert first != sets(2, 0, kind) and first != sets(1, 1, kind)


@pytest.mark.parametrize("kind", ["walk", "edge", "node"])
def test_a_graph_without_edges_is_drawn_from_uniformly(kind):
    whole = Csr(np.zeros(9, np.int32), np.empty(0, np.int32), 8)
    counts = Counts.of(Sampler(whole, kind, 3, 2, 1, 0), 50)
    assert counts.sets > 50 and (counts.vertices > 0).all()
    assert (
        Counts.of(Sampler(Csr(np.zeros(1, np.int32), np.empty(0, np.int32), 0), kind, 3, 2, 1, 0), 9).sets
        == 0
    )
