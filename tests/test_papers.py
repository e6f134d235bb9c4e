"""The verdicts on the papers' pages and in README are those of results/reference."""

import re

import pandas as pd
import pytest

from harness import cli
from harness.base import tables
from harness.papers.claims import __main__ as claims
from harness.papers.claims import experiment, picture, published, seconds
from harness.papers.claims.verdict import DECIDED, DIRECTION, HOLDS, NO_EFFECT, UNKNOWN
from tests import experiments, papers


@pytest.fixture(scope="module")
def found():
    return papers.results()


@pytest.mark.parametrize("paper", sorted({entry.paper for entry in published.experiments().values()}))
def test_a_papers_page_is_up_to_date(paper, found):
    page = (papers.PAGES / f"{paper}.md").read_text()
    parts = (papers.PAGES / "verdicts" / f"{paper}.md").read_text()
    assert parts == papers.every_part(page.splitlines()[0], paper, found), "run python -m tests.papers"
    assert f"(verdicts/{paper}.md)" in page and len(page.splitlines()) > 8, "what held, and why, by hand"


def test_what_became_of_earlier_verdicts_is_up_to_date(found):
    parts = papers.moved(found)
    kept = pd.read_csv(papers.PAGES / "verdicts" / "moved.csv", keep_default_na=False)
    assert parts.astype(str).equals(kept.astype(str)), "run python -m tests.papers"
    gone = parts[parts["now"] == papers.GONE]
    # What another table has, a row of the fit, and what the papers do not say so or print no number of.
    assert len(parts) == 1397 and gone.groupby("entry").size().to_dict() == {
        "capgnn_fig21": 16, "sancus_table5": 3, "sancus_claim_gpus": 1, "pscgcn_claim_accuracy": 1,
        "digest_fig3": 1, "capgnn_claim_ablation": 1,
    }  # fmt: skip
    page = (papers.PAGES / "README.md").read_text()
    assert page == papers.index(page, found, parts), "run python -m tests.papers"


def test_printed_seconds_and_their_predictions_are_up_to_date(found):
    for paper, each in seconds.table(found).groupby("paper"):
        kept = (papers.ROOT / "docs" / "figures" / f"predicted_{paper}.csv").read_text()
        assert kept == tables.csv(each, float_format="%.6g"), "run python -m tests.papers"


def test_readme_counts_the_verdicts(found):
    text = (papers.ROOT / "README.md").read_text()
    assert papers.COUNTS.search(text) and text == papers.readme(text, found), "run python -m tests.papers"


def test_the_artefacts_table_is_up_to_date(found):
    page = (papers.ROOT / "docs" / "artefact.md").read_text()
    made = papers.with_tables(page, papers.COMMAND, papers.artefact(found))
    assert page == made, "run python -m tests.papers"


def test_kept_pictures_of_claims_say_what_the_verdicts_say(found):
    drawn = papers.pictures(found)
    other = [path.name for path in drawn if papers.description(path) != picture.described(drawn[path])]
    assert len(drawn) > 50 and other == [], "run python -m tests.papers"


def test_the_command_prints_what_readme_says(found, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(papers.ROOT)
    monkeypatch.setattr(claims, "decided", lambda own, places, kept: found)  # takes seconds
    assert cli.main(["report", "claims", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    (counts,) = papers.COUNTS.findall((papers.ROOT / "README.md").read_text())
    numbers = re.findall(rf"\d+ (?:{'|'.join(papers.WORDS)})", " ".join(counts.split()))
    assert len(numbers) > 10 and [each for each in numbers if each not in said] == []


def test_every_verdict_but_holds_names_what_it_is_owed_to(found):
    judged = (*DECIDED, NO_EFFECT, UNKNOWN)
    unnamed = [
        (each.entry, each.says)
        for each in found
        if not each.own
        and each.verdict.word in judged
        and not each.verdict.cause
        # A direction that is all that is printed, and holds, needs none.
        and not (each.verdict.word == HOLDS or (each.verdict.word == DIRECTION and not each.verdict.share))
    ]
    assert not unnamed


@pytest.mark.parametrize(
    "entry,says",
    [
        ("sancus_table6", "flickr with 2 GPUs"),  # bytes of a cache
        ("sancus_claim_comm", "SCS-E1 communicates"),  # the schedule
        ("sancus_fig24", "SCS-E1 broadcasts every second epoch"),
        ("capgnn_fig20", "the rule's own threshold"),  # where Algorithm 2 stops
        ("capgnn_table8", "JACA's bytes over Vanilla's"),  # 2.2 H / (f0 + 4 H)
        ("capgnn_fig15", "JACA hits more often than LRU with 1250"),  # a cyclic scan
        ("capgnn_fig16", "JACA sends fewer bytes than FIFO"),
        ("digest_fig7", "DIGEST-A's epoch"),  # beside a barrier of 9 s
        ("cdfgnn_table3", "EBV with gamma 0 replicates Friendster"),  # the twin is made so
        ("cdfgnn_fig6", "quantisation alone takes communication away"),
        ("capgnn_table7", "accuracy of DistGCN minus Vanilla's"),  # its products are Vanilla's
        ("capgnn_fig21", "AdaQP is balanced"),  # as Vanilla is
    ],
)
def test_what_could_be_no_other_is_by_construction(entry, says):
    parts = [
        claim
        for plan in experiments.all_of_them().values()
        for claim in plan.claims
        if claim.entry == entry and says in claim.says
    ]
    assert parts and all(claim.by_construction or claim.calibrated for claim in parts)


def test_a_published_mean_is_one_claim():
    """CDFGNN's 31.08 % fewer messages between hosts and its 30.39 % less time are means over four graphs."""
    claims = [claim for plan in experiments.all_of_them().values() for claim in plan.claims]
    for entry, value in (("cdfgnn_claim_outer", 31.08), ("cdfgnn_claim_speed", 30.39)):
        (claim,) = [each for each in claims if each.entry == entry]
        assert (claim.published, claim.across, claim.graph) == (value, "mean", None)


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
