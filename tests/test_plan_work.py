"""What `halobench plan` says that workers compute, against what a run's trace counts."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest

from harness.cluster.config import Cluster, Device, Rate
from harness.comm.work import Work, dense, sparse, stream
from harness.core.order import FIXED, Shape
from harness.plan.plan import plan
from harness.plan.seconds import EFFICIENCY, MODELLED, Profile
from harness.plan.sizes import shapes_of
from harness.plan.words import parse
from harness.plan.work import Case, layer_work, step_work
from harness.replay.roofline import Speeds
from harness.trace.reader import Trace, find_runs

FULL = ["dataset=twin/flickr", "dataset.scale=0.005"]
BAGS = ["dataset=twin/coauthor-physics", "dataset.scale=0.02"]


def moved(works: list[Work]) -> dict[str, tuple[int, int]]:
    """By kind: operations, and bytes read and written."""
    found: Counter[tuple[str, str]] = Counter()
    for work in works:
        found[work.kind, "flops"] += work.flops
        found[work.kind, "bytes"] += work.read + work.written
    return {kind: (found[kind, "flops"], found[kind, "bytes"]) for kind in {kind for kind, _ in found}}


def traced(run: Path, worker: int, epoch: int) -> list[Work]:
    spans = Trace(run).spans
    chosen = spans[(spans.worker == worker) & (spans.epoch == epoch) & (spans.name != "unpack")]
    return [
        Work(*(each[name] for name in Work._fields))
        for elements in chosen.work
        if elements is not None
        for each in elements
        for _ in range(each["launches"])
    ]


@pytest.mark.parametrize("system, features, dataset", [
    ("vanilla", "once", FULL),
    ("vanilla", "refetch", FULL),
    ("vanilla", "once", BAGS),
    pytest.param("vanilla", "refetch", BAGS, marks=pytest.mark.nightly(5)),
    ("cagnet", "refetch", FULL),
    pytest.param("pipegcn", "once", FULL, marks=pytest.mark.nightly(5)),
])  # fmt: skip
def test_a_plans_work_is_a_traces(system, features, dataset, place, tmp_path):
    """Products and dropout to a hundredth (halo rows are taken to be as full as own ones), passes over rows
    to a tenth; those of messages are left out."""
    words = [f"system={system}", f"system.features={features}", *dataset, "workers=2", "partition=metis"]
    words += [
        "model.layers=3",
        "model.hidden=16",
        "model.dropout=0.5",
        "epochs=3",
        "device=cpu",
        f"cache={place.folder / 'cache'}",
    ]
    assert place.run(*words, f"results={tmp_path}", "progress=false").code == 0
    (run,) = find_runs([tmp_path])
    given = parse([*words, "cluster=hosts/10g", "per_host=1"])
    made = plan(given.runs[0][1], given.cluster, None, 1)
    values = sum(math.prod(shape) for shape in shapes_of(made.run.model, made.loads.widths))
    case = Case(made.run.system, made.run.model.dropout, True, values)
    for worker in range(2):
        layers = [layer_work(made.loads, layer, worker, case) for layer in range(3)]
        mine = moved([*step_work(case), *(each for layer in layers for part in layer for each in part)])
        theirs = moved(traced(run, worker, epoch=2))
        assert set(mine) == set(MODELLED) and set(theirs) <= {*MODELLED, "pack"}
        for kind in MODELLED:
            near = 0.1 if kind == "stream" else 0.01
            assert mine[kind] == pytest.approx(theirs[kind], rel=near), kind


def test_work_takes_what_the_cluster_measured_or_half_of_its_peaks():
    device = Device(fp32_tflops=10.0, memory_gbytes_per_s=100.0, launch_us=2.0)
    works = [dense(1000, 64, 32, 4), sparse(1000, 900, 8000, 32, 4), stream(1000, 32, 4, 1, 1)]
    bare = Cluster(name="bare", devices=[device])
    assert Profile(bare, device).seconds(works) == pytest.approx(
        sum(Speeds(bare, EFFICIENCY).seconds(each, device) for each in works)
    )
    assert "at 50 % of the devices' peaks, which is assumed" in Profile(bare, device).said
    rates = [Rate("dense", efficiency=0.8), Rate("sparse", efficiency=0.2)]
    some = Profile(Cluster(name="some", devices=[device], rates=rates), device)
    assert some.said == (
        "at the cluster's measured efficiencies, stream, drop at 50 % of the devices' peaks, which is assumed"
    )
    launch, rate = 2e-6, 100e9
    bytes_of = [each.read + each.written for each in works]
    told = 3 * launch + sum(each / rate / e for each, e in zip(bytes_of, (0.8, 0.2, EFFICIENCY)))
    assert some.seconds(works) == pytest.approx(told)
    every = [Rate(kind, efficiency=0.5) for kind in MODELLED]
    whole = Profile(Cluster(name="all", devices=[device], rates=every), device)
    assert whole.said == "at the cluster's measured efficiencies"


def test_where_nothing_is_described_products_take_what_a_core_does():
    none = Device()
    works = [dense(1000, 64, 32, 4), sparse(1000, 900, 8000, 32, 4), stream(1000, 32, 4, 1, 1)]
    told = FIXED.dense(1000, 64, 32) + FIXED.sparse(Shape(1000, 900, 8000), 32)
    profile = Profile(Cluster(name="none", devices=[none]), none)
    assert profile.seconds(works) == pytest.approx(told / 1e9) and "one core" in profile.said
