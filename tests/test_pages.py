"""Every system has a page, and its knobs and decisions are those of the code."""

from __future__ import annotations

import re

import pytest

from tests import pages

NAMES = sorted(p.stem for p in pages.CONF.glob("*.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_up_to_date(name):
    page = (pages.PAGES / f"{name}.md").read_text()
    assert page == pages.up_to_date(page, name), "run python -m tests.pages"
    assert set(re.findall(r"^## (.*)$", page, re.M)) == {"Knobs", "Decisions", "Picture"}
    for picture in re.findall(r"\]\(([^)]+\.png)\)", page):
        assert (pages.PAGES / picture).exists(), f"{picture} is not there"


def test_knobs_are_read_from_a_yaml():
    table = pages.knobs('_target_: a.B\nx: 1  # the x\ny: "a # b"\nz: null   # one | two\n').splitlines()[2:]
    assert table == ["| `x` | `1` | the x |", '| `y` | `"a # b"` |  |', "| `z` | `null` | one or two |"]
