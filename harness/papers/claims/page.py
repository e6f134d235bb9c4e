"""The claims of the papers on the page: what is decided, and what lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.cli.page.content import Cell, Table
from harness.papers.claims import published, table
from harness.papers.claims.evaluate import NOT_RUN, NOT_YET, Result
from harness.papers.claims.reference import decided
from harness.run.runner import Places

HEADINGS = ("paper", "claim", "part", "published", "here", "verdict", "why", "how to reproduce it")


def verdicts(results: Path) -> tuple[list[str], Table, Table]:
    """The counts; the parts that the runs in `results` say something of; and those that they do not."""
    found = decided(None, Places(results, results / "cache", Path("data")))
    open_ = [each for each in found if each.verdict.word in (NOT_RUN, NOT_YET)]
    told = [each for each in found if each.verdict.word not in (NOT_RUN, NOT_YET)]
    return (
        table.counts(found),
        _table("Claims that these runs decide", told),
        _table("Claims that wait", open_),
    )


def _table(caption: str, results: Sequence[Result]) -> Table:
    return Table(
        caption,
        [(heading, heading not in ("published", "here"), "") for heading in HEADINGS],
        [[Cell(text) for text in _row(each)] for each in results],
    )


def _row(result: Result) -> tuple[str, ...]:
    entry = published.entry(result.entry)
    size = f" --size {result.size}" if result.size else ""
    return (
        entry.paper,
        f"{entry.label}: {entry.title}",
        result.says,
        table.said(result.published),
        table.value(result.ours),
        result.verdict.word,
        "" if result.verdict.word == NOT_RUN else result.verdict.why,
        f"halobench figures {result.experiment}{size}" if result.verdict.word != NOT_YET else "",
    )
