"""The published table of vertex-cuts: what is printed holds together, what stands beside it is measured."""

from __future__ import annotations

import json

import pytest

from harness.data import twin
from harness.data.partition.vertexcut import assign_edges, statistics
from harness.data.twin_specs import SPECS
from harness.dev.fidelity import __main__ as fidelity
from harness.dev.fidelity.cuts import SEED, TABLE_3

EBV = [(name, row) for name, (_, rows) in TABLE_3.items() for row in rows if row.method == "ebv"]


def fit(name: str, messages: int, replication: float) -> float:
    """Messages over the mean that the replication factor says a worker sends."""
    return messages / (2 * (replication - 1) * SPECS[name].vertices / TABLE_3[name][0])


@pytest.mark.parametrize("name, row", EBV)
def test_printed_messages_follow_from_replication_only_where_two_rows_are_read_as_swapped(name, row):
    messages = row.inner + row.outer
    assert fit(name, messages, row.swapped or row.replication) == pytest.approx(1, abs=0.01)
    if row.swapped:
        assert abs(fit(name, messages, row.replication) - 1) > 0.08


def test_what_is_swapped_stands_in_the_other_row():
    for name in ("reddit", "reddit2"):
        first, second = (row for row in TABLE_3[name][1] if row.method == "ebv")
        assert (first.swapped, second.swapped) == (second.replication, first.replication)


@pytest.mark.parametrize("name, scale, origins", [
    ("reddit2", 0.03, ["printed", "swapped", "host", "hash"]),
    ("ogbn-products", 0.01, ["printed", "host", "hash"]),
])  # fmt: skip
def test_each_cut_is_measured_under_both_rules_of_masters(name, scale, origins, capsys):
    assert fidelity.main(["--cuts", f"twin/{name}", "--scale", str(scale), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    graph, (workers, table) = twin.generate(name, scale=scale), TABLE_3[name]
    assert [row["origin"] for row in rows if row["cut"] == "EBV, gamma 0"] == origins
    for printed in table:
        edges = assign_edges(graph, printed.method, workers, SEED, hosts=2, **printed.knobs)
        for rule in ("host", "hash"):
            (row,) = (row for row in rows if (row["cut"], row["origin"]) == (printed.label, rule))
            want = statistics(edges, rule)
            inner, outer = want["max_inner"] / scale, want["max_outer"] / scale
            assert (row["inner"], row["outer"]) == pytest.approx((inner, outer))
            assert row["outer_share"] == pytest.approx(outer / (inner + outer))
            assert row["replication"] == want["replication"]
            assert row["edge_imbalance"] == want["edge_imbalance"]
            assert row["fit"] == pytest.approx(fit(name, inner + outer, want["replication"]))


@pytest.mark.parametrize("name, scale", [("reddit2", 0.03), ("ogbn-products", 0.01), ("friendster", 0.0003)])
def test_the_host_with_most_replicas_fits_the_printed_share_of_outer_messages_better(name, scale):
    workers, (printed, *_) = TABLE_3[name]
    edges = assign_edges(twin.generate(name, scale=scale), "ebv", workers, 0, gamma=0.0, hosts=2)
    found = {rule: statistics(edges, rule) for rule in ("host", "hash")}
    share = {rule: s["max_outer"] / (s["max_inner"] + s["max_outer"]) for rule, s in found.items()}
    want = printed.outer / (printed.inner + printed.outer)
    assert abs(share["host"] - want) < 0.05 < abs(share["hash"] - want)


def test_tables_and_refusals(capsys):
    assert fidelity.main(["--cuts", "reddit2", "--scale", "0.03"]) == 0
    out = capsys.readouterr().out
    assert "twin/reddit2 at scale 0.03, 4 workers on 2 hosts" in out
    assert "138,583" in out and "masters=hash" in out
    assert fidelity.main(["--cuts", "flickr"]) == 2
    assert capsys.readouterr().err.startswith('error: twin="flickr" is not known; known: friendster')
