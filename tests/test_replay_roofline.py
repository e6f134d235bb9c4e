"""Work timed by a roofline: each formula on made-up clusters, and what is refused."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm import work
from harness.comm.recorder import Epoch, Span
from harness.core.cluster import Cluster, Device, Link, Rate
from harness.model.replay.__main__ import main
from harness.model.replay.roofline import Efficiency, Roofline, shape_of
from harness.model.replay.settings import parse
from harness.model.replay.times import times_of
from harness.results.reader import Trace
from tests import traces
from tests.recorded import timed

LINK = Link(gbytes_per_s=1, latency_us=0)
PRODUCT = work.dense(1000, 100, 10, 4)  # 2e6 operations, 444 kB
GATHER = work.sparse(100, 50, 2000, 8, 4, row=True)
PASS = work.stream(1000, 10, 4, 1, 1)


def cluster(**given) -> Cluster:
    """Two devices of 1 Tflop/s and 10 GB/s, an operation begun in 3 us."""
    device = Device(memory_gbytes_per_s=10, fp32_tflops=1, launch_us=3)
    return Cluster("made", **{"devices": [device] * 2, "inside": LINK, "between": LINK, **given})


def test_a_launch_takes_the_longer_of_operations_and_bytes():
    made, quick = cluster(), cluster(devices=[Device(memory_gbytes_per_s=10**6, fp32_tflops=1)])
    one = Roofline(made, 2)
    # 444 kB at 10 GB/s are 44.4 us; 2e6 operations at 1 Tflop/s are 2 us
    assert one.seconds(PRODUCT, made.devices[0]) == pytest.approx(3e-6 + 44.4e-6)
    assert Roofline(quick, 1).seconds(PRODUCT, quick.devices[0]) == pytest.approx(2e-6)
    half = Roofline(cluster(rates=[Rate("dense", efficiency=0.5), Rate("sparse", efficiency=4)]), 2)
    assert half.seconds(PRODUCT, made.devices[0]) == pytest.approx(3e-6 + 88.8e-6)
    assumed = Roofline(cluster(rates=[Rate("sparse", efficiency=4)]), 2, unmeasured=0.5)
    assert assumed.seconds(PRODUCT, made.devices[0]) == pytest.approx(3e-6 + 88.8e-6)
    moved = (GATHER.read + GATHER.written) / 10e9
    assert half.seconds(GATHER, made.devices[0]) == pytest.approx(3e-6 + moved / 4)


def test_a_cluster_s_measured_products_say_how_fast_its_devices_are():
    """Table 1 of CaPGNN: what RAPA goes by and what a replay makes of a device come from one table."""
    measured = dict(mm_s=2.0, spmm_s=1.0)
    quick = Device(memory_gbytes_per_s=10, fp32_tflops=1, **measured)
    made = cluster(devices=[quick, dataclasses.replace(quick, spmm_s=4.0)], matrix=1000, density=0.01)
    first, second = made.devices
    speeds = Roofline(made, 2)
    assert speeds.seconds(PRODUCT, first) == pytest.approx(PRODUCT.flops / (2e9 / 2.0))
    assert speeds.seconds(GATHER, second) == pytest.approx(4 * speeds.seconds(GATHER, first))
    reference = work.sparse(1000, 1000, 10_000, 1000, 4, values=True)
    rate = (reference.read + reference.written) / 1.0
    assert speeds.seconds(GATHER, first) == pytest.approx((GATHER.read + GATHER.written) / rate)
    assert speeds.seconds(PASS, first) == pytest.approx((PASS.read + PASS.written) / 10e9)
    half = Roofline(made, 2, unmeasured=0.5)  # of what is not measured
    assert half.seconds(GATHER, first) == pytest.approx(speeds.seconds(GATHER, first))
    assert half.seconds(PASS, first) == pytest.approx(2 * speeds.seconds(PASS, first))
    slower = Roofline(made, 2, overall=0.25)  # of all
    for each in (PRODUCT, GATHER, PASS):
        assert slower.seconds(each, first) == pytest.approx(4 * speeds.seconds(each, first))
    rated = cluster(devices=[quick], matrix=1000, density=0.01, rates=[Rate("dense"), Rate("sparse")])
    assert Roofline(rated, 1).seconds(PRODUCT, quick) == pytest.approx(44.4e-6)


def test_a_fit_gives_efficiency_and_links_of_its_graph(made, refused):
    (run, named, compute) = made
    path = Path(named.removeprefix("cluster="))
    graph = Trace(Path(run)).config["dataset"]["name"].removeprefix("twin/")
    fits = [{"graph": graph, "efficiency": 2.0, "inside_gbytes_per_s": 0.25}]
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "rates": [], "fits": fits}))
    _, replayer, _ = parse([run, named, compute, "fit=printed", "uncounted=none"])
    timeline = replayer.replay(Trace(Path(run)))
    first, _ = times_of(timeline).workers
    assert first.compute == pytest.approx(3 * (3e-6 + 44.4e-6 / 2))
    link = replayer.fitted(Trace(Path(run))).inside
    assert (link.gbytes_per_s, link.broadcast_gbytes_per_s) == (0.25, None), "of broadcasts alike"
    platform = timeline.platform
    assert {platform.capacity[link] for link in platform.path(0, 1).links} == {0.25e9}
    assert [each for each in replayer.rooflines[Path(run)].assumed if "all work" in each] == [
        "efficiency 2 of all work"
    ]
    words = [run, named, compute, "fit=printed"]
    refused(main, [*words, "efficiency=0.5"], "has an efficiency of its own")
    said = "inside.gbytes_per_s=9 is fitted to what is printed (fit=printed)"
    refused(main, [*words, "cluster.inside.gbytes_per_s=9"], said)
    missed = [{**fits[0], "missed_by": 1.5}]
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "fits": missed}))
    refused(main, words, f"could not be fitted to {graph}")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "fits": []}))
    refused(main, words, f"has no fit for {graph} (it has none)")


def test_shapes_are_looked_up_by_what_an_efficiency_depends_on():
    assert shape_of(PRODUCT) == (10, 444_000, 0)
    assert shape_of(work.dense(8, 1000, 10, 4))[0] == 8  # a weight's gradient
    assert shape_of(GATHER) == (8, 50, 20)
    assert shape_of(PASS) == (10, 80_000, 0)
    # Rows out of a large table are as far away as it is large.
    few = work.pack(10, 16, 4)
    assert shape_of(few) == shape_of(work.pack(10, 16, 4, of=3)) == (16, few.read + few.written, 0)
    assert shape_of(work.pack(10, 16, 4, of=1000)) == (16, 2 * 1000 * 16 * 4, 0)


grids = st.tuples(*[st.lists(st.integers(1, 10**6), min_size=1, max_size=3, unique=True)] * 3)


@given(grids, st.data())
@settings(max_examples=40, deadline=None)
def test_between_measured_shapes_an_efficiency_lies_between_theirs(axes, data):
    cells = [(w, s, d) for w in axes[0] for s in axes[1] for d in axes[2]]
    values = data.draw(st.lists(st.floats(0.01, 100), min_size=len(cells), max_size=len(cells)))
    found = Efficiency("made", [Rate("sparse", *cell, value) for cell, value in zip(cells, values)])
    for cell, value in zip(cells, values):
        assert found.at(cell) == pytest.approx(value)
    shape = data.draw(st.tuples(*[st.integers(0, 10**7)] * 3))
    assert min(values) * (1 - 1e-9) <= found.at(shape) <= max(values) * (1 + 1e-9)
    beyond = tuple(max(axis) for axis in axes)
    assert found.at(tuple(10 * each for each in beyond)) == pytest.approx(found.at(beyond))
    # Halfway between two sizes the seconds are halfway.
    found = Efficiency("made", [Rate("stream", size=100), Rate("stream", size=10_000, efficiency=0.5)])
    assert 1 / found.at((0, 1000, 0)) == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (cluster(devices=[Device(kind="T4", memory_gbytes_per_s=1)]), "the peak of its T4 (fp32_tflops)"),
        (cluster(devices=[Device(kind="T4", fp32_tflops=1)]), "the rate of memory of its T4"),
        (cluster(rates=[Rate("dence")]), "a rate of dence, which is no kind of work; known: dense, sparse"),
        (
            cluster(rates=[Rate("dense", 1, 1), Rate("dense", 2, 2)]),
            "no grid: width 1, size 2, degree 0 is missing",
        ),
        (cluster(rates=[Rate("dense"), Rate("dense")]), "no grid: width 0, size 0, degree 0 is there twice"),
    ],
)
def test_a_cluster_that_says_too_little_is_refused(made, said):
    with pytest.raises(InputError, match=re.escape(said)):
        Roofline(made, 1)


# -- a run of given numbers --


def recorded(folder: Path) -> Path:
    """Two epochs of two workers: a forward pass of 5 ms that says what it computed, 2 ms of packing that
    does not, and half of both as CPU seconds."""
    traces.prepare(folder, traces.config(gpus=2, epochs=2), 4, role="reference")
    for worker in range(2):
        made, did = [], [PRODUCT] * 3 + [GATHER] * worker
        for begin in (10.0, 11.0):
            line = [
                Span("compute", "forward", 0, begin, begin + 0.005, cpu=0.0025, work=did,
                     flops=sum(each.flops for each in did)),
                Span("rest", "cache", 0, begin + 0.005, begin + 0.007, cpu=0.001),
            ]  # fmt: skip
            made.append(Epoch(len(made), train=0.007, cpu=0.0035, spans=line))
        traces.write(folder, made, worker=worker, scores=traces.scored(0.5, 0.5, 0.5))
    return traces.close(folder)


@pytest.fixture
def made(tmp_path) -> list[str]:
    """The words that name a run and a cluster of its own."""
    path = tmp_path / "made.yaml"
    path.write_text(yaml.safe_dump(dataclasses.asdict(cluster(rates=[Rate("dense", efficiency=0.5)]))))
    return [str(recorded(tmp_path / "run")), f"cluster={path}", "compute=roofline"]


@pytest.mark.parametrize(("clock", "kept"), [([], 0.001), (["clock=wall"], 0.002)])
def test_segments_last_as_what_they_computed_the_others_as_traced(made, clock, kept):
    (run, *words) = made
    _, replayer, _ = parse([run, *words, *clock])
    times = times_of(replayer.replay(Trace(Path(run))))
    product = 3 * (3e-6 + 88.8e-6)
    gather = 3e-6 + (GATHER.read + GATHER.written) / 10e9
    assert times.workers[0].compute == pytest.approx(product)
    assert times.workers[1].compute == pytest.approx(product + gather)
    assert [own.rest for own in times.workers] == pytest.approx([kept] * 2)
    (lasts,) = replayer.rooflines.values()
    # of the second epoch: the first makes what is made once
    assert lasts.modelled == pytest.approx(2 * product + gather)
    assert (lasts.kept, lasts.traced) == pytest.approx((2 * kept, 2 * 0.0025))
    assert lasts.assumed == ["efficiency 1 of sparse"]


@pytest.mark.parametrize(
    ("words", "products", "kept"),
    [
        (["efficiency=0.25"], [0, 3], 0.001),  # sparse, which the cluster says nothing of, takes 4 times
        (["uncounted=none"], [0, 0], 0.0),
        (["grown=10"], [9, 0], 0.01),  # the work of layers, but for what it takes to begin an operation
    ],
)
def test_what_is_asked_of_a_roofline_reaches_it(made, words, products, kept):
    begin, dense, gather = 3e-6, 3 * 88.8e-6, (GATHER.read + GATHER.written) / 10e9
    first, second = timed(*made, *words).workers
    more, longer = products
    assert first.compute == pytest.approx(3 * begin + (1 + more) * dense)
    assert second.compute == pytest.approx(4 * begin + (1 + more) * (dense + gather) + longer * gather)
    assert [own.rest for own in (first, second)] == pytest.approx([kept] * 2)


def test_the_command_says_what_is_modelled_and_what_is_not(made, capsys):
    assert main(made) == 0
    told = capsys.readouterr().out
    assert "work by roofline; what is not counted lasts as traced, in CPU seconds" in told
    assert "efficiency 1 of sparse" in told
    assert "of the 5.000 CPU ms of the trace" in told and "is not counted, and lasts as traced" in told


def test_what_belongs_to_no_layer_does_not_grow():
    element = {**PRODUCT._asdict(), "launches": 1}
    plain, larger = (Roofline(cluster(), 2, grown=times) for times in (1, 10))
    assert larger.segment(0, -1, [element], 0.5, 0.5) == plain.segment(0, -1, [element], 0.5, 0.5)


def test_who_slept_sleeps_in_a_roofline_too(made):
    run, *words = made
    trace = Trace(Path(run))
    trace.spans.loc[trace.spans["name"] == "cache", "name"] = "straggle"
    _, replayer, _ = parse([run, *words, "uncounted=none"])
    assert [own.rest for own in times_of(replayer.replay(trace)).workers] == pytest.approx([0.002] * 2)
