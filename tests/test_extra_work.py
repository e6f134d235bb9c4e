"""Rows that `lean` computes for others: what a minimum cut chooses, and what then travels; more work never
sends more, nor more than `replicate` does.
"""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.dev.conformance.runs import make_trainer
from harness.model.plan.dry import dry_run
from systems.parts.extension import Around
from systems.parts.recompute import Cuts, Sent
from tests import systems
from tests.oracles import dense
from tests.oracles.lean import needed_sets
from tests.test_cover import csr, matching
from tests.test_systems_oracle_lean import EXACT_SUMS, RUN, drawn


def planned(graph, assignment, how, block):
    """Trainers of all workers after two epochs on shapes, and what they sent in the last: by layer, pass,
    purpose, sender and receiver."""
    trainers = {}

    def make(shard, comm, kernel):
        asked = replace(how, epochs=2, combine=EXACT_SUMS)
        made = trainers[comm.rank] = make_trainer(comm, block, asked, shard, kernel)
        return made

    parts = int(assignment.max()) + 1
    ran = dry_run(systems.shards_of(graph, assignment, parts), make, 2)
    sent = {
        (*key[:3], rank, *key[3:]): size
        for rank, epochs in enumerate(ran.epochs)
        for key, (_, size) in epochs[1].sent.items()
        if key[2] in ("halo", "features")
    }
    return [trainers[rank] for rank in range(parts)], sent


def assigned(run) -> np.ndarray:
    """A random part for each vertex; none is empty."""
    parts = run["parts"]
    return np.random.default_rng(run["seed"]).permutation(np.arange(22) % parts)


def last_rows(graph, layers: int, rows: str) -> list[np.ndarray]:
    """R_0 .. R_L  [V] bool."""
    return needed_sets(graph, layers) if rows == "needed" else [np.ones(22, bool)] * (layers + 1)


def closed_form(graph, assignment, trainers, how, knobs, multilabel) -> dict:
    """What `planned` says is sent, of the rows that each worker takes in each layer."""
    system = trainers[0].system
    widths, layers, parts = system.widths, system.num_layers, len(trainers)
    edges, ends = dense.adjacency(graph) != 0, last_rows(graph, layers, how.rows)[-1]
    found = {}
    for (i, trainer), l in product(enumerate(trainers), range(layers)):
        ids = trainer.cut.ids
        given = ids[l + 1][0].numpy() if l + 1 < layers else np.flatnonzero(ends & (assignment == i))
        taken, halo = (each.numpy() for each in ids[l])
        assert set(np.flatnonzero(edges[given].any(0))) <= {*taken, *halo} and not {*taken} & {*halo}
        for j in set(range(parts)) - {i}:
            theirs = taken[assignment[taken] == j]
            if knobs["features"] == "refetch" and l == 0 and len(theirs):
                found[0, "forward", "features", j, i] = 4 * widths[0] * len(theirs)
            if l == 0 and knobs["features"] == "once":
                continue
            spared = int(l == layers - 1 and not multilabel)
            width = min(widths[l], widths[l + 1] - spared) if knobs["narrow"] else widths[l]
            block = edges[np.ix_(given, halo[assignment[halo] == j])]
            count = matching(block) if knobs["messages"] == "cover" else int(block.any(0).sum())
            bits = knobs["bits"]
            size = width * (-(-count * bits // 8) + 2) if bits < 32 else 4 * width * count
            if count:
                found[l, "forward", "halo", j, i] = size
                if l or width < widths[0]:  # of X, that is not multiplied by W, nobody asks for a gradient
                    found[l, "backward", "halo", i, j] = size
    return found


def works(graph, assignment, trainers, ends) -> np.ndarray:
    """[P] operations of an epoch, by the docstring, of the rows that each worker takes in each layer."""
    edges, filled = dense.adjacency(graph) != 0, (graph.features != 0).sum(1)
    widths, found = trainers[0].system.widths, np.zeros(len(trainers))
    for i, trainer in enumerate(trainers):
        ids = [each[0].numpy() for each in trainer.cut.ids] + [np.flatnonzero(ends & (assignment == i))]
        for l, (f_in, f_out) in enumerate(zip(widths, widths[1:])):
            n, e = len(ids[l + 1]), int(edges[ids[l + 1]].sum())
            z = filled[np.concatenate([each.numpy() for each in trainer.cut.ids[0]])].sum()
            if l:
                found[i] += 6 * n * f_in * f_out + 4 * (e + n) * min(f_in, f_out)
            elif 2 * (z + e) < n * f_in:
                found[i] += 4 * (z + e + n) * f_out
            else:
                found[i] += 4 * n * f_in * f_out
    return found


def holds(run, rows, features, bits, mode, row, sparse):
    graph, how = drawn(run)
    how, assignment = replace(how, rows=rows), assigned(run)
    if sparse:
        there = np.random.default_rng(run["seed"]).random(graph.features.shape) < 0.2
        graph = replace(graph, features=graph.features * there)
    ends = last_rows(graph, run["layers"], rows)[-1]

    def plan(name, **knobs):
        block = systems.block(name, features=features, **knobs)
        trainers, sent = planned(graph, assignment, how, block)
        return (
            trainers,
            works(graph, assignment, trainers, ends),
            {key: size for key, size in sent.items() if size},
        )

    knobs = {name: run[name] for name in ("narrow", "messages")} | {"bits": bits}
    alone = np.maximum(plan("lean", **knobs)[1], 1)
    _, work, sent = plan("replicate", mode=mode, row=row)
    # Layer 0's narrower side is narrower of both passes' values only where it is less than half of f_0.
    most = sum(sent.values()) if bits == 32 and features == "once" else np.inf
    share = float(max(*(work / alone - 1), 0.01))
    for more in (share, 2.5 * share):
        trainers, work, sent = plan("lean", **knobs, extra_work=more)
        assert sent == closed_form(
            graph, assignment, trainers, how, {**knobs, "features": features}, run["multilabel"]
        )
        np.testing.assert_allclose([t.system.used for t in trainers], work / alone - 1, atol=1e-12)
        assert max(work / alone - 1) <= more + 1e-12
        assert sum(sent.values()) <= most, "more work never sends more, nor more than replicate"
        most = sum(sent.values())


ASKED = st.fixed_dictionaries({
    "run": st.fixed_dictionaries(RUN),
    "rows": st.sampled_from(["needed", "all"]),
    "features": st.sampled_from(["once", "refetch"]),
    "bits": st.sampled_from([8, 32, 32]),
    "mode": st.sampled_from(["cache", "hybrid"]),
    "row": st.sampled_from([1, 2, 4, 16]),
    "sparse": st.booleans(),
})  # fmt: skip


@settings(max_examples=2)
@given(ASKED)
def test_bytes_are_the_closed_form_and_no_more_than_of_replicate_at_as_much_work(asked):
    holds(**asked)


@pytest.mark.nightly(200)
@settings(max_examples=60)
@given(ASKED)
def test_that_of_many(asked):
    holds(**asked)


@st.composite
def surroundings(draw):
    """Three own vertices and up to four others of two workers, any edges, the last H[l] of each own row, and
    what travels."""
    others, layers = draw(st.integers(1, 4)), draw(st.integers(2, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = rng.random((3 + others,) * 2) < draw(st.sampled_from([0.3, 0.6, 1.0]))
    np.fill_diagonal(edges, False)
    owners = np.sort(rng.integers(1, 3, others))
    shard = SimpleNamespace(inner=np.arange(3 + others), inner_edges=csr(edges))
    of = Around(shard, 3, owners, np.arange(others), 0)
    first = draw(st.booleans())  # whether features are refetched
    widths, passes = rng.integers(1, 5, layers).tolist(), [int(first), *[2] * (layers - 1)]
    code = draw(st.sampled_from([(8, False), (4, True), (32, False)]))
    sent = Sent(widths, passes, 12 * first, code, draw(st.booleans()))
    ops = np.concatenate([np.zeros((1, 3 + others), int), rng.integers(1, 9, (layers, 3 + others))])
    return of, edges, rng.integers(-1, layers + 1, 3), ops, sent


def choices(of, edges, top, ops, sent):
    """Of every choice of the last H[l] of each other's row: bytes, and which rows (l, v) it computes."""
    layers = len(ops) - 1
    for chosen in product(range(layers), repeat=len(of.owners)):
        depth = np.array([*top, *chosen])
        size = sent.kept * sum(l > 0 for l in chosen)
        for l, j in product(range(layers), (1, 2)):
            fetched = 3 + np.flatnonzero((of.owners == j) & (depth[3:] < max(l, 1)))
            block = edges[np.ix_(depth > l, fetched)]
            size += sent.each(l) * (matching(block) if sent.sums else int(block.any(0).sum()))
        yield size, {(l, 3 + u) for u, last in enumerate(chosen) for l in range(1, last + 1)}


@settings(max_examples=60)
@given(surroundings(), st.integers(0, 40))
def test_a_cut_is_the_least_of_all_choices_at_its_price_and_its_bound_below_all_within_the_budget(
    given, most
):
    of, edges, top, ops, sent = given
    cuts, every = Cuts(of, top, ops, sent), list(choices(*given))
    wanted = set(zip(cuts.layers.tolist(), cuts.rows.tolist()))
    chosen = cuts.within(most)
    mine = {(l, v) for v, last in enumerate(chosen.tolist()) for l in range(1, last + 1)}
    for step, (taken, size) in cuts.cuts.items():
        worth = np.floor(cuts.price(step) * cuts.worth)
        price = dict(zip(zip(cuts.layers.tolist(), cuts.rows.tolist()), worth))
        found = [each * cuts.unit + sum(price[row] for row in rows) for each, rows in every if rows <= wanted]
        assert size == min(found)
    work = {row: ops[row] for _, rows in every for row in rows}
    within = [each for each, rows in every if sum(work[row] for row in rows) <= most]
    got = next(each for each, rows in every if rows == mine)
    assert sum(work[row] for row in mine) <= most
    assert cuts.bound(most) <= min(within) <= got
