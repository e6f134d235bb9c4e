"""The tables of docs/systems/lean.md are those of results/reference."""

from __future__ import annotations

from tests import lean


def test_the_page_is_up_to_date():
    page = lean.PAGE.read_text()
    assert lean.TABLES.search(page) and page == lean.up_to_date(page), "run python -m tests.lean"


def test_at_most_a_fifth_of_the_least_of_the_five_but_in_the_cell_that_is_named():
    """Most vertices train there, the parts are random, and CDFGNN's vertex-cut is not."""
    runs = lean.kept("lean_bytes")
    assert lean.short_of_a_fifth(runs) == [("amazon-computers dataset.split=random", "random")]
