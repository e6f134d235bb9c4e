"""Two systems, or two settings of one, against each other: what differs, by how much, whether it is told."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.base import tables
from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.results.reader import find_runs
from harness.results.report import groups
from harness.results.report.columns import Column, score_name
from harness.results.report.compare import PLACES, change, counts, differing, ratio, repeats
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group
from harness.results.report.table import compared_by, estimate_of


@dataclass(frozen=True)
class PairRow:
    """One measured column on both sides; `change` is a - b and `share` a / b, paired over seeds."""

    column: Column
    a: Estimate
    b: Estimate
    change: Estimate
    share: Estimate

    @property
    def told(self) -> int:
        """1 or -1 where a is above or below b, of a cost by their ratio; 0 where they are not told apart."""
        return self.change.side() if self.column.scored or not self.share.n else self.share.side(1.0)


@dataclass(frozen=True)
class Versus:
    """Two sides that can be compared.

    keys    the keys that differ, each with both values
    lines   a row per column that is compared
    notes   what a reader of the numbers must know
    """

    a: Group
    b: Group
    keys: dict[str, list[str]]
    lines: list[PairRow]
    notes: list[str]

    @property
    def verdict(self) -> str:
        """One sentence: better or worse, less or more, or that it cannot be told."""
        first, *costs = (_said(line, self.score) for line in self.lines)
        seeds = self.lines[0].change.n or self.lines[1].change.n
        said = ", ".join([first, *costs[:-1]]) + f" and {costs[-1]}"
        return f"A {said}, paired over {counted(seeds, 'seed')}."

    @property
    def score(self) -> str:
        return f"test {score_name([self.a, self.b])}"


def side(given: str) -> Group:
    """The runs of one side, which differ in their seed alone: those at or below a folder, or that a pattern
    matches. A single run folder stands also for its repeats with other seeds in the same folder. InputError
    where the runs have several configs, or one has not finished."""
    paths = find_runs([given])
    if paths == [Path(given)]:
        paths = repeats(paths[0])
    found, empty = groups.load(paths)
    if empty or not all(group.finished for group in found):
        lacking = [*empty, *(run.path for group in found if not group.finished for run in group.runs)]
        raise InputError(f"{lacking[0]} has not finished: let it run to its end, or leave it out")
    if len(found) > 1:
        several = differing([group.first for group in found])
        told = f"{', '.join(several)}" if several else "the machine or the code they ran with"
        raise InputError(
            f"{given} holds {len(found)} rows, which differ in {told}: give the runs of one of them"
        )
    return found[0]


def versus(a: Group, b: Group, over: Sequence[str] = ()) -> Versus:
    """The comparison of two sides. InputError where they cannot be compared.

    over   keys in which the sides may differ beside the system and where it is placed
    """
    if a.first.summary["dataset"] != b.first.summary["dataset"]:
        raise InputError(f"A is on {a.dataset} and B on {b.dataset}: give runs on one graph")
    if a.first.content != b.first.content:
        raise InputError(f"A and B are on {a.dataset}, made of other files: give runs on one graph")
    if {run.path.resolve() for run in a.runs} == {run.path.resolve() for run in b.runs}:
        raise InputError(
            f"A and B are the same runs, seeds {_listed(a.seeds)}: give runs that differ in more than their"
            " seed, or two single ones to halobench runs compare"
        )
    # Refuse sides that differ in more than they may, or share no seed.
    keys = differing([a.first, b.first])
    if a.first.combine and a.first.combine == b.first.combine:  # whether the config or the system chose it
        keys = {key: values for key, values in keys.items() if key.partition(".")[0] != "combine"}
    for key in over:
        if key not in keys:
            raise InputError(f'--over "{key}" is the same on both sides, or no key of theirs: leave it out')
    refused = [key for key in keys if counts(key, {"system", *PLACES}) and key not in over]
    if refused:
        values = " and ".join(keys[refused[0]])
        raise InputError(
            f"A and B differ in {refused[0]} ({values}), so not in the system alone: give runs that agree in"
            f" it, or --over {refused[0]} where it is what you compare"
        )
    common = [seed for seed in a.seeds if seed in b.seeds]
    if not common:
        raise InputError(
            f"A has seeds {_listed(a.seeds)} and B has seeds {_listed(b.seeds)}: give runs that share some,"
            " for differences are paired over them"
        )
    # What a reader must know of the numbers; times compare only on one machine, by one clock.
    notes = [] if len(common) > 1 else ["One seed in common has no interval: run several, as seed=1,2,3."]
    if len(common) < max(len(a.seeds), len(b.seeds)):
        notes.append(f"Differences are over the seeds that both have: {_listed(common)}.")
    if a.first.combine != b.first.combine and not any(key.startswith("combine") for key in keys):
        notes.append(
            f"Their systems sum gradients differently: A by {a.first.combine}, B by {b.first.combine}."
        )
    if a.first.code != b.first.code and "system._target_" not in keys:
        notes.append(f"A was computed by code {a.first.code}, B by {b.first.code}.")
    columns = compared_by([a, b], a.clock)
    if (a.clock, a.first.machine) != (b.clock, b.first.machine):
        columns.pop()
        notes.append(
            f"Times are left out: A ran on {a.first.machine} ({a.clock} clock), B on {b.first.machine}"
            f" ({b.clock} clock)."
        )
    lines = [
        PairRow(c, estimate_of(a, c), estimate_of(b, c), change(a, b, c), ratio(a, b, c.value))
        for c in columns
    ]
    notes += [f"{name} diverged, so it has no score." for name, g in (("A", a), ("B", b)) if g.diverged]
    return Versus(a, b, keys, lines, notes)


def _listed(seeds: Iterable[object]) -> str:
    return ", ".join(map(str, seeds))


def _said(line: PairRow, score: str) -> str:
    """What one column says of A, as the end of "A ..."."""
    if line.column.scored:
        if not line.change.n:
            return f"has no {score} to compare"
        word = {0: "is not told apart from B", 1: "is better than B", -1: "is worse than B"}[line.told]
        return f"{word} in {score} ({line.change:+.2f} points)"
    verb, what = ("sends", "bytes") if line.column.key == "mb_epoch" else ("needs", "time")
    share = line.share
    if not share.n:
        return f"{verb} {what}, where B {verb} none" if line.a.mean else f"{verb} no {what}, nor does B"
    more = Estimate(100 * (share.mean - 1), share.half and 100 * share.half, share.n)
    if not line.told:
        return f"is not told apart from B in {what} ({more:+.1f} %)"
    less = Estimate(abs(more.mean), more.half, more.n)
    return f"{verb} {less:.1f} % {'more' if line.told > 0 else 'less'}{'' if what == 'bytes' else ' ' + what}"


def text(found: Versus) -> str:
    """For a reader at a terminal: the sides, what differs, a line per column, the verdict."""
    lines = [f"{name}: {_side(group)}" for name, group in (("A", found.a), ("B", found.b))]
    keys = [f"  {key}: {x} | {y}" for key, (x, y) in found.keys.items() if key != "seed"]
    rows = [
        [
            line.column.heading,
            *(format(value, line.column.digits) for value in (line.a, line.b)),
            format(line.change, f"+{line.column.digits}"),
            "" if line.column.scored else format(line.share, ".3f"),
            ("not told apart", "A above", "A below")[line.told] if line.change.n else "",
        ]
        for line in found.lines
    ]
    headings = ["", "A", "B", "A - B, paired", "A / B", ""]
    table = tables.text(headings, rows)
    lines += ["they differ in (A | B)", *keys] if keys else []
    return "\n".join([*lines, "", table, "", found.verdict, *found.notes])


def _side(group: Group) -> str:
    seeds = f"{'seed' if len(group.seeds) == 1 else 'seeds'} {_listed(group.seeds)}"
    return (
        f"{group.first.name} on {group.dataset}, {counted(group.workers, 'worker')}, {group.partition},"
        f" {counted(group.epochs, 'epoch')}, {seeds}"
    )
