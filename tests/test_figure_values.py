"""What a system's own picture draws, against metrics made up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from harness.figures import capgnn_hits, capgnn_rapa, cdfgnn_messages, digest_straggler, pscgcn_hits, sancus_broadcasts
from harness.figures import runs as figure_runs
from harness.report import groups
from tests import traces


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


def test_capgnn_hits_are_shares_of_lookups_without_the_first_epoch_and_what_was_refreshed(drawn):
    first = {(0, "local_hits"): 90.0, (0, "global_hits"): 9.0, (0, "refreshed"): 1.0, (0, "lookups"): 100.0}
    later = {(0, "local_hits"): 20.0, (1, "local_hits"): 10.0, (0, "global_hits"): 15.0, (0, "refreshed"): 40.0, (0, "lookups"): 100.0}
    both, each = drawn(capgnn_hits, [
        ({"system__policy": policy, "system__capacity": 500 * k}, [first, {**later, (0, "lookups"): 100.0 * k}])
        for policy in ("jaca", "fifo", "lru") for k in (1, 2)
    ])  # fmt: skip
    assert lines(both) == {policy: [45, 22.5] for policy in ("jaca", "fifo", "lru")}
    assert lines(each)["jaca, local"] == [30, 15] and lines(each)["jaca, global"] == [15, 7.5]


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
        "sent forward, layer 0": [25, 2.5, 25], "sent forward, layer 1": [75, 75, 75],
        "sent backward, layer 1": [25, 25, 25], "zero backward, layer 1": [50, 50, 50],
    }  # fmt: skip
    assert lines(threshold) == {"epsilon": pytest.approx([0.01, 0.02, 0.03])}, "on an axis of its own"
    for ax, start in ((first, 0.01), (second, 0.1)):
        assert ax.get_title(loc="left") == f"dropout 0, epsilon from {start}: 1 epochs under 5%"


def test_pscgcn_hit_rates_are_those_after_the_first_renewal(drawn):
    metrics = [{(0, "hit_rate"): 0.9 if k < pscgcn_hits.RENEWED else 0.25} for k in range(pscgcn_hits.RENEWED + 3)]
    rates, sent = drawn(pscgcn_hits, [({"system__policy": policy, "system__cache": 0.1}, metrics) for policy in pscgcn_hits.POLICIES])
    assert lines(rates) == {policy: [25] for policy in pscgcn_hits.POLICIES}
    assert lines(sent)["inclusion"] == [64 / 1e6]  # what tests/traces.py sends in layer 0


def test_sancus_has_a_row_per_method_and_a_dot_per_epoch_that_broadcasts_in_layer_1(drawn):
    def metrics(period):
        return [{(1, "active"): float(k % period == 0), (0, "active"): 1.0} for k in range(4)]

    methods = [("variation_gap", 0.02, 1), ("epoch_adaptive", 2, 4), ("epoch_fixed", 3, 4),
               ("epoch_fixed", 1, 2)]  # fmt: skip
    (ax,) = drawn(sancus_broadcasts, [({"system__staleness": rule, "system__bound": bound}, metrics(period))
                                      for rule, bound, period in methods])  # fmt: skip
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "SCS-E1, eps = 1: 50%", "SCS-E3, eps = 3: 25%", "SCS-A2, eps = 2: 25%", "SCS-H2, eps = 0.02: 100%",
    ]  # fmt: skip
    dots = [sorted(map(tuple, row.get_offsets().tolist())) for row in ax.collections]
    assert dots == [[(0, 0), (2, 0)], [(0, 1)], [(0, 2)], [(k, 3) for k in range(4)]]
    assert ax.get_ylim()[0] > ax.get_ylim()[1], "the first method on top, as printed"


def test_sancus_dots_are_as_large_as_the_share_of_workers_that_broadcast(tmp_path):
    composed = traces.config(gpus=2, epochs=2, system__staleness="epoch_adaptive", system__bound=1)
    worker_0, worker_1 = ([{(1, "active"): value} for value in values] for values in ((1.0, 0.0), (1.0, 1.0)))
    folder = traces.measured(tmp_path, worker_0, composed, worker_1)
    (ax,) = sancus_broadcasts.draw(groups.load([folder])[0]).axes
    (row,) = ax.collections
    np.testing.assert_allclose(row.get_sizes(), [sancus_broadcasts.AREA, sancus_broadcasts.AREA / 2])
    assert "75%" in ax.get_yticklabels()[0].get_text()


def test_sancus_methods_are_those_of_fig_24():
    sweeps = sancus_broadcasts.sweeps("twin/reddit")
    asked = [dict(override.split("=", 1) for override in run)
             for sweep in sweeps for run in figure_runs.expand(sweep)]  # fmt: skip
    assert [(run["system.staleness"], float(run["system.bound"])) for run in asked] == [
        ("epoch_fixed", 1), ("epoch_fixed", 3), *(("epoch_adaptive", bound) for bound in (1, 2, 3)),
        *(("variation_gap", bound) for bound in (0.01, 0.02, 0.03)),
    ]  # fmt: skip


def test_digest_is_drawn_over_its_slowest_worker_and_digest_a_over_its_servers_clock(drawn):
    (ax,) = drawn(digest_straggler, [
        ({"system__straggler": -1}, [{}] * 3),
        ({"system__straggler": 0, "system___target_": "somewhere.serving.Serving"}, [{(-1, "server_s"): 2.0 * k} for k in range(3)]),
    ])  # fmt: skip
    over = {line.get_label(): list(line.get_xdata()) for line in ax.lines}
    assert over == {"plain": pytest.approx([0, 0.8, 1.6]), "serving, a straggler": [0, 2, 4]}
    assert all(each == pytest.approx([0, 1, 2]) for each in lines(ax).values())


def test_rapas_iterations_are_drawn_by_worker(drawn):
    metrics = [{(k, name): float(10 * n + k) for n, name in enumerate(("rapa_lambda", "rapa_vertices", "rapa_edges")) for k in range(3)}]
    axes = drawn(capgnn_rapa, [({"cluster__name": "x", "cluster__devices": [{"kind": "R9"}]}, metrics)])
    assert [lines(ax) for ax in axes] == [{"0: R9": [10 * n, 10 * n + 1, 10 * n + 2]} for n in range(3)]
