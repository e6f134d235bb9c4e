"""What a system's own picture draws, against metrics made up by hand."""

from functools import partial
from types import SimpleNamespace

import pytest

from harness.data.twin_specs import SPECS
from harness.papers.claims import experiment, published
from harness.papers.figures import (
    capgnn_hits,
    cdfgnn_messages,
    digest_straggler,
    distdgl_purposes,
    over_knob,
    sancus_broadcasts,
    straggler,
)
from harness.results.report import groups
from tests import traces
from tests.conftest import ROOT
from tests.oracles import bytes as count
from tests.oracles.samples import random_blocks, random_graph


@pytest.fixture
def drawn(tmp_path):
    """draw(figure module, [(changes of the config, metrics by epoch)]) -> the axes it made."""

    def draw(module, runs):
        for number, (changes, metrics) in enumerate(runs):
            composed = traces.config(gpus=1, epochs=len(metrics), **changes)
            traces.measured(tmp_path / str(number), metrics, composed)
        compared, _ = groups.load([tmp_path])
        return module.draw(compared).axes

    return draw


def lines(ax) -> dict[str, list[float]]:
    return {line.get_label(): list(line.get_ydata()) for line in ax.lines}


def lookups(layer: int, count: float, local: float, shared: float, refresh: bool) -> dict:
    rates = ["hit_rate"] if refresh else ["hit_rate", "hit_rate_between_refreshes"]
    return {
        (layer, "lookups"): count,
        (layer, "local_hits"): local,
        (layer, "global_hits"): shared,
        **{(layer, name): (local + shared) / count for name in rates},
    }


def test_capgnn_hits_are_shares_of_lookups_with_and_without_those_of_refreshes(drawn):
    first = lookups(0, 100, 90, 9, False)  # epoch 0, which counts in no rate
    both, each = drawn(
        capgnn_hits,
        [
            (
                {"system__policy": policy, "system__tiers": tiers, "system__capacity": 500 * k},
                [
                    first,
                    {**lookups(0, 100 * k, 20, 15, False), **lookups(1, 100 * k, 10, 0, False)},
                    {**lookups(0, 100 * k, 20, 15, False), **lookups(1, 100 * k, 0, 0, True)},
                ],
            )
            for policy, tiers in capgnn_hits.CACHES.values()
            for k in (1, 2)
        ],
    )
    for policy in capgnn_hits.CACHES:
        assert lines(both)[policy] == pytest.approx([100 * 80 / 300, 100 * 80 / 600])
        assert lines(both)[f"{policy}, of all lookups"] == pytest.approx([100 * 80 / 400, 100 * 80 / 800])
        assert lines(each)[f"{policy}, local"] == pytest.approx([100 * 50 / 300, 100 * 50 / 600])
        assert lines(each)[f"{policy}, global"] == pytest.approx([100 * 30 / 300, 100 * 30 / 600])


def test_the_page_shows_the_bytes_that_follow_from_the_widths_alone():
    """Where every halo row is cached, the graph, its partition and its scale cancel out of the share."""
    page = (ROOT / "docs" / "systems" / "capgnn.md").read_text()
    lines = (line.replace(" ", "").split("|") for line in page.splitlines())
    rows = {cells[1]: cells[2:-1] for cells in lines if len(cells) > 1}
    graph, blocks = random_graph(1, vertices=30), random_blocks(1, 30, 4)
    printed = published.entries()["capgnn_table8"].published["values"]["GCN"]
    short = {"reddit": "Rt", "yelp": "Yp", "amazon-products": "As", "ogbn-products": "Os", "flickr": "Fr"}
    for name, cell in short.items():
        widths = [SPECS[name].features, 256, 256, SPECS[name].classes]
        vanilla = count.vanilla(graph, blocks, widths, features="refetch", first=False)["bytes"]
        cache = {"local_capacity": 30, "features": "refetch", "refresh": 10}
        ours = [count.jaca(graph, blocks, widths, epoch=epoch, **cache) for epoch in range(1, 11)]
        whole = 10 * sum(sizes.sum() for sizes in vanilla.values())
        ways = [100 * sum(epoch[way].sum() for epoch in ours) / whole for way in ("backward", "forward")]
        shown = [float(cell) for cell in rows[f"twin/{name}"]]
        share = 100 * printed["+JACA"][cell][1] / printed["Vanilla"][cell][1]
        assert shown == pytest.approx([sum(ways), share], abs=0.06), name


def test_cdfgnn_messages_are_shares_of_those_possible(drawn):
    counts = {(0, "forward"): (10, 0, 40), (1, "forward"): (30, 0, 40), (1, "backward"): (2, 4, 8)}
    metrics = [{(-1, "epsilon"): 0.01 * (1 + k)} for k in range(3)]
    for made in metrics:
        for (layer, way), values in counts.items():
            names = (f"{name}_{way}" for name in ("sent", "zero", "possible"))
            made |= {(layer, name): value for name, value in zip(names, values)}
    metrics[1][0, "sent_forward"] = 1.0
    runs = [({"model__dropout": 0.0, "system__epsilon": start}, metrics) for start in (0.1, 0.01)]
    first, second, threshold, _ = drawn(cdfgnn_messages, runs)
    assert lines(first) == {
        "sent forward, layer 0": [25, 2.5, 25],
        "sent forward, layer 1": [75, 75, 75],
        "sent backward, layer 1": [25, 25, 25],
        "zero backward, layer 1": [50, 50, 50],
    }
    assert lines(threshold) == {"epsilon": pytest.approx([0.01, 0.02, 0.03])}, "on an axis of its own"
    for ax, start in ((first, 0.01), (second, 0.1)):
        assert ax.get_title(loc="left") == f"dropout 0, epsilon from {start}: 1 epochs under 5%"


def test_numbers_over_a_knob_are_those_that_the_experiment_asks_for(drawn):
    """PSC-GCN's hit rates after the first renewal, and what is sent in layer 0, by policy."""
    metrics = [{(0, "hit_rate"): 0.9 if k < 10 else 0.25} for k in range(13)]
    policies = ("inclusion", "degree", "random")
    hits = partial(over_knob.draw, **experiment.one("pscgcn_hits").draw["over_knob"])
    rates, sent = drawn(
        SimpleNamespace(draw=hits),
        [
            ({"system__policy": policy, "system__cache": share}, metrics)
            for policy in policies
            for share in (0.3, 0.1)
        ],
    )
    assert lines(rates) == {policy: [25, 25] for policy in policies}
    assert all(list(line.get_xdata()) == pytest.approx([0.1, 0.3]) for line in rates.lines)
    assert lines(sent)["inclusion"] == [64 / 1e6] * 2  # what tests/traces.py sends in layer 0


def test_sancus_has_a_row_per_method_and_a_dot_per_epoch_that_broadcasts_in_layer_1(drawn):
    def metrics(period):
        return [{(1, "active"): float(k % period == 0), (0, "active"): 1.0} for k in range(4)]

    methods = [
        ("variation_gap", 0.02, 1),
        ("epoch_adaptive", 2, 4),
        ("epoch_fixed", 3, 4),
        ("epoch_fixed", 1, 2),
    ]
    (ax,) = drawn(
        sancus_broadcasts,
        [
            ({"system__staleness": rule, "system__bound": bound}, metrics(period))
            for rule, bound, period in methods
        ],
    )
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "SCS-E1, eps = 1: 50%",
        "SCS-E3, eps = 3: 25%",
        "SCS-A2, eps = 2: 25%",
        "SCS-H2, eps = 0.02: 100%",
    ]
    dots = [sorted(map(tuple, row.get_offsets().tolist())) for row in ax.collections]
    assert dots == [[(0, 0), (2, 0)], [(0, 1)], [(0, 2)], [(k, 3) for k in range(4)]]


def test_digest_is_drawn_over_its_slowest_worker_and_digest_a_over_its_servers_clock(drawn):
    (ax,) = drawn(
        digest_straggler,
        [
            ({}, [{}] * 3),
            (
                {"straggler": {"rank": 0}, "system___target_": "somewhere.serving.Serving"},
                [{(-1, "server_s"): 2.0 * k} for k in range(3)],
            ),
        ],
    )
    over = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert over == {"plain": pytest.approx([0, 0.8, 1.6]), "serving, a straggler": [0, 2, 4]}
    assert all(each == pytest.approx([0, 1, 2]) for each in lines(ax).values())


def test_what_a_straggler_adds_to_an_epoch_is_drawn_by_system_the_dearest_on_top(tmp_path):
    def run(name, spent, **more):
        composed = traces.config(gpus=1, epochs=3, system___target_=f"systems.{name}.S", **more)
        traces.finished(tmp_path / f"{name}{len(more)}", composed, speed=spent / 0.55)

    slow = {"straggler": {"rank": 0, "delay": 0.1, "delay_spread": 0.02}}
    for name, spent, more in (("waits", 0.5, 0.11), ("goes_on", 0.4, 0.01), ("alone", 0.3, None)):
        run(name, spent)
        if more is not None:
            run(name, spent + more, **slow)
    compared, _ = groups.load([tmp_path])
    added = straggler.added(compared)
    assert list(added) == ["goes_on", "waits"], "of the one without a straggler's runs nothing is known"
    assert [each.mean for _, _, each in added.values()] == pytest.approx([0.01, 0.11])
    (ax,) = straggler.draw(compared).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["goes_on", "waits"]
    assert [text.get_text() for text in ax.texts] == ["+10 ms", "+110 ms"]


def test_bytes_by_purpose_are_all_bytes_of_an_epoch(tmp_path):
    traces.finished(tmp_path / "run", traces.config(gpus=2, epochs=3))
    compared, _ = groups.load([tmp_path])
    summaries = [{"bytes_epoch_by_purpose": {"features": {"layer_0": 2e6}, "ids": {"layer_0": 1e6}}}] + [
        {"bytes_epoch_by_purpose": {name: {"layer_0": 4e6, "hidden": 2e6}}}
        for name in ("sample", "neighbours")
    ]
    found = distdgl_purposes.megabytes(SimpleNamespace(runs=[SimpleNamespace(summary=s) for s in summaries]))
    assert found == pytest.approx({"features": 1, "structure": 4, "weights": 0, "other": 0})
    sent = distdgl_purposes.megabytes(compared[0])
    by_purpose = compared[0].first.summary["bytes_epoch_by_purpose"]
    assert sent["weights"] == pytest.approx(sum(by_purpose["weights"].values()) / 1e6) and sent["weights"] > 0
    assert sum(sent.values()) == pytest.approx(sum(compared[0].first.summary["bytes_epoch"].values()) / 1e6)
