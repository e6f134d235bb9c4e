"""What became slower beside another revision, told by a test over samples.

Samples of a line are compared by the Mann-Whitney U test, two-sided, which asks nothing of their
distribution; bytes must be equal.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from harness.base import tables
from harness.base.terminal import Terminal
from harness.dev.bench.lines import BenchLine
from harness.results.report.estimate import side_of_samples

ALPHA = 0.05  # p-value below which a difference is taken for one
MARGIN = 0.1  # how much slower a line may become, relative, before the exit code says so
EXACT = "bytes"  # the unit whose values are equal or not
SLOWER = 1  # the exit code; 2 is that of bad input


@dataclass
class Verdict:
    """How a line changed.

    old, new   medians of the samples
    p          of the Mann-Whitney test; NaN: not asked
    word       "faster", "slower", "no difference", "too few samples", "equal" or "differ"
    failed     whether it is worse by more than the margin, or bytes differ
    """

    line: BenchLine
    old: float
    new: float
    p: float
    word: str
    failed: bool

    @property
    def ratio(self) -> float:
        return self.new / self.old if self.old else math.nan


def judge(line: BenchLine, margin: float = MARGIN) -> Verdict:
    """Compare the samples of `line`, this code's, with those of its peer, the other revision."""
    old, new = line.peer_samples, line.samples
    before, now = statistics.median(old), statistics.median(new)
    if line.unit == EXACT:
        equal = set(old) == set(new)
        return Verdict(line, before, now, math.nan, "equal" if equal else "differ", not equal)
    side, p = side_of_samples(old, new, ALPHA)
    if not side:
        word = "too few samples" if side is None else "no difference"
        return Verdict(line, before, now, p, word, False)
    ratio = now / before
    return Verdict(line, before, now, p, "slower" if ratio > 1 else "faster", ratio > 1 + margin)


def table(verdicts: Sequence[Verdict]) -> Table:
    headings = ("part", "what", "old", "new", "unit", "new / old", "p", "verdict")
    shown = tables.shown(headings, words=("part", "what", "unit", "verdict"))
    for each in verdicts:
        form = ".0f" if each.line.unit == EXACT else ".4g"
        shown.add_row(
            each.line.part,
            each.line.name,
            *(format(x, form) for x in (each.old, each.new)),
            each.line.unit,
            *("" if math.isnan(x) else f"{x:.3f}" for x in (each.ratio, each.p)),
            each.word.upper() if each.failed else each.word,
        )
    return shown


def show(verdicts: Sequence[Verdict], console: Terminal, margin: float) -> int:
    """Print the table and name what has become worse; returns the exit code."""
    console.print(table(verdicts))
    failed = [each.line.name.strip() for each in verdicts if each.failed]
    console.say(
        f"slower by more than {margin:.0%} (p < {ALPHA:g}), or other bytes: {'; '.join(failed) or 'none'}"
    )
    return SLOWER if failed else 0
