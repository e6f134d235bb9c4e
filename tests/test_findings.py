"""docs/findings.md: what it states stands on the pages that it is from."""

from __future__ import annotations

import re

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()
SOURCES = ("systems/study.csv", "results.md", "systems/lean.md", "papers/capgnn.md", "../README.md")
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")


def test_every_number_with_an_interval_stands_on_the_page_that_it_is_from():
    sources = "".join((ROOT / "docs" / name).read_text() for name in SOURCES)
    there = set(NUMBER.findall(sources))
    found = NUMBER.findall(PAGE)
    assert len(found) > 40 and [each for each in found if each not in there] == []


def test_every_finding_has_a_command():
    findings = PAGE.split("\n## ")[1:]
    assert len(findings) == 9 and all("```sh" in each for each in findings)
