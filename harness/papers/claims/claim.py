"""A claim: one part of what a paper says, and how it is decided; with a check of what a file says of a
claim."""

import functools
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.base.errors import InputError, choice
from harness.papers.claims.cells import MADE
from harness.papers.claims.measure import Measure, measure_of, unit_of
from harness.papers.claims.verdict import CAUSES, SIDES

ACROSS = ("mean", "max", "min")
TAKES = {name: len(inspect.signature(made).parameters) for name, made in MADE.items()}  # rows
NUMBERS = {1: "one", 2: "two", 4: "four"}  # rows that a comparison takes, in words


@dataclass(frozen=True)
class Size:
    """How much is run.

    graphs    each as overrides, as "dblp dataset.split=low_label"; values are means over them
    runs      what all rows have in common, as overrides: workers, epochs, seeds, partition
    minutes   what to expect on two cores
    """

    graphs: list[str]
    runs: str
    minutes: float


@dataclass(frozen=True)
class Claim:
    """One part of what a paper says, and how it is decided.

    entry            the published entry that it is a part of; for a finding, which no paper says, the
                     experiment's own name: it is decided as the others are and counted apart
    says             the part, in words
    measure          what is taken of each run (`harness.papers.claims.measure`)
    rows             the rows compared, as many as `compare` takes; with "descending" two or more, the largest
                     value first
    compare          "value" of one row; of rows a and b "ratio" a / b, "less_percent" 100 (1 - a / b) or
                     "difference" a - b; of a, b, c and d "ratio_of_ratios" (a / b) / (c / d) or
                     "ratio_of_differences" (a - b) / (c - d); or "descending"
    published        a number, the two ends of a range (-.inf or .inf where it has one end alone), or null
                     where the paper has a direction only
    direction        "above" or "below" `neutral`
    neutral          the value of no difference; null: 1 of ratios, else 0
    tolerance        instead of 10 % of our mean, in the unit of the value; needs `reason`
    graph            the graph on which this is decided, itself or its twin, as a size has it: its name, or
                     all of its overrides where a size has it in several forms, or several names with commas
                     between them; null: all of the size
    across           how several graphs are put together, seed by seed: their "mean", or, where the paper
                     speaks of its best or worst case, the "max" or "min" of what is compared
    control          a row that has none of what the claim is about: where it does as well in `measure`, the
                     verdict is "cannot tell", unless the claim is missed or of a loss that is told apart
    by_construction  why agreement proves nothing: a schedule, a format, equal products or a knob that was set
                     to reproduce it fix the value, on any graph
    calibrated       why agreement proves nothing on a twin: the twin was made to have this value
    compared         whether it is judged by no rule, but shown beside what is printed
                     (`harness.papers.claims.seconds`), there as `row`; "": as the first of `rows`
    cause            what a verdict other than "holds" is owed to (`harness.papers.claims.verdict.CAUSES`);
                     "": the experiment's
    because          why the cause is that
    series, step     of a cell of a table (`harness.papers.claims.cells`): what its series says, with {} for
                     the step, and the step
    """

    entry: str
    says: str
    measure: Any
    rows: list[str]
    compare: str = "value"
    published: Any = None
    direction: str | None = None
    neutral: float | None = None
    tolerance: float | None = None
    reason: str = ""
    graph: str | None = None
    across: str = "mean"
    control: str | None = None
    by_construction: str = ""
    calibrated: str = ""
    compared: bool = False
    row: str = ""
    cause: str = ""
    because: str = ""
    series: str = ""
    step: str = ""

    @property
    def logarithmic(self) -> bool:
        """Whether an effect is a difference of logarithms."""
        return self.compare.startswith("ratio")

    @property
    def unit(self) -> str:
        """What an axis calls its value."""
        measured = unit_of(self.measure)
        return {
            "value": measured,
            "ratio": f"ratio of {measured}",
            "less_percent": f"{measured}: less by, %",
            "difference": f"difference of {measured.replace(', %', ' %').replace(' %', ', points')}",
        }.get(self.compare, f"{self.compare.replace('_', ' ')} of {measured}")

    @property
    def no_difference(self) -> float:
        """The value of no difference: `neutral`, or 1 of ratios and 0 of anything else."""
        return self.neutral if self.neutral is not None else float(self.logarithmic)

    @property
    def drawn_neutral(self) -> float | None:
        """Where a picture has its line of no difference; None where the paper has no direction."""
        return None if self.direction is None else self.no_difference

    @functools.cached_property
    def value(self) -> Measure:
        """What is taken of each run."""
        return measure_of(self.measure)

    def of(self, row: str) -> Measure:
        """What is taken of a row's runs."""
        own = isinstance(self.measure, Mapping) and row in (self.measure.get("more") or ())
        return measure_of(self.measure, row=row) if own else self.value

    @property
    def measurement(self) -> tuple[Any, ...]:
        """What is measured, whatever the paper prints of it."""
        return repr(self.measure), tuple(self.rows), self.compare, self.graph, self.across

    @functools.cached_property
    def needed(self) -> list[str]:
        """Every row whose runs decide it."""
        more = (self.control, self.value.reference)
        return list(dict.fromkeys([*self.rows, *filter(None, more)]))


@dataclass(frozen=True)
class Need:
    """A part of a published entry that nothing here can decide yet, and what it waits for by name."""

    entry: str
    part: str
    needs: str


@functools.cache
def named(graph: str) -> str:
    """The name of a graph of a size, without "twin/"."""
    return graph.split()[0].removeprefix("twin/")


def check(where: str, claim: Claim, rows: Mapping[str, str], sizes: Mapping[str, Size]) -> None:
    """InputError where a file's claim cannot be decided: a field that is unknown, missing or contradicts
    another.

    where   the claim's place in the file, for messages
    rows    overrides by row
    """
    choice(f"{where}.compare", claim.compare, (*MADE, "descending"))
    measure_of(claim.measure, f"{where}.measure")
    if isinstance(claim.measure, dict):
        for row in claim.measure.get("more") or ():
            choice(f"{where}.measure.more", row, claim.rows)
    for row in claim.rows:
        choice(f"{where}.rows", row, rows)
    for field, other in (("control", claim.control), ("measure.of", claim.value.reference or None)):
        if other is not None:
            choice(f"{where}.{field}", other, rows)
    if claim.compare == "descending":
        fits, number = len(claim.rows) >= 2, "two or more"
    else:
        takes = TAKES[claim.compare]
        fits, number = len(claim.rows) == takes, NUMBERS.get(takes, str(takes))
    if not fits:
        raise InputError(f"{where}.rows={claim.rows}: compare={claim.compare} takes {number}")
    choice(f"{where}.across", claim.across, ACROSS)
    if claim.across != "mean" and claim.compare == "descending":
        raise InputError(
            f"{where}.across={claim.across} takes one number of each graph: give another compare"
        )
    if claim.direction is not None:
        choice(f"{where}.direction", claim.direction, SIDES)
    if claim.cause:
        choice(f"{where}.cause", claim.cause, CAUSES)
    if claim.tolerance is not None and not claim.reason:
        raise InputError(f"{where}.tolerance={claim.tolerance} has no reason: give reason")
    if claim.graph is not None:
        graphs = [graph for size in sizes.values() for graph in size.graphs]
        for each in [claim.graph] if claim.graph in graphs else claim.graph.split(","):
            choice(f"{where}.graph", each, {*graphs, *map(named, graphs)})
    for row in claim.needed:
        if _swept(rows[row]):
            raise InputError(
                f"{where}.rows: {row} is a sweep ({rows[row]}): give a row for each of its values"
            )
    if claim.published is None and claim.direction is None and claim.compare != "descending":
        raise InputError(f"{where} has neither published nor direction: give one")
    ends = claim.published
    if not isinstance(ends, int | float | None) and not (
        isinstance(ends, list)
        and len(ends) == 2
        and all(isinstance(end, int | float) for end in ends)
        and ends[0] <= ends[1]
    ):
        raise InputError(f"{where}.published={ends}: give a number, or [least, most]")
    if ends is not None and not any(map(math.isfinite, ends if isinstance(ends, list) else [ends])):
        raise InputError(f"{where}.published={ends} has no end: give a number, or one end at least")
    if claim.logarithmic and claim.direction is not None:  # effects of ratios are logarithms
        lower: Any = ends[0] if isinstance(ends, list) else ends
        for key, value in (("published", lower), ("neutral", claim.neutral)):
            if value is not None and value <= 0:
                raise InputError(f"{where}.{key}={value} is no ratio: give more than 0, or another compare")
    if claim.direction is not None:
        _check_side(where, claim)


def _check_side(where: str, claim: Claim) -> None:
    """InputError where what is printed does not lie on the side that the paper claims."""
    ends = claim.published if isinstance(claim.published, list) else [claim.published]
    beyond = [SIDES[str(claim.direction)] * (end - claim.no_difference) for end in ends if end is not None]
    if beyond and not (max(beyond) > 0 and min(beyond) >= 0):
        raise InputError(
            f"{where}.published={claim.published} is not {claim.direction} {claim.no_difference:g}, the value"
            " of no difference: leave out direction, or give neutral"
        )


@functools.cache
def _swept(row: str) -> bool:
    """Whether a row has several values of a key: a comma that stands in no list."""
    inside = 0
    for letter in row:
        inside += (letter == "[") - (letter == "]")
        if letter == "," and not inside:
            return True
    return False
