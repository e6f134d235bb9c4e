"""Verdicts as a reader sees them: by paper, as a table, and counted."""

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Sequence
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
    rows = [
        (
            result.entry,
            result.says,
            said(result.claim.published),
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
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def together(results: Sequence[Result]) -> list[list[Result]]:
    """What shares a line for a reader: each part alone, or the cells of a series
    (`harness.papers.claims.cells`) that have one verdict for one cause, in the place of the first of them.
    Parts that are only compared have no line."""
    found: dict[tuple, list[Result]] = {}
    for at, result in enumerate(results):
        if result.verdict.word == COMPARED:
            continue
        alike = dataclasses.replace(result.verdict, share=None)
        series = result.claim.series
        cells = (series, alike, result.size) if series else (at,)
        found.setdefault((result.entry, result.experiment, *cells), []).append(result)
    return list(found.values())


def plain(results: Sequence[Result]) -> str:
    """For a reader at a terminal: each entry with its title, a line per part below it, and the counts."""
    shown = []
    for name, lines in itertools.groupby(together(results), key=lambda same: same[0].entry):
        entry = published.entry(name)
        shown.append(
            f"{name}: {entry.title}" + (" (the text at hand is uncertain)" if entry.uncertain else "")
        )
        for same in lines:
            first, verdict, shares = same[0], same[0].verdict, [share(each.verdict) for each in same]
            steps = ", ".join(each.claim.step for each in same)
            says = first.claim.series.replace("{}", steps) or first.says
            printed = ", ".join(filter(None, (said(each.claim.published) for each in same)))
            ours = ", ".join(value(each.ours) for each in same if each.ours)
            beside = [
                f"published {printed}" if printed else "",
                f"here {ours} ({first.size})" if ours else "",
                f"share {', '.join(each or '-' for each in shares)}" if any(shares) else "",
                f"cause: {verdict.cause}" if verdict.cause else "",
                verdict.why,
                f"counted in {first.again}" if first.again not in ("", name) else "",
            ]
            shown.append(f"  {verdict.word:<15} {says}")
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
        f"With a verdict from traces on every part, cannot tell included: {sum(map(traced, by_entry))}.",
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
    found: dict[str, list[Result]] = {"figures and statements": [], "tables": []}
    for each in results:
        kind = published.entry(each.entry).kind
        found["tables" if kind == "table" else "figures and statements"].append(each)
    return found


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
    """A published number or range, of which one end may be infinite."""
    if number is None:
        return ""
    if isinstance(number, list) and math.isinf(number[1]):
        return f"{number[0]:g} or more"
    if isinstance(number, list) and math.isinf(number[0]):
        return f"{number[1]:g} or less"
    return " to ".join(f"{end:g}" for end in number) if isinstance(number, list) else f"{number:g}"


def value(ours: Estimate | None) -> str:
    return "" if ours is None else format(ours, ".4g")
