"""Which side of A X W is multiplied first: the cheaper by its costs, layer 0 by its own count, the same for a
run from beginning to end, and with any order the same training.
"""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import order_measured
from harness.core.kernels import tiling_measured
from harness.core.kernels.spmm import NumbaKernel
from harness.core.order import FEATURES, FIXED, GATHERED, HIDDEN, Costs, Order, Shape, SparseCost
from harness.data.partition.cache import Cache
from harness.results import files, resolved
from harness.results.reader import Trace
from harness.run import prepare, products
from tests.test_run_folder import run_in

UNIT = Costs([SparseCost(1, 1, entry=1.0, row=0.0)], {1: 1.0})  # an entry and column costs a multiply-add
sizes = st.integers(1, 10**6)
widths = st.integers(1, 2000)


def orders(run_dir):
    """The rows of a trace that say which side was multiplied first."""
    metrics = Trace(run_dir).metrics
    return metrics[metrics.name == "transform_first"]


def counted(passes, rows, halo, entries, f_in, f_out):
    """Of either order, the multiply-adds and the additions."""
    aggregate = passes.dense * rows * f_in * f_out + passes.aggregated * entries * f_in
    transform = passes.dense * (rows + halo) * f_in * f_out + passes.transformed * entries * f_out
    return aggregate, transform


@given(
    passes=st.sampled_from([HIDDEN, FEATURES, GATHERED]),
    rows=sizes,
    halo=sizes,
    inner=sizes,
    outer=sizes,
    f_in=widths,
    f_out=widths,
)
def test_the_order_with_fewer_operations_is_taken_where_all_cost_the_same(
    passes, rows, halo, inner, outer, f_in, f_out
):
    blocks = [Shape(rows, rows, inner), Shape(rows, halo, outer)]
    found = Order(costs=UNIT).transform_first(blocks, rows, halo, f_in, f_out, passes)
    aggregate, transform = counted(passes, rows, halo, inner + outer, f_in, f_out)
    assert found == (transform < aggregate) or aggregate == pytest.approx(transform)
    for choice in ("transform", "aggregate"):
        forced = Order(choice, UNIT).transform_first(blocks, rows, halo, f_in, f_out, passes)
        assert forced == (choice == "transform")


def test_layer_0_is_not_charged_a_gradient_that_it_does_not_have():
    """At 100 columns to 64, aggregating first reads 100 columns once, transforming first 64 of them twice."""
    block = [Shape(1000, 1000, 50_000)]
    assert Order().transform_first(block, 1000, 0, 100, 64, HIDDEN)
    assert not Order().transform_first(block, 1000, 0, 100, 64, FEATURES)
    assert Order().transform_first(block, 1000, 0, 129, 64, FEATURES)


@given(sources=sizes, width=widths, entries=st.integers(0, 10**6))
def test_costs_are_read_back_and_interpolated_within_what_is_given(sources, width, entries):
    again = Costs.of_json(json.loads(json.dumps(FIXED.as_json())))
    block, empty = Shape(sources, sources, entries), Shape(sources, sources, 0)
    assert again.as_json() == FIXED.as_json()
    assert again.sparse(block, width) == FIXED.sparse(block, width)
    per_entry = (FIXED.sparse(block, width) - FIXED.sparse(empty, width)) / (width * max(entries, 1))
    given_entry = [each[2] for each in FIXED.as_json()["sparse"]]
    assert not entries or min(given_entry) * 0.99 <= per_entry <= max(given_entry) * 1.01
    assert FIXED.dense(sources, width, 64) > 0


@pytest.fixture
def quick(monkeypatch):
    """Small products, each measured for a moment."""
    for name, small in {"SOURCES": (16, 64), "WIDTHS": (8, 32), "ROWS": 64, "SECONDS": 0.0}.items():
        monkeypatch.setattr(order_measured, name, small)


def test_costs_are_measured_once_per_machine_and_kept(tmp_path, quick, monkeypatch):
    asked, measure = [], order_measured.measure
    monkeypatch.setattr(order_measured, "measure", lambda kernel: asked.append(kernel) or measure(kernel))
    cache, kernel = Cache(tmp_path), NumbaKernel()
    found = order_measured.costs_for(cache, "this machine", kernel).as_json()
    sizes = [[16, 8], [16, 32], [64, 8], [64, 32]]
    assert [[row[4], *row[:2]] for row in found["sparse"]] == [
        [degree, *size] for degree in (32, 512) for size in sizes
    ]
    assert all(cost > 0 for row in found["sparse"] for cost in row[2:])
    assert all(ns > 0 for _, ns in found["dense"])
    assert order_measured.costs_for(cache, "this machine", kernel).as_json() == found and len(asked) == 1
    order_measured.costs_for(cache, "another", kernel)
    assert len(asked) == 2


def test_a_run_is_prepared_with_costs_where_a_choice_pays(tmp_path, quick, monkeypatch):
    shared = (f"cache={tmp_path}/cache", "dataset.scale=0.005", "workers=2")

    def costs(*more):
        return prepare._shards(run_in(tmp_path / "a", *shared, *more), "here")[2]["costs"]

    assert costs() is None, "too small for an order to pay"
    monkeypatch.setattr(products, "LEAST_ENTRIES", 1)
    found = costs()
    assert found is not None and costs("seed=1", "epochs=3") == found
    assert costs("order=transform") is None and costs("model=gat") is None


def test_a_run_has_costs_of_the_tilings_of_its_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(products, "LEAST_ENTRIES", 1)
    monkeypatch.setattr(order_measured, "SOURCES", (2048,))
    monkeypatch.setattr(tiling_measured, "ENTRIES", 512)
    asked = []
    monkeypatch.setattr(order_measured, "measure", lambda kernel: asked.append(kernel) or FIXED)
    run = run_in(tmp_path / "a", f"cache={tmp_path}/cache", "dataset.scale=0.005", "workers=2")
    assert prepare._shards(run, "here")[2]["costs"] == FIXED.as_json()
    assert set(asked[0].tilings.as_json()) == {"2048x32", "2048x512"}


def test_the_degree_that_is_nearest_decides_what_an_entry_costs():
    costs = Costs([SparseCost(1, 1, 1.0, 0.0, degree=32), SparseCost(1, 1, 3.0, 0.0, degree=512)], {1: 1.0})
    assert [costs.sparse(Shape(10, 1, 10 * degree), 1) for degree in (0, 1, 100, 200)] == [0, 10, 1000, 6000]


def test_a_run_keeps_and_traces_the_costs_and_tilings_that_it_began_with(place):
    """By its own costs, which make the dense product dear, it aggregates first what the table would not; and
    in either order it trains the same."""
    asked = ("model.hidden=64", "epochs=3")
    assert place.run("launch=prepare", *asked).code == 0
    (run_dir,) = place.runs()
    shards = files.read_json(run_dir / "shards.json")
    assert shards["costs"] is None and shards["tilings"] == {}, "too small for any choice to pay"
    tilings = {"2048x32": [{"lines": 1, "ahead": 5, "block": 0, "ns": 1.0}]}
    began = {"costs": Costs([SparseCost(16, 16, 0.001, 0.001)], {16: 100.0}).as_json(), "tilings": tilings}
    files.write_json_atomic(run_dir / "shards.json", {**shards, **began})
    done = place.run(*asked)
    assert done.code == 0, done.err
    (attempt,) = resolved.read(run_dir)["attempts"]
    assert began.items() <= attempt.items()
    assert set(orders(run_dir).value) == {0.0}
    aggregated = Trace(run_dir).epochs.loss
    anew = place.run(*asked, "fresh=true")
    assert anew.code == 0, anew.err
    assert set(orders(run_dir).value) == {1.0}, "nothing measured, and layer 1 is cheaper at its 3 columns"
    np.testing.assert_allclose(Trace(run_dir).epochs.loss, aggregated, rtol=1e-4)


@pytest.mark.nightly(45)
def test_over_a_vertex_cut_either_order_trains_the_same_and_is_traced(place):
    words = ("-m", "system=cdfgnn", "system.features=refetch", "order=transform,aggregate", "epochs=3")
    done = place.run(*words)
    assert done.code == 0, done.err
    runs = {Trace(run_dir).config["order"]: run_dir for run_dir in place.runs()}
    for order, value in (("transform", 1.0), ("aggregate", 0.0)):
        rows = orders(runs[order])
        assert set(rows.value) == {value} and set(rows.layer) == {0, 1}
    losses = [Trace(run_dir).epochs.loss for run_dir in runs.values()]
    np.testing.assert_allclose(*losses, rtol=1e-4)
