"""The verdicts on the papers' pages and in README are those of results/reference."""

from __future__ import annotations

import pytest

from harness import cli
from harness.claims import experiment, published
from tests import papers


@pytest.fixture(scope="module")
def found():
    return papers.results()


@pytest.mark.parametrize("paper", sorted({entry.paper for entry in published.experiments().values()}))
def test_a_papers_page_is_up_to_date(paper, found):
    page = (papers.PAGES / f"{paper}.md").read_text()
    assert page == papers.up_to_date(page, paper, found), "run python -m tests.papers"
    assert len(page.partition("\n## Verdicts\n")[0].splitlines()) > 5, "what held, and why, by hand"


def test_readme_counts_the_verdicts(found):
    text = (papers.ROOT / "README.md").read_text()
    assert papers.COUNTS.search(text) and text == papers.readme(text, found), "run python -m tests.papers"


def test_the_command_prints_what_readme_says(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(papers.ROOT)
    assert cli.main(["report", "claims", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    (counts,) = papers.COUNTS.findall((papers.ROOT / "README.md").read_text())
    for sentence in " ".join(counts.split()).split(". "):
        assert sentence.rstrip(".") in said


def test_what_is_kept_is_still_asked_for(found):
    """A claim whose rule or runs have changed is made again, or no longer kept; but for one on a graph that
    size small does not run."""
    kept = {path.parent.name for path in (papers.ROOT / "results" / "reference").glob("*/claims.csv")}
    assert kept, "size small has been run"
    plans = {name: experiment.one(name) for name in kept}
    run = {
        (name, claim.entry, claim.says)
        for name, plan in plans.items()
        for claim in plan.claims
        if plan.on("small", claim.graph)
    }
    stale = [
        each.says
        for each in found
        if (each.experiment, each.entry, each.says) in run
        and not each.size
        and each.verdict.word == "not run"
    ]
    assert not stale, "halobench figures EXPERIMENT --size small --keep results/reference"
