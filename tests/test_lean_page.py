"""The tables of docs/systems/lean.md are those of results/reference, and say what its text says of them."""

from __future__ import annotations

from tests import lean


def test_the_page_is_up_to_date():
    page = lean.PAGE.read_text()
    assert lean.TABLES.search(page) and page == lean.up_to_date(page), "run python -m tests.lean"


def test_every_cell_is_at_most_a_fifth_of_the_least_of_the_five():
    runs = lean.kept("lean_bytes")
    for graph in dict.fromkeys(runs.graph):
        for partition in lean.PARTITIONS:
            ours = lean.of(runs, graph, f"lean, {partition}").mb_epoch
            assert ours.mean() <= lean.least(runs, graph, partition)[1] / 5, (graph, partition)
