"""The tables of pages are those that their makers make of the code and of results/reference."""

import pytest

from harness.core import mixins
from harness.core.system import System
from tests import batches, best, hooks, lean, pieces
from tests.kept import kept, with_tables


@pytest.mark.parametrize("maker", [lean, batches], ids=lambda maker: maker.PAGE.stem)
def test_a_page_with_several_tables_is_up_to_date(maker):
    page = maker.PAGE.read_text()
    assert page == maker.up_to_date(page), f"run {maker.COMMAND}"


@pytest.mark.parametrize("maker", [best, hooks, pieces], ids=lambda maker: maker.PAGE.stem)
def test_a_page_with_one_table_is_up_to_date(maker):
    page = maker.PAGE.read_text()
    assert page == with_tables(page, maker.COMMAND, maker.table()), f"run {maker.COMMAND}"


def test_at_most_a_fifth_of_the_least_of_the_five_but_in_the_cell_that_is_named():
    """Most vertices train there, the parts are random, and CDFGNN's vertex-cut is not."""
    runs = kept("lean_bytes")
    assert lean.short_of_a_fifth(runs) == [("amazon-computers dataset.split=random", "random")]


def test_an_author_meets_few_hooks_which_all_say_what_they_are():
    assert len(hooks.methods(System)) <= 12 and len(hooks.attributes()) <= 8
    assert all(said for said in hooks.hooks().values())
    beside = {
        cls for cls in vars(mixins).values() if isinstance(cls, type) and cls.__module__ == mixins.__name__
    }
    assert beside <= set(hooks.BESIDE)
