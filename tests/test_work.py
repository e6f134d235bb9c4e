"""What is counted of a worker's computing, against counts that are made another way."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from harness.comm import work
from harness.comm.recorder import Recorder
from harness.core import counting
from harness.core.combine import owned_rows, smaller_as
from harness.core.propagate import BackwardMark
from tests import systems
from tests.jobs import counted_apart
from tests.oracles.samples import random_graph
from tests.systems import Settings


@pytest.mark.parametrize(
    "name, model, features",
    [
        ("vanilla", "gcn", "refetch"),
        ("vanilla", "sage", "once"),
        ("vanilla", "gat", "refetch"),
        ("cagnet", "gcn", "once"),
        ("cagnet", "sage", "refetch"),
        ("cdfgnn", "gcn", "refetch"),
    ],
)
def test_every_product_of_training_is_counted_where_it_runs(pool, name, model, features):
    """By segment: dense products as torch is asked for them, sparse ones as their kernel is, edge softmaxes
    as the compiled loops are; all of both passes, and nothing of evaluation."""
    graph = random_graph(12, vertices=40, directed=name != "cdfgnn")
    heads = {"heads": 2, "out_heads": 1} if model == "gat" else {}
    block = systems.small(model, 3, 6, **heads)
    asked = systems.block(name, features=features)
    outcome = systems.run(pool, graph, asked, 2, settings=Settings(model=block), job=counted_apart)
    for worker in outcome.workers:
        for told, seen in zip(worker["told"], worker["seen"], strict=True):
            assert told == seen
        kinds = {kind for told in worker["told"] for kind, *_ in told}
        assert kinds == ({"dense", "attention"} if model == "gat" else {"dense", "sparse"})


def test_what_passes_over_rows_is_counted_in_both_passes():
    recorder = Recorder()
    recorder.begin_epoch(0)
    x = torch.ones(5, 3, requires_grad=True)
    with recorder.train():
        recorder.segment("compute", "forward", 0)
        z = counting.streamed(torch.relu(x), recorder, reads=1, writes=1, back=(2, 1))
        BackwardMark.apply(z, recorder, 0).sum().backward()
        recorder.segment("compute", "optimiser")
        made = torch.optim.Adam([x, torch.ones(7, requires_grad=True)])  # one of them takes no step
        made.step()
        recorder.work(*counting.stepped(made))
    counting.streamed(torch.relu(x), recorder, reads=1, writes=1)
    found = {s.name: [(w.read, w.written) for w in s.work] for s in recorder.epoch.spans if s.work}
    assert found == {"forward": [(60, 60)], "backward": [(120, 60)], "optimiser": [(240, 180)]}


def trained(pool, name: str, combine: dict | None = None, **knobs) -> systems.Outcome:
    block, how = systems.block(name, **knobs), Settings(combine=combine)
    return systems.run(pool, random_graph(12, vertices=40), block, 2, settings=how)


def epochs_of(outcome: systems.Outcome) -> Iterator[tuple[list, dict]]:
    """Spans and metrics of every worker and epoch."""
    for worker in outcome.workers:
        for (_, spans), metrics in zip(worker["spans"], worker["metrics"], strict=True):
            yield spans, metrics


def passes(pool, name: str, segment: str, **knobs) -> list[list[work.Work]]:
    """By worker and epoch, passes over rows in segments of one name."""
    return [
        [each for span in spans if span.name == segment for each in span.work if each.kind == "stream"]
        for spans, _ in epochs_of(trained(pool, name, **knobs))
    ]


@pytest.mark.parametrize("local, shared", [(3, 0), (0, 10**6)])
def test_rows_picked_out_of_tiers_are_counted_as_often_as_they_move(pool, local, shared):
    """Of the own tier out of it and into the halo, and in a refresh out of the halo and into it; of the
    global tier into the halo."""
    knobs = {"features": "refetch", "rapa": False, "pipeline": False, "refresh": 3}
    outcome = trained(pool, "capgnn", **knobs, local_capacity=local, global_capacity=shared)
    for spans, metrics in epochs_of(outcome):
        picks = [each for span in spans if (span.name, span.layer) == ("pick", 1) for each in span.work]
        lookups = metrics[1, "lookups"]
        assert sum(w.rows for w in picks) == (lookups if shared else 2 * min(local, lookups)) > 0


@pytest.mark.parametrize("name", ["pscgcn", "bns"])
def test_a_draw_is_counted_and_the_blocks_that_are_made_of_it_are_not(pool, name):
    """So that a replay takes these as they were traced."""
    spans = [span for each, _ in epochs_of(trained(pool, name)) for span in each]
    drawn = [work.kind for span in spans if span.name in ("draw", "sample") for work in span.work]
    assert drawn and set(drawn) == {"sample"}
    blocks = [span for span in spans if span.name == "blocks"]
    assert blocks and not any(list(span.work) for span in blocks)


@pytest.mark.parametrize("name", ["vanilla", "pscgcn", "adaqp"])
def test_rows_packed_for_others_are_counted_once_per_row_that_is_sent(pool, name):
    outcome = trained(pool, name)
    for epoch in range(2, 4):
        spans = [span for worker in outcome.workers for span in worker["spans"][epoch][1]]
        packing = [span for span in spans if (span.name, span.layer) == ("pack", 1)]
        packed = sum(each.rows for span in packing for each in span.work if each.kind == "pack")
        assert packed == outcome.sent(epoch)[1, "forward", "halo"][0] > 0


def test_inputs_of_a_batch_are_counted_and_those_pulled_as_often_as_they_are_copied(pool):
    """Joined, ordered and kept, and then gathered as all others are."""
    for spans, metrics in epochs_of(trained(pool, "distdgl", fanouts=[2, 2], batch=4)):
        gathered = [each for span in spans if span.name == "gather" for each in span.work]
        assert {each.kind for each in gathered} == {"pack"}
        moves = metrics[-1, "inputs"] + 3 * metrics[-1, "pulled"]
        assert sum(each.rows for each in gathered) == moves > 0


WAYS = {
    "exact": {},
    "quantised": {"_target_": "harness.core.combine.Quantised", "bits": 4},
    "powersgd": {"_target_": "harness.core.combine.PowerSgd", "rank": 2},
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_done_to_gradients_is_counted(pool, way):
    """Exact: put together and taken apart. Quantised: the others' rows coded upwards, the own ones read from
    each other worker and coded downwards, every row read. PowerSGD: four products of each matrix, and a
    basis, which counts as two."""
    outcome, workers = trained(pool, "vanilla", WAYS[way]), 2
    shapes = [value.shape for value in outcome.weights[0].values()]
    matrices = [shape for shape in shapes if len(shape) == 2]
    for rank, worker in enumerate(outcome.workers):
        for _, spans in worker["spans"]:
            did = [each for span in spans if span.name == "combine" for each in span.work]
            if way == "exact":
                assert [(w.kind, w.read, w.written) for w in did] == [
                    ("stream", *[2 * 8 * sum(int(np.prod(shape)) for shape in shapes)] * 2)
                ]
            elif way == "quantised":
                owned = [len(owned_rows(rows, rank, workers)) for rows, _ in matrices]
                coded = sum(each.rows for each in did if each.kind == "code")
                assert coded == sum(2 * rows + (workers - 1) * own for (rows, _), own in zip(matrices, owned))
            else:
                products = [each for each in did if each.kind == "dense"]
                assert len(products) == 6 * sum(smaller_as(shape, 2) for shape in shapes) > 0


@pytest.mark.parametrize("name", ["cagnet", "sancus"])
def test_rows_picked_out_of_blocks_are_counted_once_per_product(pool, name):
    for did in passes(pool, name, "unpack", features="refetch"):
        # forwards by layer, the narrower side of each, and backwards
        assert [each.width for each in did] == [5, 4, 3, 4]
        assert all(each.read == each.written == 8 * each.rows * each.width > 0 for each in did)


def test_rows_compared_with_a_cache_are_counted_where_there_is_one(pool):
    """Per layer and direction: mirrors' parts and masters' own are compared, and at most as many rows are
    moved as without a cache."""
    cached, plain = (passes(pool, "cdfgnn", "cache", cache=each) for each in (True, False))
    for with_it, without in zip(cached, plain, strict=True):
        compared = [each for each in with_it if not each.written]
        assert compared and not any(each.written == 0 for each in without)
        assert all(each.read == 2 * 8 * each.rows * each.width for each in compared)
        assert 0 < sum(each.written for each in with_it) <= sum(each.written for each in without)
