"""From experiments and their runs to verdicts."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.base import yaml_text
from harness.base.errors import InputError
from harness.base.words import key_values
from harness.core.cluster import UNFITTED
from harness.papers.claims import cells, published
from harness.papers.claims.claim import Claim
from harness.papers.claims.experiment import FOLDER, SIZES, Experiment
from harness.papers.claims.verdict import (
    DECIDED,
    FAILS,
    NO_EFFECT,
    SEEDS,
    TIME_MODEL,
    TWIN,
    UNKNOWN,
    Verdict,
    as_well,
    judge,
    judge_order,
    signed,
)
from harness.results.report.estimate import ROUNDING, Estimate, estimate
from harness.results.report.groups import Run
from harness.results.summary import graph_name
from harness.run import runner

CONSTRUCTED, COMPARED, NOT_RUN, NOT_YET = "by construction", "compared", "not run", "not yet"
# Run folders of an experiment's sweep, finished or not.
Folders = Callable[[str], list[Path]]


@dataclass(frozen=True)
class Measured:
    """What the runs of a claim say, before any rule.

    ours    our value: the mean over seeds of what `across` makes of the graphs; None for "descending", and
            where it is lost
    order   of "descending": the verdict on its steps
    lost    why there is no value
    control whether the claim's control does as well
    twin    whether some run is of a twin
    """

    ours: Estimate | None = None
    order: Verdict | None = None
    lost: str = ""
    control: bool = False
    twin: bool = False


@dataclass(frozen=True)
class Result:
    """A part of a published entry and its verdict.

    claim        what is decided; of a part that nothing here can decide, its entry and words alone
    experiment   that decides it; "" where none has it
    measured     what the verdict was made of; None where nothing was measured
    size         of the runs that the verdict is from
    of           what is measured of which runs, equal for parts with one value
    again        the entry of its paper in which this measurement is counted; "" where it is counted here
    """

    claim: Claim
    experiment: str
    verdict: Verdict
    measured: Measured | None = None
    size: str = ""
    of: tuple[Any, ...] = ()
    again: str = ""

    @property
    def entry(self) -> str:
        return self.claim.entry

    @property
    def says(self) -> str:
        return self.claim.says

    @property
    def ours(self) -> Estimate | None:
        """The value here, over seeds; None where nothing was measured."""
        return self.measured.ours if self.measured else None

    @property
    def own(self) -> bool:
        """Whether it is a finding of its experiment, which no paper says."""
        return self.entry == self.experiment and self.entry not in published.entries()


def results(experiments: Mapping[str, Experiment], folders: Folders) -> list[Result]:
    """A result for each part of each entry that a run could show, in the order of the papers; then the
    experiments' own findings."""
    found: dict[str, list[Result]] = defaultdict(list)
    # The verdict on each claim, by the entry that it is a part of.
    for experiment in experiments.values():
        runs = _Runs(experiment, folders)
        for claim in experiment.claims:
            found[claim.entry].append(replace(runs.decide(claim), of=_measured_of(experiment, claim)))
        for need in experiment.needs:
            waits = Verdict(NOT_YET, f"needs {need.needs}")
            found[need.entry].append(_undecided(need.entry, need.part, waits, experiment.name))
    # All parts in the order of the papers; an entry that no experiment has gets a part that says so.
    nowhere = Verdict(NOT_YET, "no experiment has it")
    own = [name for name in experiments if name in found and name not in published.entries()]
    told: list[Result] = []
    for name in (*published.experiments(), *own):
        told += found.get(name) or [_undecided(name, published.entry(name).title, nowhere)]
    return counted_once(told)


def _undecided(entry: str, part: str, verdict: Verdict, experiment: str = "") -> Result:
    """A part that no claim decides."""
    return Result(Claim(entry, part, measure=None, rows=[]), experiment, verdict, of=(entry, part))


def counted_once(found: Sequence[Result]) -> list[Result]:
    """Results in which a measurement that several parts of a paper show counts in the first of them that has
    been run; those with a published number come before those without one."""
    of = lambda each: (published.entry(each.entry).paper, *each.of)  # noqa: E731
    first: dict[tuple[Any, ...], Result] = {}
    for each in sorted(found, key=lambda each: (each.verdict.word == NOT_RUN, each.claim.published is None)):
        if each.verdict.word != COMPARED:
            first.setdefault(of(each), each)
    return [
        replace(each, again="" if counts is each or counts is None else counts.entry)
        for each in found
        for counts in [first.get(of(each))]
    ]


def _measured_of(experiment: Experiment, claim: Claim) -> tuple[Any, ...]:
    """What a claim measures of which runs, by the words of their sweeps without those that say the default.
    "less_percent" counts as the "ratio", and two rows count the same in either order."""
    sizes = [size for size in SIZES if size in experiment.sizes and experiment.on(size, claim.graph)]
    size = "small" if "small" in sizes else sizes[-1]

    def runs(row: str) -> tuple[tuple[tuple[str, str], ...], ...]:
        sweeps = experiment.sweeps(row, size, claim.graph)
        return tuple(tuple(sorted(key_values(each.split()).items() - _defaults())) for each in sweeps)

    rows = [runs(row) for row in claim.rows]
    if claim.compare in ("ratio", "less_percent", "difference"):
        rows.sort()
    compare = "ratio" if claim.compare == "less_percent" else claim.compare
    reference = runs(claim.value.reference) if claim.value.reference else ()
    return repr(claim.measure), compare, claim.across, tuple(rows), reference


@functools.cache
def _defaults() -> frozenset[tuple[str, str]]:
    """Each key of a run with its default, as words have them."""
    whole = yaml_text.parsed((Path(runner.CONF) / "config.yaml").read_text())
    groups = [each for each in whole.pop("defaults") if isinstance(each, dict)]
    both = [*whole.items(), *(pair for each in groups for pair in each.items())]
    return frozenset(
        (key, "null" if value is None else str(value).lower())
        for key, value in both
        if not isinstance(value, dict)
    )


def traced(parts: list[Result]) -> bool:
    """Whether every part of an entry has a verdict from traces, "cannot tell" among them."""
    return all(part.verdict.word in (*DECIDED, NO_EFFECT, UNKNOWN) for part in parts)


def whole(parts: list[Result]) -> str:
    """How far an entry is decided: "whole", "in part" or "not". A part with "cannot tell" is not decided."""
    decided = [part.verdict.word in DECIDED for part in parts]
    return "whole" if all(decided) else "in part" if any(decided) else "not"


class _Runs:
    """The runs of an experiment that are there, by sweep; each folder is read once."""

    def __init__(self, experiment: Experiment, folders: Folders):
        self.experiment, self.folders = experiment, folders
        self.read: dict[str, list[Run]] = {}

    def of(self, sweep: str) -> list[Run]:
        """A sweep's runs in the order of seeds; none where one of them has not finished."""
        if sweep not in self.read:
            paths = self.folders(sweep)
            there = all((path / "summary.json").exists() for path in paths)
            runs = map(Run, paths) if there else ()
            self.read[sweep] = sorted(runs, key=lambda run: int(str(run.seed)))
        return self.read[sweep]

    def decide(self, claim: Claim) -> Result:
        """The result of a claim, at the largest size of which all its runs are there; "not run" where there
        is none."""
        sizes = self.experiment.sizes
        for size in reversed([size for size in SIZES if size in sizes]):
            there: dict[str, list[list[Run]]] = {}
            for row in claim.needed:
                there[row] = [self.of(each) for each in self.experiment.sweeps(row, size, claim.graph)]
                if not (there[row] and all(there[row])):
                    break
            else:
                return result_of(self.experiment.name, claim, measure(claim, there), size)
        # The command that runs it: at the smallest size that has its graph, named where that is not the
        # default size.
        first = next(size for size in SIZES if size in sizes)
        least = next(size for size in SIZES if size in sizes and self.experiment.on(size, claim.graph))
        option = "" if self.experiment.folder == FOLDER else f" --from {self.experiment.folder}"
        option += "" if least == first else f" --size {least}"
        word = COMPARED if claim.compared else NOT_RUN
        verdict = Verdict(word, f"halobench figures {self.experiment.name}{option}")
        return Result(claim, self.experiment.name, verdict)


def result_of(experiment: str, claim: Claim, measured: Measured, size: str) -> Result:
    """The result of a claim of an experiment, from what runs of a size say."""
    verdict = judged(claim, measured, claim.entry not in published.entries())
    return Result(claim, experiment, verdict, measured, size)


def judged(claim: Claim, measured: Measured, own: bool = False) -> Verdict:
    """The verdict on a claim.

    own   whether it is a finding of its experiment, whose verdict no cause changes
    """
    if claim.compared:
        return Verdict(COMPARED, measured.lost or claim.by_construction)
    if measured.lost:
        # Without a fit nothing is modelled, whatever would have been the cause of what is.
        cause, because = (TIME_MODEL, "") if UNFITTED in measured.lost else (claim.cause, claim.because)
        why = "; ".join(filter(None, [measured.lost, "" if own else because]))
        return Verdict(UNKNOWN, why, cause="" if own else cause)
    found = measured.order
    if found is None:
        assert measured.ours is not None
        said = claim.published
        ends = (float(said[0]), float(said[1])) if isinstance(said, list) else said
        found = judge(
            measured.ours, ends, claim.direction, claim.no_difference, claim.tolerance, claim.logarithmic
        )
    if claim.calibrated and measured.twin and found.word == FAILS:  # a twin that is off what it was made for
        return signed(found, TWIN, claim.calibrated)
    if claim.by_construction or (claim.calibrated and measured.twin):
        return replace(found, word=CONSTRUCTED, why=claim.by_construction or claim.calibrated)
    # What is kept or gained without remote rows, too, says nothing of them. A loss that is told apart stands.
    below = claim.compare == "difference" and claim.direction == "below"
    loss = below and measured.ours is not None and measured.ours.side() < 0
    if measured.control and found.word != FAILS and not loss:
        why = f"{claim.control}, the control, does as well"
        cause = TWIN if measured.twin else claim.cause or SEEDS
        return Verdict(UNKNOWN, why, found.share, "" if own else cause)
    return found if own else signed(found, claim.cause, claim.because)


def measure(claim: Claim, runs: Mapping[str, list[list[Run]]]) -> Measured:
    """What the runs say of a claim.

    runs   by row, for each graph, the runs of that row (one per seed, ascending)
    """
    twin = any(run.summary["twin"] for graphs in runs.values() for own in graphs for run in own)
    lost = [
        row
        for row, graphs in runs.items()
        if any(run.summary["diverged"] is not None for own in graphs for run in own)
    ]
    if lost and claim.value.scored:
        return Measured(lost=f"{', '.join(lost)} diverged", twin=twin)
    try:
        _same_seeds(runs)
        targets = [claim.value.of_seeds(own) for own in runs.get(claim.value.reference, ())]
        asked = [*claim.rows, *([claim.control] if claim.control else [])]
        by_row = {row: _by_seed(claim, row, runs[row], targets) for row in asked}
    except InputError as error:
        return Measured(lost=str(error), twin=twin)
    return compared(claim, by_row, twin)


def compared(claim: Claim, by_row: Mapping[str, np.ndarray], twin: bool) -> Measured:
    """What the values of a claim's rows, and of its control, say of it.

    by_row   of each row [graphs, seeds]; NaN where a run has no value
    twin     whether some run is of a twin
    """
    missing = [row for row, values in by_row.items() if np.isnan(values).any()]
    if missing:
        why = "never gets there" if claim.value.reference and claim.value.scored else "has no value"
        return Measured(lost=f"a seed of {missing[0]} {why}", twin=twin)
    # Compare the rows: each value is [graphs, seeds], and the estimate is over seeds.
    values = [by_row[row] for row in claim.rows]
    control = claim.control is not None and as_well(_flat(by_row[claim.control]), _flat(values[0]))
    if claim.compare == "descending":
        steps = [estimate(_flat(a - b)) for a, b in itertools.pairwise(values)]
        return Measured(order=judge_order(steps), control=control, twin=twin)
    made = cells.MADE[claim.compare](*values)
    if np.isnan(made).any():
        return Measured(lost="a seed divides by 0", twin=twin)
    ours = estimate(getattr(made, claim.across)(axis=0).tolist())
    if not np.isfinite(ours.mean):
        return Measured(lost="our runs have no value", twin=twin)
    if claim.value.scored and claim.compare == "difference":
        ours = _no_finer(ours, values)
    return Measured(ours, control=control, twin=twin)


def _no_finer(ours: Estimate, values: Sequence[np.ndarray]) -> Estimate:
    """The difference of two rows' scores, whose interval is no narrower than the least step between scores:
    where seeds change the rows, an equal difference in each is chance, as with a score of few vertices.

    values   of each row [graphs, seeds]
    """
    steps = np.diff(np.unique(np.concatenate([each.ravel() for each in values])))
    steps = steps[steps > ROUNDING * np.abs(np.concatenate(values)).max()]
    varies = any((np.ptp(each, axis=1) > ROUNDING * np.abs(each).max()).any() for each in values)
    if not varies or not len(steps) or ours.half is None or ours.half > ROUNDING:
        return ours
    return replace(ours, half=float(steps.min()) * (1 + ROUNDING))


def _same_seeds(runs: Mapping[str, list[list[Run]]]) -> None:
    """InputError where a graph or a row has other seeds than the first one."""
    every = [(row, own) for row, graphs in runs.items() for own in graphs]
    seeds = [[run.seed for run in own] for _, own in every]
    for other, found in zip(every, seeds):
        if found != seeds[0]:
            here, first = (f"{row} on {graph_name(own[0].trace)}" for row, own in (other, every[0]))
            raise InputError(f"{here} has the seeds {found} where {first} has {seeds[0]}: give all the same")


def _by_seed(claim: Claim, row: str, graphs: list[list[Run]], targets: list[list[float]]) -> np.ndarray:
    """A row's values [graphs, seeds], in the order of seeds.

    graphs   the runs of each graph
    targets  by graph and seed, the number that each run is held against; empty: none
    """
    value = claim.of(row).value
    against = targets or [[float("nan")] * len(runs) for runs in graphs]
    return np.array([list(map(value, runs, own)) for runs, own in zip(graphs, against)])


def _flat(values: np.ndarray) -> list[float]:
    """The mean over graphs, by seed."""
    return values.mean(axis=0).tolist()
