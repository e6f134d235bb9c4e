"""Verdicts as a reader sees them: by paper, as a table, and counted."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.base.terminal import counted
from harness.claims import published
from harness.claims.evaluate import Result, traced, whole
from harness.claims.verdict import HOLDS, WIDE, Verdict
from harness.report.groups import Estimate

COLUMNS = ("entry", "part", "published", "ours", "verdict", "why", "experiment", "size")


def frame(results: Sequence[Result]) -> pd.DataFrame:
    """A row per part, as text."""
    return pd.DataFrame(
        [
            (
                result.entry,
                result.says,
                said(result.published),
                value(result.ours),
                result.verdict.word,
                result.verdict.why,
                result.experiment,
                result.size,
            )
            for result in results
        ],
        columns=COLUMNS,
    )


@dataclass(frozen=True)
class Line:
    """What a reader sees of one part, or of the cells of a series that have one verdict."""

    entry: str
    says: str
    published: str
    ours: str
    verdict: Verdict
    size: str


def lines(results: Sequence[Result]) -> list[Line]:
    """A line per part, in their order; the cells of a series (`harness.claims.cells`) that have one verdict
    share one, where the first of them stands.
    """
    found: dict[tuple, list[Result]] = {}
    for at, result in enumerate(results):
        cells = (result.series, result.verdict, result.size) if result.series else (at,)
        found.setdefault((result.entry, result.experiment, *cells), []).append(result)
    return [
        Line(
            first.entry,
            first.series.replace("{}", ", ".join(each.step for each in same)) if first.series else first.says,
            ", ".join(filter(None, (said(each.published) for each in same))),
            ", ".join(value(each.ours) for each in same if each.ours),
            first.verdict,
            first.size,
        )
        for first, *more in found.values()
        for same in [[first, *more]]
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
                part.verdict.why,
            ]
            shown.append(f"  {part.verdict.word:<15} {part.says}")
            shown += [f"  {'':<15} {'; '.join(filter(None, beside))}"] if any(beside) else []
    return "\n".join([*shown, "", *counts(results)])


def counts(results: Sequence[Result]) -> list[str]:
    """How many entries are decided, and the verdicts on their parts; findings that are no paper's apart."""
    own = [result for result in results if result.own]
    results = [result for result in results if not result.own]
    by_entry = [list(parts) for _, parts in itertools.groupby(results, key=lambda result: result.entry)]
    far = Counter(map(whole, by_entry))
    papers = [
        f"{counted(len(by_entry), 'published experiment')}: {far['whole']} decided whole,"
        f" {far['in part']} in part, {far['not']} not.",
        f"With a verdict from traces on every part, be it cannot tell: {sum(map(traced, by_entry))}.",
    ]
    cells = [result for result in results if result.series]
    rest = [result for result in results if not result.series]
    papers += [f"{counted(len(rest), 'part')}: {_verdicts(rest)}."] if rest or not cells else []
    papers += [f"{counted(len(cells), 'cell')} of tables: {_verdicts(cells)}."] if cells else []
    kept = [result for result in results if "reference" in result.size]
    if kept:
        papers.append(f"Verdicts kept of runs that are not in this folder: {len(kept)}.")
    findings = [f"{counted(len(own), 'finding')} of this project: {_verdicts(own)}."]
    return [*(papers if results or not own else []), *(findings if own else [])]


def _verdicts(results: Sequence[Result]) -> str:
    words = Counter(result.verdict.word for result in results)
    wide = sum(result.verdict.why == WIDE for result in results)
    apart = {HOLDS: f" ({wide} of them by intervals that hold no difference too)"} if wide else {}
    return ", ".join(f"{count} {word}{apart.get(word, '')}" for word, count in words.most_common())


def said(number: Any) -> str:
    """A published number or range."""
    if number is None:
        return ""
    return " to ".join(f"{end:g}" for end in number) if isinstance(number, list) else f"{number:g}"


def value(ours: Estimate | None) -> str:
    return "" if ours is None else format(ours, ".4g")
