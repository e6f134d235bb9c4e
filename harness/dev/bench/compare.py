"""`halobench bench compare OLD.json NEW.json`: has something become slower?

Samples of a line are compared by the Mann-Whitney U test, two-sided, which asks nothing of their
distribution; bytes must be equal. The exit code is 1 where a line is slower by more than the margin, or where
bytes differ, and 3 where nothing is, but a part of either file was measured on a busy machine: its times are
not judged.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from harness.base import tables
from harness.base.errors import InputError, within, within_above
from harness.base.subcommand import Parser, command
from harness.base.terminal import Terminal, unfolded
from harness.dev.bench import record
from harness.dev.bench.lines import NOT_JUDGED, BenchLine
from harness.dev.bench.record import Record
from harness.results.report.estimate import side_of_samples

ALPHA = 0.05  # p-value below which a difference is taken for one
MARGIN = 0.1  # how much slower a line may become, relative, before the exit code says so
LARGER_IS_BETTER = ("GB/s",)
EXACT = "bytes"  # the unit whose values are equal or not
SLOWER, UNJUDGED = 1, 3  # exit codes; 2 is that of bad input


@dataclass
class Verdict:
    """How a line changed.

    old, new   medians of the samples
    p          of the Mann-Whitney test; NaN: not asked
    word       "faster", "slower", "no difference", "too few samples", "not measured", "equal", "differ" or
               "busy: not judged"
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


def judge(
    line: BenchLine, old: Sequence[float], new: Sequence[float], margin: float = MARGIN, alpha: float = ALPHA
) -> Verdict:
    """Compare the samples of `line` from before with those of now."""
    if not old or not new:
        return Verdict(line, math.nan, math.nan, math.nan, "not measured", False)
    before, now = statistics.median(old), statistics.median(new)
    if line.unit == EXACT:
        equal = set(old) == set(new)
        return Verdict(line, before, now, math.nan, "equal" if equal else "differ", not equal)
    side, p = side_of_samples(old, new, alpha)
    if not side:
        word = "too few samples" if side is None else "no difference"
        return Verdict(line, before, now, p, word, False)
    worse = before / now if line.unit in LARGER_IS_BETTER else now / before
    return Verdict(line, before, now, p, "slower" if worse > 1 else "faster", worse > 1 + margin)


def compared(old: Record, new: Record, margin: float = MARGIN, alpha: float = ALPHA) -> list[Verdict]:
    """A verdict per line. InputError where machines or lines differ."""
    for fact, value in new.machine.items():
        if value != old.machine[fact]:
            raise InputError(
                f"{new.path} was measured with {fact}={value}, {old.path} with {fact}={old.machine[fact]}:"
                " give two files of one machine"
            )
    befores, nows = ({(line.part, line.name, line.unit): line for line in r.lines} for r in (old, new))
    for here, there, key in [(old, new, k) for k in befores] + [(new, old, k) for k in nows]:
        if key not in (nows if there is new else befores):
            raise InputError(
                f'{there.path} lacks the line "{key[0]}: {key[1].strip()}" of {here.path}: measure both with'
                " the same parts and sizes"
            )
    found = []
    for key, before in befores.items():
        now = nows[key]
        verdict = judge(now, before.samples, now.samples, margin, alpha)
        if (before.busy or now.busy) and now.unit != EXACT:
            verdict.word, verdict.failed = NOT_JUDGED, False
        found.append(verdict)
    return found


def table(verdicts: Sequence[Verdict]) -> Table:
    headings = ("part", "what", "old", "new", "unit", "new / old", "p", "verdict")
    shown = tables.shown(headings, words=("part", "what", "unit", "verdict"))
    for each in verdicts:
        form = ".0f" if each.line.unit == EXACT else ".4g"
        shown.add_row(
            each.line.part,
            each.line.name,
            *("" if math.isnan(x) else format(x, form) for x in (each.old, each.new)),
            each.line.unit,
            *("" if math.isnan(x) else f"{x:.3f}" for x in (each.ratio, each.p)),
            each.word.upper() if each.failed else each.word,
        )
    return shown


def show(verdicts: Sequence[Verdict], console: Terminal, margin: float, alpha: float) -> int:
    """Print the table and name what has become worse; returns the exit code."""
    console.print(table(verdicts))
    failed = [each.line.name.strip() for each in verdicts if each.failed]
    console.say(
        f"slower by more than {margin:.0%} (p < {alpha:g}), or other bytes: {'; '.join(failed) or 'none'}"
    )
    if failed:
        return SLOWER
    return UNJUDGED if any(each.word == NOT_JUDGED for each in verdicts) else 0


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """The options that say what counts as slower."""
    parser.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        metavar="SHARE",
        help=f"how much slower a line may be, relative (default {MARGIN})",
    )
    parser.add_argument(
        "--alpha",
        type=float,
        default=ALPHA,
        metavar="P",
        help=f"p-value below which a difference is taken for one (default {ALPHA})",
    )


def check_bounds(asked: argparse.Namespace) -> None:
    within("--margin", asked.margin, 0, math.inf)
    within_above("--alpha", asked.alpha, 0, 1)


@command("halobench bench compare")
def main(words: list[str], program: str) -> int:
    parser = Parser(prog=program, description=__doc__)
    parser.add_argument("old", type=Path, metavar="OLD.json", help="what bench --json wrote before")
    parser.add_argument("new", type=Path, metavar="NEW.json", help="what it wrote now, on the same machine")
    add_bounds(parser)
    asked = parser.parse_args(words)
    check_bounds(asked)
    old, new = record.read(asked.old), record.read(asked.new)
    verdicts = compared(old, new, asked.margin, asked.alpha)
    console = unfolded()
    console.say(f"old: {old.path}, revision {old.revision}; new: {new.path}, revision {new.revision}")
    return show(verdicts, console, asked.margin, asked.alpha)
