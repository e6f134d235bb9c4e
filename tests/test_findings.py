"""docs/findings.md: what it states stands on the pages that it is from."""

from __future__ import annotations

import re

import pandas as pd

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()
SOURCES = ("systems/study.csv", "results.md", "systems/lean.md", "papers/capgnn.md", "../README.md")
KEPT = ("modelled_capgnn_groups",)  # experiments whose kept values stand there in two decimals
NUMBER = re.compile(r"[+-]?\d+\.\d+ ± \d+\.\d+")


def test_every_number_with_an_interval_stands_on_the_page_that_it_is_from():
    sources = "".join((ROOT / "docs" / name).read_text() for name in SOURCES)
    kept = pd.concat(pd.read_csv(ROOT / "results" / "reference" / name / "claims.csv") for name in KEPT)
    there = set(NUMBER.findall(sources))
    there |= {f"{mean:.2f} ± {half:.2f}" for mean, half in zip(kept["mean"], kept["half"])}
    found = NUMBER.findall(PAGE)
    assert len(found) > 40 and [each for each in found if each not in there] == []


def test_every_finding_has_a_command():
    findings = PAGE.split("\n## ")[1:]
    assert len(findings) == 9 and all("```sh" in each for each in findings)
