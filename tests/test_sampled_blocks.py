"""Draws, blocks and seeds of mini-batches, by themselves."""

import itertools
import re
from collections import Counter
from dataclasses import replace

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
from harness.data.csr import from_edges
from harness.data.graph import Graph, validate
from harness.dev.conformance.subject import facts_of
from harness.run.config import make_system
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import Expander, Names, hop_key
from systems.parts.seeds import Seeds
from tests.oracles import distdgl
from tests.systems import block, shards_of


def expander(graph) -> Expander:
    """Of one worker that owns everything."""
    (shard,) = shards_of(graph, np.zeros(graph.num_vertices, np.int32), 1)
    comm = Comm(0, 1, torch.device("cpu"), Recorder())
    names = Names.gathered(comm, shard, np.asarray(shard.degrees))
    return Expander(names, Own(comm, lists_of(shard, local=False)), "all")


def star(degree: int) -> Graph:
    """A vertex with `degree` in-neighbours, which have none."""
    n, source = degree + 1, np.arange(1, degree + 1, dtype=np.int32)
    edges = from_edges(source, np.zeros(degree, np.int32), n, symmetrise=False, self_loops=False)
    features, labels, everyone = np.ones((n, 1), np.float32), np.zeros(n, np.int32), np.ones(n, bool)
    splits = everyone, ~everyone, ~everyone
    return validate(Graph("star", edges.indptr, edges.indices, features, labels, 2, *splits, False))


def test_every_choice_of_k_among_d_is_as_likely():
    """Over all seeds, epochs, steps and hops together: chi-square over the C(6, 3) choices, and over pairs of
    draws of two hops, which are independent."""
    made, vertex = expander(star(6)), np.zeros(1, np.int32)
    keys = [hop_key(*key) for key in itertools.product(range(4), range(10), range(25), (1, 2))]
    blocks = [made.block(vertex, made.choose(vertex, key, 3, 0)) for key in keys]
    seen = [tuple(sorted(sources[1:].tolist())) for _, sources in blocks]
    counted = Counter(seen)
    assert len(counted) == 20 and stats.chisquare(list(counted.values())).pvalue > 0.001
    pairs = Counter(zip(seen[::2], seen[1::2]))
    table = np.array([[pairs[a, b] for b in counted] for a in counted])
    assert stats.chi2_contingency(table).pvalue > 0.001


@given(d=st.integers(0, 90), most=st.integers(1, 90), key=st.integers(0, 2**64 - 1), again=st.booleans())
def test_draws_are_those_of_the_plain_algorithm(d, most, key, again):
    made, choose = expander(star(d)), distdgl.choose_again if again else distdgl.choose
    made.replace = again
    vertex = np.zeros(1, np.int32)
    found, sources = made.block(vertex, made.choose(vertex, key, most, 0))
    wanted = choose(list(range(1, d + 1)), most, key, 0)
    assert sorted(sources[found.halo.indices + 1].tolist()) == sorted(wanted)
    assert found.num_edges == len(wanted) and found.factor[0] == (d / len(wanted) if wanted else 1)


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
    training, parts = np.arange(sum(counts), dtype=np.int32), len(counts)

    def workers(drop_last: bool) -> list[Seeds]:
        how = 3, split, batches, batch, drop_last
        return [Seeds(training, training, np.array(counts), i, *how) for i in range(parts)]

    lists = [sum(counts)] if batches == "global" else np.diff(workers(False)[0].bounds)
    size = batch * (parts if batches == "global" else 1)
    if 0 < max(lists) < size:
        with pytest.raises(InputError, match="system.drop_last=true leaves no batch"):
            workers(True)
        return
    dropping, taken = workers(True), []
    for step in range(dropping[0].steps):
        seeds = [worker.of(1, step)[0] for worker in dropping]
        whole = [sum(map(len, seeds))] if batches == "global" else [len(each) for each in seeds]
        assert set(whole) <= {0, size}
        taken += seeds
    assert dropping[0].total == sum(map(len, taken)) == len(set(np.concatenate(taken).tolist()))
    assert dropping[0].total == sum(int(n) // size * size for n in lists)


def test_epochs_workers_and_seeds_shuffle_apart():
    training, counts = np.arange(60, dtype=np.int32), np.array([30, 30])
    orders = {
        tuple(Seeds(training, training, counts, rank, seed, "even", "worker", None).of(epoch, 0)[0] % 30)
        for rank in (0, 1) for seed in (1, 2) for epoch in (0, 1)
    }  # fmt: skip
    assert len(orders) == 8


def test_bad_knobs_are_one_sentence():
    with pytest.raises(InputError, match=r"system.fanouts=\[\] is empty: give one per layer"):
        make_system(block("distdgl", fanouts=[]))
    says = "system.remote=zero pulls nothing, and split=even .* give split=owner"
    with pytest.raises(InputError, match=says):
        make_system(block("distdgl", remote="zero"))


@pytest.mark.parametrize(
    "facts, says",
    [
        ({"layers": 1}, r"system.fanouts=\[25, 10\] has 2 fan-outs and the model 1 layer; give one"),
        ({"norm": "batch"}, "has no statistics of all vertices, .*; give model.norm=layer"),
        ({"wire": "bfloat16"}, "wire=bfloat16 cannot be: distdgl .*; give wire=float32"),
        (
            {"features_wire": "auto"},
            "features_wire=auto cannot be: distdgl pulls features by vertex, as they",
        ),
    ],
)
def test_what_it_cannot_run_it_says(facts, says):
    assert re.search(says, make_system(block("distdgl")).supports(replace(facts_of("gcn"), **facts)))
