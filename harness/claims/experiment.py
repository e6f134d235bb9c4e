"""An experiment: what is run, at which sizes, and what of the papers it decides (`conf/experiment/`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from harness.check import InputError, choice, typed
from harness.claims import cells, published
from harness.claims.measure import Measure, measure_of
from harness.claims.verdict import CAUSES, SIDES
from harness.run import runner

FOLDER = Path(runner.CONF) / "experiment"
SIZES = ("smoke", "small", "paper")
ACROSS = ("mean", "max", "min")
# How rows are compared, and the fewest and most that this takes.
COMPARED = {
    "value": (1, 1),
    "ratio": (2, 2),
    "less_percent": (2, 2),
    "difference": (2, 2),
    "ratio_of_ratios": (4, 4),
    "ratio_of_differences": (4, 4),
    "descending": (2, 99),
}


KEYS = ("title", "rows", "by", "sizes", "draw", "cause", "because", "fits", "claims", "needs")


@dataclass(frozen=True)
class Size:
    """How much is run.

    graphs    each as overrides, as "dblp dataset.split=low_label"; values are means over them
    runs      what all rows have in common: workers, epochs, seeds, partition
    minutes   what to expect on two cores
    """

    graphs: list[str]
    runs: str
    minutes: float


@dataclass(frozen=True)
class Claim:
    """One part of what a paper says, and how it is decided.

    entry            the published entry that it is a part of; the experiment's own name where no paper says
                     it: a finding, which is decided as the others are and counted apart
    says             the part, in words
    measure          what is taken of each run (`harness.claims.measure`)
    rows             the rows compared, as many as `compare` takes; with "descending" two or more, the largest
                     value first
    compare          "value" of one row; of rows a and b "ratio" a / b, "less_percent" 100 (1 - a / b) or
                     "difference" a - b; of a, b, c and d "ratio_of_ratios" (a / b) / (c / d) or
                     "ratio_of_differences" (a - b) / (c - d); or "descending"
    published        a number, the two ends of a range, or null where the paper has a direction only
    direction        "above" or "below" `neutral`
    neutral          the value of no difference; null: 1 of ratios, else 0
    tolerance        instead of 10 % of our mean, in the unit of the value; needs `reason`
    graph            the graph on which this is decided, itself or its twin, as a size has it: its name, or
                     all of its overrides where a size has it in several forms; null: all of the size
    across           what becomes of several graphs, seed by seed: their "mean", or, where the paper speaks of
                     its best or worst case, the "max" or "min" of what is compared
    control          a row that has none of what the claim is about: where it does as well in `measure`, the
                     verdict is "cannot tell"
    by_construction  why agreement proves nothing: a schedule, a format, equal products or a knob that was set
                     to reproduce it fix the value, on any graph
    calibrated       why agreement proves nothing on a twin: it was made to have this value
    compared         whether it is judged by no rule, but shown beside what is printed
                     (`harness.claims.seconds`), there as `row`; "": as the first of `rows`
    cause            what a verdict other than "holds" is owed to (`harness.claims.verdict.CAUSES`); null: the
                     experiment's
    because          why it is that
    series, step     of a cell of a table (`harness.claims.cells`): what its series says, with {} for the
                     step, and the step
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
    def no_difference(self) -> float:
        return self.neutral if self.neutral is not None else float(self.logarithmic)

    @property
    def value(self) -> Measure:
        return measure_of(self.measure)

    def of(self, row: str) -> Measure:
        """What is taken of a row's runs."""
        return measure_of(self.measure, row=row)

    @property
    def measurement(self) -> tuple[Any, ...]:
        """What is measured, whatever is printed of it: the same for claims of one measurement."""
        return repr(self.measure), tuple(self.rows), self.compare, self.graph, self.across

    @property
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


@dataclass(frozen=True)
class Experiment:
    """What is run and what it decides.

    name    of its file
    title   what is compared
    rows    overrides by row
    sizes   by name, of "smoke", "small" and "paper"
    cause, because   of its claims that name none
    draw    what draws its runs (a file of `harness/figures/`), each with its options
    fits    printed rows that clusters are fitted to from its runs (`harness.claims.fit`), as the file has
            them
    claims  what its runs decide
    needs   parts of entries that wait for something
    """

    name: str
    title: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict)
    draw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    fits: Sequence[Any] = ()
    claims: tuple[Claim, ...] = ()
    needs: tuple[Need, ...] = ()

    def rows_on(self, size: str, graph: str) -> list[str]:
        """The rows to run on a graph: all where they are drawn or the size does not have it, else all but
        those that only claims on other graphs need."""
        graphs = self.sizes[size].graphs
        if self.draw or graph not in graphs:
            return list(self.rows)
        needed = {row: False for claim in self.claims for row in claim.needed}
        for claim in self.claims:
            if graphs.index(graph) in self.on(size, claim.graph):
                needed |= dict.fromkeys(claim.needed, True)
        return [row for row in self.rows if needed.get(row, True)]

    def sweeps(self, row: str, size: str) -> list[str]:
        """The sweep of a row on each graph of a size."""
        return [self.sweep(row, size, graph) for graph in self.sizes[size].graphs]

    def sweep(self, row: str, size: str, graph: str) -> str:
        """The sweep of a row on a graph, as on the command line.

        What a row says of a key wins over what its graph says of it, and that over what its size says;
        EPOCHS/5 stands for a fifth of the size's epochs, GPUS/4 for a fourth of its workers, and so on.
        """
        option, *words = f"dataset={graph}".split()
        runs, more = (
            dict(word.split("=", 1) for word in each) for each in (self.sizes[size].runs.split(), words)
        )
        own = self.rows[row].split()
        both = {**runs, **more}
        for key in {"epochs", "gpus"} & both.keys():
            own = [_part(word, key.upper(), int(both[key])) for word in own]
        keys = {word.split("=", 1)[0] for word in own}
        beside = [f"{key}={value}" for key, value in more.items() if key not in keys]
        common = [f"{key}={value}" for key, value in runs.items() if key not in keys | more.keys()]
        return " ".join([*own, option, *beside, *common])

    def on(self, size: str, graph: str | None) -> list[int]:
        """The places of a graph among those of a size, by all of its overrides or by its name; of all graphs
        where none is given.
        """
        graphs = self.sizes[size].graphs
        same = [i for i, each in enumerate(graphs) if graph == each]
        return same or [i for i, each in enumerate(graphs) if graph in (None, _named(each))]


def _part(word: str, name: str, total: int) -> str:
    """A word in which NAME/5 has become a fifth of `total`."""
    return re.sub(rf"{name}/(\d+)", lambda found: str(total // int(found[1])), word)


def _named(graph: str) -> str:
    return graph.split()[0].removeprefix("twin/")


def load(folder: Path) -> dict[str, Experiment]:
    """The experiments of a folder by name, in alphabetical order. InputError that names the file where one
    cannot be used.
    """
    made = {path.stem: one(path.stem, folder) for path in sorted(folder.glob("*.yaml"))}
    if not made:
        raise InputError(f"{folder} holds no experiment: put NAME.yaml there (docs/howto/claims.md)")
    return made


def with_rows(rows: Mapping[str, str], more: Sequence[str]) -> dict[str, str]:
    """Rows and `more` of them ("NAME=OVERRIDES"). InputError where one of these cannot be read, or has the
    name of another.
    """
    found = dict(rows)
    for given in more:
        name, equals, asked = given.partition("=")
        if not equals or not name or not any(word.startswith("system=") for word in asked.split()):
            raise InputError(f'row="{given}" names no system: give --row NAME="system=SYSTEM system.KNOB=1"')
        if name in found:
            raise InputError(f'row="{given}" has the name of another row: give it a name of its own')
        found[name] = asked
    return found


def one(name: str, folder: Path = FOLDER) -> Experiment:
    """The experiment of this name. InputError that names the file where it cannot be used."""
    path = folder / f"{name}.yaml"
    try:
        return _read(name, path.read_text())
    except (InputError, yaml.YAMLError) as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from None


@functools.lru_cache(maxsize=256)
def _read(name: str, text: str) -> Experiment:
    """The experiment that a file's text describes; kept, for checking its types takes most of a tenth of a
    second.
    """
    return _experiment(name, yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _experiment(name: str, given: Any) -> Experiment:
    if not isinstance(given, dict):
        raise InputError("it holds no keys: give title, rows, sizes and claims")
    for key in given:
        choice("key", key, KEYS)
    sizes = {}
    for size, how in (given.get("sizes") or {}).items():
        choice("size", size, SIZES)
        sizes[size] = typed(Size, how, f"sizes.{size}")
    rows, by = (_words(key, given.get(key) or {}) for key in ("rows", "by"))
    cause, because = (str(given.get(key, "")) for key in ("cause", "because"))
    asked = [
        (f"claims[{i}]", claim if claim.cause else replace(claim, cause=cause, because=because))
        for i, each in enumerate(given.get("claims") or ())
        for claim in _cells(each, f"claims[{i}]", name)
    ]
    experiment = Experiment(
        name,
        str(given.get("title", "")),
        cells.rows_by(rows, by),
        sizes,
        _drawings(given.get("draw") or {}),
        given.get("fits") or (),
        tuple(claim for _, claim in asked),
        tuple(typed(Need, each, f"needs[{i}]") for i, each in enumerate(given.get("needs") or ())),
    )
    if experiment.claims and not (experiment.rows and experiment.sizes):
        raise InputError("its claims have no runs: give rows and sizes")
    told = set()
    for where, claim in asked:
        _check(where, claim, experiment.rows, sizes)
        if (claim.entry, claim.says) in told:
            raise InputError(f'{where}.says="{claim.says}" stands twice for {claim.entry}: say what differs')
        told.add((claim.entry, claim.says))
    for i, need in enumerate(experiment.needs):
        choice(f"needs[{i}].entry", need.entry, published.experiments())
    return experiment


def _words(key: str, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise InputError(f"{key}={given}: give names, each with its overrides, as NAME: system=SYSTEM")
    return {str(name): str(how) for name, how in given.items()}


def _cells(given: Any, where: str, name: str) -> list[Claim]:
    """A claim of a file, or, where it stands for the cells of a table, one for each."""
    if not isinstance(given, dict):
        raise InputError(f"{where}={given}: give its entry, says, measure and rows")
    for key in {"series", "step"} & set(given):
        raise InputError(f"{where}.{key} is made of each: leave it out")
    each, printed, without = (given.get(key) for key in cells.KEYS)
    claim = typed(Claim, {key: value for key, value in given.items() if key not in cells.KEYS}, where)
    choice(f"{where}.entry", claim.entry, (*published.experiments(), name))
    return cells.expanded(claim, each, printed, without, where)


def _drawings(given: Any) -> dict[str, dict[str, Any]]:
    if isinstance(given, dict) and all(isinstance(options, dict | None) for options in given.values()):
        return {str(name): {str(key): value for key, value in (options or {}).items()}
                for name, options in given.items()}  # fmt: skip
    raise InputError(f"draw={given}: give the names of drawings, each with its options, as NAME: {{}}")


def _swept(row: str) -> bool:
    """Whether a row has several values of a key: a comma that stands in no list."""
    inside = 0
    for letter in row:
        inside += (letter == "[") - (letter == "]")
        if letter == "," and not inside:
            return True
    return False


def _check(where: str, claim: Claim, rows: Mapping[str, str], sizes: Mapping[str, Size]) -> None:
    choice(f"{where}.compare", claim.compare, COMPARED)
    measure_of(claim.measure, f"{where}.measure")
    if isinstance(claim.measure, dict):
        for row in claim.measure.get("more") or ():
            choice(f"{where}.measure.more", row, claim.rows)
    for row in claim.needed:
        choice(f"{where}.rows", row, rows)
    least, most = COMPARED[claim.compare]
    if not least <= len(claim.rows) <= most:
        number = {1: "one", 2: "two", 4: "four"}[least] + (" or more" if most > least else "")
        raise InputError(f"{where}.rows={claim.rows}: compare={claim.compare} takes {number}")
    choice(f"{where}.across", claim.across, ACROSS)
    if claim.across != "mean" and claim.compare == "descending":
        raise InputError(
            f"{where}.across={claim.across} takes one number of each graph: give another compare"
        )
    if claim.direction is not None:
        choice(f"{where}.direction", claim.direction, SIDES)
        _check_side(where, claim)
    if claim.cause:
        choice(f"{where}.cause", claim.cause, CAUSES)
    if claim.tolerance is not None and not claim.reason:
        raise InputError(f"{where}.tolerance={claim.tolerance} has no reason: give reason")
    if claim.graph is not None:
        graphs = [graph for size in sizes.values() for graph in size.graphs]
        choice(f"{where}.graph", claim.graph, {*graphs, *map(_named, graphs)})
    for row in claim.needed:
        if _swept(rows[row]):
            raise InputError(
                f"{where}.rows: {row} is a sweep ({rows[row]}): give a row for each of its values"
            )
    if claim.published is None and claim.direction is None and claim.compare != "descending":
        raise InputError(f"{where} has neither published nor direction: give one")
    if not isinstance(claim.published, int | float | None):
        ends = claim.published
        if not (isinstance(ends, list) and len(ends) == 2 and ends[0] <= ends[1]):
            raise InputError(f"{where}.published={ends}: give a number, or [least, most]")


def _check_side(where: str, claim: Claim) -> None:
    """InputError where what is printed does not lie on the side that the paper claims."""
    ends = claim.published if isinstance(claim.published, list) else [claim.published]
    beyond = [SIDES[str(claim.direction)] * (end - claim.no_difference) for end in ends if end is not None]
    if beyond and not max(beyond) > 0:
        raise InputError(
            f"{where}.published={claim.published} is not {claim.direction} {claim.no_difference:g}, the value"
            " of no difference: leave out direction, or give neutral"
        )
