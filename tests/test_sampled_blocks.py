"""Draws, blocks and seeds of mini-batches, by themselves."""

from __future__ import annotations

import itertools
import re
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.pulls import Own
from harness.comm.recorder import Recorder
from harness.core.adjacency import Adjacency
from harness.core.batches import Block
from harness.core.dropout import dropout_key
from harness.core.kernels.spmm import make_kernel
from harness.core.system import RunFacts
from harness.data.csr import from_edges
from harness.data.graph import Graph, validate
from harness.results import resolved
from harness.results.reader import Trace
from harness.run.config import make_system
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import ALL, Expander, Names, hop_key
from systems.parts.seeds import Seeds
from tests.graphs import graphs
from tests.oracles import distdgl
from tests.oracles.samples import random_graph
from tests.systems import block, shards_of


def expander(graph, remote: str = "all") -> Expander:
    """Of one worker that owns everything."""
    (shard,) = shards_of(graph, np.zeros(graph.num_vertices, np.int32), 1)
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    names = Names.gathered(comm, shard, np.asarray(shard.degrees))
    return Expander(names, Own(comm, lists_of(shard, local=False)), remote)


def in_neighbours(graph, v: int) -> set[int]:
    return {int(u) for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]} - {v}


@given(
    graph=graphs(min_vertices=2),
    most=st.sampled_from([1, 2, 5, ALL]),
    key=st.integers(0, 2**63),
    data=st.data(),
)
def test_a_block_has_its_destinations_first_and_k_distinct_neighbours_of_each(graph, most, key, data):
    n = graph.num_vertices
    size = data.draw(st.integers(0, n))
    frontier = data.draw(st.permutations(range(n)))[:size]
    made = expander(graph)
    found, sources = made.hop(np.array(frontier, np.int32), key, most, 0)
    assert sources[:size].tolist() == frontier and len(set(sources.tolist())) == len(sources)
    assert (made.place == -1).all(), "nothing is left of one block in the next"
    far = sources[size:]
    for i, v in enumerate(frontier):
        near_columns = found.inner.indices[found.inner.indptr[i] : found.inner.indptr[i + 1]]
        far_columns = found.halo.indices[found.halo.indptr[i] : found.halo.indptr[i + 1]]
        for columns in (near_columns, far_columns):
            assert (np.diff(columns) > 0).all()
        drawn = [frontier[c] for c in near_columns] + [int(far[c]) for c in far_columns]
        everybody = in_neighbours(graph, v)
        assert len(set(drawn)) == len(drawn) == min(len(everybody), most) and set(drawn) <= everybody
        assert found.factor[i] == pytest.approx(len(everybody) / max(len(drawn), 1) if drawn else 1.0)


def star(degree: int) -> Graph:
    """A vertex with `degree` in-neighbours, which have none."""
    source = np.arange(1, degree + 1, dtype=np.int32)
    edges = from_edges(source, np.zeros(degree, np.int32), degree + 1, symmetrise=False, self_loops=False)
    none = np.zeros(degree + 1, bool)
    everyone = np.ones(degree + 1, bool)
    features = np.random.default_rng(1).standard_normal((degree + 1, 2)).astype(np.float32)
    return validate(
        Graph(
            "star", edges.indptr, edges.indices, features, np.zeros(degree + 1, np.int32), 2, everyone, none,
            none, False,
        )
    )  # fmt: skip


def test_every_choice_of_k_among_d_is_as_likely():
    """Over all seeds, epochs, steps and hops together: chi-square over the C(6, 3) choices, and over pairs of
    draws of two hops, which are independent."""
    made, vertex = expander(star(6)), np.zeros(1, np.int32)
    keys = [hop_key(*key) for key in itertools.product(range(4), range(10), range(25), (1, 2))]
    seen = [tuple(sorted(made.hop(vertex, key, 3, 0)[1][1:].tolist())) for key in keys]
    counted = Counter(seen)
    assert len(counted) == 20 and stats.chisquare(list(counted.values())).pvalue > 0.001
    pairs = Counter(zip(seen[::2], seen[1::2]))
    table = np.array([[pairs[a, b] for b in counted] for a in counted])
    assert stats.chi2_contingency(table).pvalue > 0.001


@pytest.mark.parametrize("normalisation", ["symmetric", "row", "mean"])
def test_the_mean_over_draws_is_the_exact_layer(normalisation):
    graph = star(6)
    made, vertex = expander(graph), np.zeros(1, np.int32)
    (shard,) = shards_of(graph, np.zeros(7, np.int32), 1)
    whole = Adjacency(shard, normalisation, make_kernel("numba"), torch.device("cpu"))
    x = torch.from_numpy(graph.features)
    total, draws = torch.zeros(2), 2000
    for key in range(draws):
        found, sources = made.hop(vertex, hop_key(0, key, 0, 1), 3, 0)
        layer = Block(found, whole, 0)
        h = x[torch.from_numpy(sources).long()]
        total += layer.apply(layer.inner_rows(h).contiguous(), layer.halo_rows(h).contiguous())[0]
    exact = whole.apply(x, None)[0]
    weight = {"symmetric": 7**-0.5, "row": 1 / 7, "mean": 1 / 6}[normalisation]
    sigma = weight * x[1:].std(0) * 6 / draws**0.5  # of the mean, generously
    assert ((total / draws - exact).abs() < 4 * sigma).all()


@given(d=st.integers(1, 90), most=st.integers(1, 90), key=st.integers(0, 2**64 - 1))
def test_draws_are_those_of_the_plain_algorithm(d, most, key):
    found, sources = expander(star(d)).hop(np.zeros(1, np.int32), key, most, 0)
    assert sorted(sources[1:].tolist()) == distdgl.choose(list(range(1, d + 1)), most, key, 0)


@given(d=st.integers(0, 40), most=st.integers(1, 60), key=st.integers(0, 2**64 - 1))
def test_draws_with_replacement_are_those_of_the_plain_algorithm(d, most, key):
    made = expander(star(d))
    made.replace = True
    (found, sources), wanted = (
        made.hop(np.zeros(1, np.int32), key, most, 0),
        distdgl.choose_again(list(range(1, d + 1)), most, key, 0),
    )
    assert sorted(sources[found.halo.indices + 1].tolist()) == sorted(wanted)
    assert found.num_edges == (most if d else 0) and found.factor[0] == (d / most if d else 1)


def test_every_neighbour_is_as_likely_in_each_draw_with_replacement():
    made, vertex = expander(star(6)), np.zeros(1, np.int32)
    made.replace = True
    counted = np.zeros(6)
    for key in itertools.product(range(4), range(10), range(25), (1, 2)):
        found, sources = made.hop(vertex, hop_key(*key), 3, 0)
        np.add.at(counted, sources[found.halo.indices + 1] - 1, 1)
    assert counted.sum() == 6000 and stats.chisquare(counted).pvalue > 0.001


def test_hop_keys_are_those_of_the_plain_algorithm():
    assert hop_key(3, 5, 7, 2) == distdgl.key_of(3, 5, 7, 2) != hop_key(3, 5, 2, 7)


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    batch=st.one_of(st.none(), st.integers(1, 7)),
    split=st.sampled_from(["even", "owner"]),
    batches=st.sampled_from(["worker", "global"]),
    seed=st.integers(0, 50),
)
def test_every_training_vertex_is_a_seed_once_per_epoch(counts, batch, split, batches, seed):
    training = np.cumsum(np.random.default_rng(seed).integers(1, 5, sum(counts))).astype(np.int32)
    parts = len(counts)
    ids = np.random.default_rng(seed).permutation(1000)[: len(training)]
    workers = [Seeds(training, ids, np.array(counts), i, seed, split, batches, batch) for i in range(parts)]
    steps = {worker.steps for worker in workers}
    assert len(steps) == 1
    for epoch in range(2):
        taken = []
        for step in range(workers[0].steps):
            each = [worker.of(epoch, step) for worker in workers]
            assert {total for _, total in each} == {sum(len(seeds) for seeds, _ in each)}
            if batch is not None and batches == "worker":
                assert all(len(seeds) <= batch for seeds, _ in each)
            if batch is not None and batches == "global":
                assert each[0][1] <= batch * parts
            taken += [seeds for seeds, _ in each]
        assert np.array_equal(np.sort(np.concatenate(taken)), training)
        assert not training.size or any(len(seeds) for seeds in taken[-parts:]), "no step is empty"


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    batch=st.integers(1, 4),
    split=st.sampled_from(["even", "owner"]),
    batches=st.sampled_from(["worker", "global"]),
)
def test_without_the_last_batch_every_batch_is_whole(counts, batch, split, batches):
    """And what is left of the others is as it was."""
    training, parts = np.arange(sum(counts), dtype=np.int32), len(counts)
    how = np.array(counts), 3, split, batches, batch
    whole = [Seeds(training, training, how[0], i, *how[1:]) for i in range(parts)]
    try:
        dropping = [Seeds(training, training, how[0], i, *how[1:], drop_last=True) for i in range(parts)]
    except InputError as error:
        assert "system.drop_last=true leaves no batch" in str(error)
        most = sum(counts) if batches == "global" else int(np.diff(whole[0].bounds).max())
        assert 0 < most < batch * (parts if batches == "global" else 1)
        return
    taken = []
    for step in range(dropping[0].steps):
        each, before = ([w.of(1, step) for w in workers] for workers in (dropping, whole))
        for (seeds, total), (was, _) in zip(each, before):
            assert total == sum(len(seeds) for seeds, _ in each)
            if batches == "worker":
                assert np.array_equal(seeds, was if len(was) == batch else was[:0])
            else:
                assert (np.array_equal(seeds, was) and total == batch * parts) or not sum(counts)
        taken += [seeds for seeds, _ in each]
    assert dropping[0].total == sum(map(len, taken)) == len(set(np.concatenate(taken).tolist()))
    lists = [sum(counts)] if batches == "global" else np.diff(whole[0].bounds)
    assert sum(map(len, taken)) == sum(int(n) // dropping[0].size * dropping[0].size for n in lists)


def test_epochs_workers_and_seeds_shuffle_apart():
    training, counts = np.arange(60, dtype=np.int32), np.array([30, 30])
    orders = {
        tuple(Seeds(training, training, counts, rank, seed, "even", "worker", None).of(epoch, 0)[0] % 30)
        for rank in (0, 1) for seed in (1, 2) for epoch in (0, 1)
    }  # fmt: skip
    assert len(orders) == 8


def test_dropout_keys_tell_steps_apart_and_those_of_full_batches_stay():
    assert dropout_key(1, 2, 3) == (1 << 39) ^ (2 << 19) ^ 3
    large = [(1 + 2**24, 0, 0, 0), (1, 2**20, 0, 0), (1, 0, 128, 0), (1, 0, 0, 2**12), (1, 0, 0, 0)]
    assert len({dropout_key(*each) for each in large}) == len(large), "beyond the bits that each has"
    keys = {dropout_key(1, epoch, l, step) for epoch in (0, 1) for l in (0, 1) for step in range(0, 9000, 3)}
    assert len(keys) == 2 * 2 * 3000 and all(0 <= key < 2**63 for key in keys)


@pytest.mark.parametrize(
    "knobs, says",
    [
        ({"fanouts": []}, r"system.fanouts=\[\] is empty: give one per layer"),
        ({"remote": "zero"}, "system.remote=zero pulls nothing, and split=even .* give split=owner"),
    ],
)
def test_bad_knobs_are_one_sentence(knobs, says):
    with pytest.raises(InputError, match=says):
        make_system(block("distdgl", **knobs))


@pytest.mark.parametrize(
    "facts, says",
    [
        ({"layers": 3}, r"system.fanouts=\[25, 10\] has 2 fan-outs and the model 3 layers; give one"),
        ({"norm": "batch"}, "no statistics of all for model.norm=batch; give model.norm=layer"),
        ({"wire": "bfloat16"}, "wire=bfloat16 cannot be: distdgl .*; give wire=float32"),
    ],
)
def test_what_it_cannot_run_it_says(facts, says):
    run = RunFacts("gcn", True, 2, True, False, **facts)
    assert re.search(says, make_system(block("distdgl")).supports(run))
    assert make_system(block("distdgl", fanouts=[7])).supports(RunFacts("gat", False, 2, True, False)) is None


def test_knobs_that_change_nothing_are_named():
    assert make_system(block("distdgl")).traits().ineffective == []
    (said,) = make_system(block("distdgl", features="refetch", policy="random")).traits().ineffective
    assert "system.policy=random has no effect: no row is cached at system.cache=0" in said
    (said,) = make_system(block("distdgl", cache=0.5)).traits().ineffective
    assert "system.cache=0.5 has no effect: system.features=once keeps every row" in said
    (said,) = make_system(block("distdgl", service="exchange", prefetch=7)).traits().ineffective
    assert "system.prefetch=7 has no effect: under system.service=exchange" in said
    all_of_them = {"fanouts": None, "batch": None, "redraw": "vertex", "replace": True, "drop_last": True}
    said = " ".join(make_system(block("distdgl", **all_of_them)).traits().ineffective)
    for knob in ("redraw=vertex", "replace=True", "drop_last=True"):
        assert f"system.{knob} has no effect" in said


def test_leaves_stand_for_the_rows_of_other_workers():
    """At remote=zero they are no sources of a block below, and keep their part of the degrees."""
    graph = random_graph(3, vertices=20)
    assignment = np.arange(20, dtype=np.int32) % 2
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    shard = shards_of(graph, assignment, 2)[0]
    order = np.argsort(assignment, kind="stable").astype(np.int32)
    degrees = graph.in_degrees()[order]
    names = Names(np.array([0, 10, 20]), order, degrees, 0)
    made = Expander(names, Own(comm, lists_of(shard, local=False)), "zero")
    found, sources = made.hop(np.arange(4, dtype=np.int32), 1, ALL, 0)
    assert (sources < 10).all() and found.leaves == len(found.halo_ids) - (len(sources) - 4) > 0
    assert set(found.halo_ids[-found.leaves :] % 2) == {1}
    assert found.num_edges == sum(len(in_neighbours(graph, int(v))) for v in order[:4])


ASKED = ("system=distdgl", "system.fanouts=[3]", "system.batch=5")


def test_a_run_says_how_many_steps_an_epoch_has(place):
    done = place.run(*ASKED, "epochs=2")
    assert done.code == 0, done.err
    (run,) = place.runs()
    metrics, spans = Trace(run).metrics, Trace(run).spans
    (steps,) = set(metrics[metrics["name"] == "steps"].value)
    assert resolved.read(run)["steps"] == steps > 1
    summed = spans.query("worker == 0 and epoch == 1 and kind == 'comm' and name == 'all_reduce'")
    assert len(summed) == steps, "weights are summed once per step"
