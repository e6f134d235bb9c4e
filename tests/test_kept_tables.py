"""The tables of pages that are made of results/reference are those that it holds."""

from __future__ import annotations

import pytest

from tests import batches, best, lean
from tests.kept import kept


@pytest.mark.parametrize("maker", [lean, batches, best], ids=lambda maker: maker.PAGE.stem)
def test_the_page_is_up_to_date(maker):
    page = maker.PAGE.read_text()
    assert page == maker.up_to_date(page), f"run {maker.COMMAND}"


def test_at_most_a_fifth_of_the_least_of_the_five_but_in_the_cell_that_is_named():
    """Most vertices train there, the parts are random, and CDFGNN's vertex-cut is not."""
    runs = kept("lean_bytes")
    assert lean.short_of_a_fifth(runs) == [("amazon-computers dataset.split=random", "random")]
