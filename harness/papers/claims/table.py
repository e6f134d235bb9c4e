"""Verdicts as a reader sees them: by paper, as a table, and counted."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.base.terminal import counted
from harness.papers.claims import published
from harness.papers.claims.evaluate import COMPARED, Result, traced, whole
from harness.papers.claims.verdict import Verdict
from harness.results.report.estimate import Estimate

COLUMNS = (
    "entry", "part", "published", "ours", "share", "verdict", "cause", "why", "again", "experiment", "size",
)  # fmt: skip


def frame(results: Sequence[Result]) -> pd.DataFrame:
    """A row per part, as text."""
    return pd.DataFrame(
        [
            (
                result.entry,
                result.says,
                said(result.published),
                value(result.ours),
                share(result.verdict),
                result.verdict.word,
                result.verdict.cause,
                result.verdict.why,
                result.again,
                result.experiment,
                result.size,
            )
            for result in results
        ],
        columns=COLUMNS,
    )


@dataclass(frozen=True)
class VerdictRow:
    """What a reader sees of one part, or of the cells of a series that have one verdict.

    again    the entry in which it is counted; "" where that is this one
    series   of cells: what their series says, and their `steps`; both "" of a part
    """

    entry: str
    says: str
    published: str
    ours: str
    share: str
    verdict: Verdict
    size: str
    again: str = ""
    series: str = ""
    steps: str = ""


def lines(results: Sequence[Result]) -> list[VerdictRow]:
    """A line per part, in their order. Cells of a series (`harness.papers.claims.cells`) that have one
    verdict for one cause share a line, in the place of the first of them. Parts that are only compared have
    no line."""
    found: dict[tuple, list[Result]] = {}
    for at, result in enumerate(results):
        if result.verdict.word == COMPARED:
            continue
        alike = dataclasses.replace(result.verdict, share=None)
        cells = (result.series, alike, result.size) if result.series else (at,)
        found.setdefault((result.entry, result.experiment, *cells), []).append(result)
    return [
        VerdictRow(
            first.entry,
            first.series.replace("{}", steps) if first.series else first.says,
            ", ".join(filter(None, (said(each.published) for each in same))),
            ", ".join(value(each.ours) for each in same if each.ours),
            ", ".join(each or "-" for each in shares) if any(shares) else "",
            first.verdict,
            first.size,
            first.again,
            first.series,
            steps,
        )
        for first, *more in found.values()
        for same in [[first, *more]]
        for shares in [[share(each.verdict) for each in same]]
        for steps in [", ".join(each.step for each in same) if first.series else ""]
    ]


def plain(results: Sequence[Result]) -> str:
    """For a reader at a terminal: each entry with its title, a line per part below it, and the counts."""
    shown = []
    for name, parts in itertools.groupby(lines(results), key=lambda line: line.entry):
        entry = published.entry(name)
        shown.append(
            f"{name}: {entry.title}" + (" (the text at hand is uncertain)" if entry.uncertain else "")
        )
        for part in parts:
            beside = [
                f"published {part.published}" if part.published else "",
                f"here {part.ours} ({part.size})" if part.ours else "",
                f"share {part.share}" if part.share else "",
                f"cause: {part.verdict.cause}" if part.verdict.cause else "",
                part.verdict.why,
                f"counted in {part.again}" if part.again not in ("", part.entry) else "",
            ]
            shown.append(f"  {part.verdict.word:<15} {part.says}")
            shown += [f"  {'':<15} {'; '.join(filter(None, beside))}"] if any(beside) else []
    return "\n".join([*shown, "", *counts(results)])


def counts(results: Sequence[Result]) -> list[str]:
    """How many entries are decided, and the verdicts on their parts, by cause; the project's own findings are
    counted apart. A measurement that several entries show counts in the first of them."""
    results = [result for result in results if result.verdict.word != COMPARED]
    own = [result for result in results if result.own]
    results = [result for result in results if not result.own]
    by_entry = [list(parts) for _, parts in itertools.groupby(results, key=lambda result: result.entry)]
    far = Counter(map(whole, by_entry))
    papers = [
        f"{counted(len(by_entry), 'published experiment')}: {far['whole']} decided whole,"
        f" {far['in part']} in part, {far['not']} not.",
        f"With a verdict from traces on every part, be it cannot tell: {sum(map(traced, by_entry))}.",
    ]
    once = [result for result in results if not result.again]
    for of, parts in apart(once).items():
        papers += [f"{counted(len(parts), 'part')} of {of}: {_verdicts(parts)}."] if parts else []
    if repeats := len(results) - len(once):
        papers.append(f"Shown again under another entry, and not counted again: {repeats}.")
    kept = [result for result in results if "reference" in result.size]
    if kept:
        papers.append(f"Verdicts kept of runs that are not in this folder: {len(kept)}.")
    findings = [f"{counted(len(own), 'finding')} of this project: {_verdicts(own)}."]
    return [*(papers if results or not own else []), *(findings if own else [])]


def apart(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The parts of figures and statements, and, apart from them, those of tables, which have many cells."""
    tables = [published.entry(result.entry).kind == "table" for result in results]
    return {
        "figures and statements": [each for each, of_table in zip(results, tables) if not of_table],
        "tables": [each for each, of_table in zip(results, tables) if of_table],
    }


def _verdicts(results: Sequence[Result]) -> str:
    """Verdicts with their numbers, most frequent first, and behind each what it is owed to."""
    words = Counter(result.verdict.word for result in results)
    said = []
    for word, count in words.most_common():
        causes = Counter(each.verdict.cause for each in results if each.verdict.word == word)
        named = ", ".join(f"{cause} {n}" for cause, n in causes.most_common() if cause)
        said.append(f"{count} {word}" + (f" ({named})" if named else ""))
    return ", ".join(said)


def share(verdict: Verdict) -> str:
    """The share of the printed effect, with its interval; "" where no effect is printed."""
    return "" if verdict.share is None else format(verdict.share, ".2f")


def said(number: Any) -> str:
    """A published number or range."""
    if number is None:
        return ""
    return " to ".join(f"{end:g}" for end in number) if isinstance(number, list) else f"{number:g}"


def value(ours: Estimate | None) -> str:
    return "" if ours is None else format(ours, ".4g")
