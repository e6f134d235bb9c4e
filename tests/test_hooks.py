"""The page of the contract names every hook with the systems that use it."""

from __future__ import annotations

from harness.core import mixins
from harness.core.system import System
from tests import hooks, pieces
from tests.kept import with_tables


def test_the_page_has_every_hook():
    page = hooks.PAGE.read_text()
    assert page == with_tables(page, hooks.COMMAND, hooks.table()), f"run {hooks.COMMAND}"
    assert all(said for said in hooks.hooks().values()), "each says what it is"


def test_the_page_of_pieces_has_every_partitioner_and_combine():
    page = pieces.PAGE.read_text()
    assert page == with_tables(page, pieces.COMMAND, pieces.table()), f"run {pieces.COMMAND}"


def test_what_a_system_says_of_its_own_is_found():
    assert "vanilla" in hooks.users("halo") and "cdfgnn" in hooks.users("synchronize")
    assert hooks.users("epochs_done") == ["digest_a"]


def test_an_author_meets_few_hooks_and_each_class_beside_is_named():
    assert len(hooks.methods(System)) <= 12 and len(hooks.attributes()) <= 8
    beside = {
        cls for cls in vars(mixins).values() if isinstance(cls, type) and cls.__module__ == mixins.__name__
    }
    assert beside <= set(hooks.BESIDE)
