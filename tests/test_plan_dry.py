"""A dry run, against real ones of every system in the tree on tiny graphs: bytes, segments and work."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from harness.base.hollow import Dry, Held, Hollow, Unknown
from harness.comm.work import dense, sparse, stream
from harness.core.batches import BatchSystem
from harness.core.cluster import Cluster, Device, Rate
from harness.core.mixins import AsynchronousSystem
from harness.core.order import FIXED, Shape
from harness.dev.conformance.runs import make_trainer
from harness.model.plan.dry import Ran, dry_run
from harness.model.plan.sized import MODELLED, said
from harness.model.replay.roofline import Roofline
from harness.run.config import make_system
from tests import systems
from tests.oracles.samples import random_graph
from tests.pieces import COMBINES
from tests.systems import Settings, label

SMALL = systems.small("gcn", 3, dropout=0.5)


def alike(value) -> str:
    """Equal for values that are alike to a dry run: numbers that are 0, at most 1, or more."""
    return f"number {(value > 0) + (value > 1)}" if type(value) in (int, float) else str(value)


def variants() -> list[tuple[str, dict]]:
    """Of what the systems' tests try and a dry run can be of, so many that every value of a knob is in one:
    first what has most values that none before it has."""
    asked: list[tuple[tuple[str, dict], set]] = []
    for name, knobs in [*systems.EXACT_VARIANTS, *systems.SINGLE_VARIANTS, *systems.STALE_VARIANTS]:
        block = systems.block(name, **knobs)
        made = make_system(block)
        drawn = isinstance(made, BatchSystem) and name != "grappa"  # whose batch is all that it holds
        if not drawn and not isinstance(made, AsynchronousSystem):
            asked.append(((name, knobs), {(name, knob, alike(value)) for knob, value in block.items()}))
    found, seen = [], set()
    while any(values - seen for _, values in asked):
        variant, values = max(asked, key=lambda each: len(each[1] - seen))
        found.append(variant)
        seen |= values
    return found


COUNTING = {"period", "refresh", "interval", "bound", "tau", "slope", "warmup"}
ONLY_A_RUN = "pscgcn-rate=0.5-refresh=3-features=refetch"  # its cache goes by norms


def dry(block, asked: Settings, shards, most: bool = False) -> Ran:
    def make(shard, comm, kernel):
        return make_trainer(comm, block, asked, shard, kernel)

    return dry_run(shards, make, asked.epochs, most=most)


def assert_alike(outcome, ran: Ran) -> None:
    """What each worker counted in each epoch, its segments in their order, and what it computed in them."""
    for rank, worker in enumerate(outcome.workers):
        for epoch, own in enumerate(ran.epochs[rank]):
            where = f"worker {rank}, epoch {epoch}"
            assert {key: tuple(both) for key, both in own.sent.items()} == worker["sent"][epoch], where
            mine, theirs = own.spans, worker["spans"][epoch][1]
            assert [_line(s) for s in mine] == [_line(s) for s in theirs], where
            assert [Counter(s.work) for s in mine] == [Counter(s.work) for s in theirs], where


def _line(span) -> tuple:
    return span.kind, span.name, span.layer, span.bytes, span.peers, span.peer_bytes, span.route


def assert_between(outcome, least: Ran, most: Ran) -> None:
    for rank, worker in enumerate(outcome.workers):
        for epoch, counted in enumerate(worker["sent"]):
            ends = [ran.epochs[rank][epoch].sent for ran in (least, most)]
            for key in {*counted, *ends[0], *ends[1]}:
                low, high = sorted(end.get(key, (0, 0))[1] for end in ends)
                assert low <= counted.get(key, (0, 0))[1] <= high, f"worker {rank}, epoch {epoch}: {key}"


@pytest.mark.parametrize("variant", variants(), ids=label)
def test_a_dry_run_counts_and_computes_what_a_run_does(pool, variant):
    """For every system that draws no mini-batch and is not asynchronous: the same, or where values decide a
    range around it."""
    graph, block = random_graph(21, vertices=40), systems.block(variant[0], **variant[1])
    # All epochs after the first are alike, but where a knob counts them and is not the exact one.
    periodic = COUNTING & block.keys() and variant not in systems.EXACT_VARIANTS
    asked = Settings(model=SMALL, dtype="float32", epochs=4 if periodic else 2)
    workers = 3 + 3 % block.get("hosts", 1)
    outcome = systems.run(pool, graph, block, workers, settings=asked)
    shards = systems.shards_of(graph, outcome.assignment, workers)
    if label(variant) == ONLY_A_RUN:
        with pytest.raises(Unknown):
            dry(block, asked, shards)
        return
    ran = dry(block, asked, shards)
    if ran.asked:
        assert_between(outcome, ran, dry(block, asked, shards, most=True))
    else:
        assert_alike(outcome, ran)
    knobs = type(make_system(block)).exact
    by_values = variant[0] in ("adaqp", "cdfgnn", "pscgcn", "sancus")
    assert not ran.asked or by_values or block != systems.block(variant[0], **(knobs or {}))


# A way to sum gradients has nothing to do with what else a run may ask for: one run tries both.
POWERSGD, QUANTISED, TOPK = ({"combine": COMBINES[way]} for way in ("powersgd", "quantised", "topk"))
OF_THE_CORE = [
    ({"rows": "needed", **POWERSGD}, {"hidden": 40}),
    ({"features_wire": "auto", **QUANTISED}, {"name": "gat", "hidden": 40}),
    (TOPK, {"norm": "batch", "residual": True, "hidden": 40}),
]
OF_SYSTEMS = {"rows": "needed", "features_wire": "sparse"}, {"name": "sage", "hidden": 9, "norm": "batch"}


@pytest.mark.parametrize(
    "name, choices, model",
    [
        *(("vanilla", *asked) for asked in OF_THE_CORE),
        *((name, *OF_SYSTEMS) for name in ("vanilla", "cagnet", "cdfgnn", "lean", "replicate")),
    ],
    ids=str,
)
def test_what_a_run_asks_for_is_in_its_dry_run(pool, name, choices, model):
    """But for what the system refuses."""
    block = systems.block(name, **({"cache": False} if name == "cdfgnn" else {}))
    lacks = {"rows"} if make_system(block).refuses.needed_rows else set()
    if model.get("name", "gcn") not in systems.models_of(name):
        lacks.add("name")
    if name == "lean":
        lacks.add("norm")  # statistics are of all rows
    model, choices = (
        {key: value for key, value in each.items() if key not in lacks} for each in (model, choices)
    )
    heads = {"heads": 2, "out_heads": 2} if model.get("name") == "gat" else {}
    asked = Settings(model={**SMALL, **heads, **model}, dtype="float32", epochs=2, **choices)
    graph = random_graph(5, vertices=30, directed=False)
    outcome = systems.run(pool, graph, block, 2, settings=asked)
    assert_alike(outcome, dry(block, asked, systems.shards_of(graph, outcome.assignment, 2)))


# Draws and a cache that go by no values. In the last of four epochs a graph is drawn again.
CACHED = {"sampling": "uniform", "rate": 0.5, "policy": "degree", "refresh": 3}


# Asked for again in every epoch each system sends features by its own path; once, the core does.
@pytest.mark.parametrize(
    "name, epochs, knobs",
    [
        ("vanilla", 2, {"features": "once"}),
        *((name, 2, {}) for name in ("vanilla", "cagnet", "lean", "replicate")),
        ("pscgcn", 4, CACHED),
    ],
)
def test_features_of_which_few_are_not_0_are_sparse_in_both(pool, name, epochs, knobs):
    rng, width = np.random.default_rng(0), 400
    x = (rng.random((40, width)) < 0.01).astype(np.float32)
    x[:20] *= rng.random((20, 1)).astype(np.float32)
    graph = dataclasses.replace(random_graph(21, vertices=40), features=x)
    block = systems.block(name, **{"features": "refetch", **knobs})
    asked = Settings(model=SMALL, dtype="float32", epochs=epochs)
    outcome = systems.run(pool, graph, block, 3, settings=asked)
    assert_alike(outcome, dry(block, asked, systems.shards_of(graph, outcome.assignment, 3)))


@given(seed=st.integers(0, 10_000), parts=st.integers(1, 4), directed=st.booleans(), layers=st.integers(1, 3))
@examples(max_examples=3)
def test_on_random_graphs_and_partitions(pool, seed, parts, directed, layers):
    graph, model = random_graph(seed, vertices=24, directed=directed), {**SMALL, "layers": layers}
    for name in ("vanilla", "lean"):
        asked = Settings(model=model, dtype="float32", epochs=2, seed=seed)
        outcome = systems.run(pool, graph, systems.block(name), parts, settings=asked)
        shards = systems.shards_of(graph, outcome.assignment, parts)
        assert_alike(outcome, dry(systems.block(name), asked, shards))


# -- hollow tensors --


def test_integers_stay_and_values_are_unknown():
    with Dry(Held()):
        x = torch.rand(6, 3, requires_grad=True)
        y = torch.nn.functional.cross_entropy(x[torch.arange(4)], torch.zeros(4, dtype=torch.int64))
        y.backward()
        y = y.detach()
        assert isinstance(x.grad, Hollow) and x.grad.shape == (6, 3)
        assert torch.arange(4).sum().item() == 6
        for ask in (lambda: float(y), lambda: bool(y > 0), x.tolist, x.detach().numpy, (x > 0).nonzero):
            with pytest.raises(Unknown):
                ask()


def test_held_is_what_lives_and_shared_memory_counts_once():
    held = Held()
    with Dry(held):
        x = torch.empty(10, 4)
        assert held.now == held.peak == 160
        for _ in range(2):  # it does not say that it gives a view
            assert torch.ops.aten._unsafe_view(x, [20, 2]).shape == (20, 2) and held.peak == 160
        y = x.view(4, 10)[1:] + 1
        assert held.now == 160 + 120
        del x
        assert held.now == 120 and held.peak == 280
        del y
        assert held.now == 0


# -- seconds --


def test_it_is_said_of_which_work_half_of_the_peaks_is_assumed():
    device = Device(fp32_tflops=10.0, memory_gbytes_per_s=100.0, launch_us=2.0)
    bare = Cluster(name="bare", devices=[device])
    assert "at 50 % of the devices' peaks, which is assumed" in said(bare, device)
    rates = [Rate("dense", efficiency=0.8), Rate("sparse", efficiency=0.2)]
    some = Cluster(name="some", devices=[device], rates=rates)
    assert said(some, device) == (
        "at the cluster's measured efficiencies, stream, drop, pack, code at 50 % of the devices' peaks,"
        " which is assumed"
    )
    every = [Rate(kind, efficiency=0.5) for kind in MODELLED]
    whole = Cluster(name="all", devices=[device], rates=every)
    assert said(whole, device) == "at the cluster's measured efficiencies"


def test_where_nothing_is_described_products_take_what_a_core_does():
    none = Device()
    works = [dense(1000, 64, 32, 4), sparse(1000, 900, 8000, 32, 4), stream(1000, 32, 4, 1, 1)]
    told = FIXED.dense(1000, 64, 32) + FIXED.sparse(Shape(1000, 900, 8000), 32)
    cluster = Cluster(name="none", devices=[none])
    lasts = Roofline(cluster, 1, uncounted="none", peaks_needed=False)
    done = [{**work._asdict(), "launches": 1} for work in works]
    assert lasts.segment(0, 0, done, 7.0, 7.0) == pytest.approx(told / 1e9)
    assert "one core" in said(cluster, none)
    assert lasts.segment(0, 0, [], 7.0, 7.0) == 0
