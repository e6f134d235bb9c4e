"""A table of results: groups of runs as rows, measured columns, and the notes below."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.results.report import columns
from harness.results.report.columns import Column, leading, score_name
from harness.results.report.compare import ahead_of_controls, cannot_tell, change, fixed_of, reference_of
from harness.results.report.estimate import Estimate, estimate
from harness.results.report.groups import Group, Run

CLOCKS = {
    "wall": "wall seconds of each epoch's slowest worker",
    "cpu": (
        "CPU seconds of each epoch's busiest worker (workers outnumber cores: wall time would measure the"
        " machine)"
    ),
}
KEYS = ("system", "workers", "partition", "epochs", "seeds")
# The columns that a table shows by default; for tuned rows, the gain over the default setting replaces seeds.
SHORT = ("system", "score", "less_exact", "mb_epoch", "mb_exact_ratio", "time", "seeds", "note")
TUNED = tuple("less_fixed" if name == "seeds" else name for name in SHORT)
# Headings of further columns, by their names in a CSV: they are computed from several rows or runs.
FURTHER = {
    "by_seed": "by seed",
    "less_exact": "minus exact",
    "less_fixed": "minus fixed",
    "mb_exact_ratio": "MB / exact",
}


@dataclass
class Cells:
    """A table as text.

    text     a row per group, a column per heading
    best     of the same shape: whether a cell holds the best value of its column
    blocks   for each block (scores, times, bytes, metrics) the indices of its columns
    names    headings by the columns' names in a CSV; "score" and "time" stand for those that lead
    """

    text: pd.DataFrame
    best: pd.DataFrame
    blocks: list[list[int]]
    names: dict[str, str]

    @property
    def shared(self) -> dict[str, str]:
        """For each of `KEYS` but the first in which all rows agree: their value in words."""
        same = {key: self.text[key].iloc[0] for key in KEYS[1:] if self.text[key].nunique() == 1}
        return {key: cell if key == "partition" else counted(cell, key[:-1]) for key, cell in same.items()}

    def marked(self, mark: str) -> pd.DataFrame:
        """The text, with `mark` after each best value."""
        return self.text + self.best.map(lambda best: f" {mark}" if best else "")


@dataclass
class Section:
    """What stands in one table: runs on one graph, measured with one clock on one machine."""

    dataset: str
    clock: str
    machine: str
    groups: list[Group]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def score(self) -> str:
        return leading(self.groups)

    @property
    def blocks(self) -> list[tuple[Column, ...]]:
        """The measured columns: scores, times, bytes, and the metrics that were asked for."""
        scores = (*columns.LEADING[self.score], *columns.BESIDE[self.score], *columns.more(own(self.groups)))
        multilabel = self.groups[0].first.summary["multilabel"]
        return [
            tuple(columns.named(column, multilabel) for column in scores),
            columns.times(self.clock, self.mini_batches),
            columns.BYTES,
            *([columns.metrics(asked)] if (asked := metrics(self.groups)) else []),
        ]

    @property
    def compared(self) -> list[Column]:
        """The columns by which rows are compared: the leading score, bytes and time of an epoch."""
        return compared_by(self.groups, self.clock)

    @property
    def mini_batches(self) -> bool:
        """Whether any of the rows trains on mini-batches."""
        return any(run.summary["mini_batches"] for run in self.runs)

    @property
    def title(self) -> str:
        return (
            f"{self.dataset}{' (twin: a synthetic graph)' if self.dataset.startswith('twin/') else ''};"
            f" {self.machine}"
        )

    def by_seed(self, group: Group) -> str:
        """The leading score at the best validation of each seed, in the order of seeds."""
        values = group.by_seed(columns.LEADING[self.score][0].value)
        # Several runs of one seed show their mean, without an interval.
        told = {seed: format(estimate([value.mean]), ".1f") for seed, value in values.items()}
        return " ".join("diverged" if seed in group.diverged else value for seed, value in told.items())

    def ahead_of_fixed(self, group: Group) -> Estimate:
        """Of a tuned row the leading score less that of its default setting, in points, paired over seeds."""
        return _ahead_of(fixed_of(group, self.groups), group, self.score)

    def notes(self, best: str = "*", chosen: Cells | None = None) -> list[str]:
        """One sentence for each thing that a reader of these rows and of the columns shown must know.

        best     what marks the best values in the table
        chosen   some columns (`chosen`); None: all of them
        """

        def there(heading: str) -> bool:
            return chosen is None or heading in chosen.text

        name = score_name(self.groups)
        said = [
            f"Times are {CLOCKS[self.clock]}; they and MB per epoch are means over epochs without the first.",
            (
                f"Scores are those of the test vertices at the best validation {name}, and {name} in the last"
                " evaluation; AUC and balanced accuracy are means over classes; majority is the score of"
                " the most frequent class, or labels, for every vertex."
            ),
            "MB (10^6 bytes) are summed over workers.",
        ]
        if chosen is not None:
            times = any(there(column.heading) for column in self.blocks[1])
            sent = there("MB per epoch") or there("MB / exact")
            del said[1 if times or sent else 0 :]
            if said and not (times and sent):
                what = f"Times are {CLOCKS[self.clock]}," if times else "MB per epoch are"
                said = [f"{what} means over epochs without the first."]
        if said and any(run.summary["epochs"] == 1 for run in self.runs):
            said[0] = (
                f"{said[0].removesuffix('.')}; those of a run with one epoch, and its MB, are of that epoch,"
                " which compiles, allocates and fetches what is fetched once."
            )
        if any(any(self.best(each)) for block in self.blocks for each in block if there(each.heading)):
            unlike = "; rows of unlike numbers of epochs are compared as they stand, but not in MB per run"
            said.append(
                f"{best} marks the best of a column and what is not told apart from it, where that is not"
                f" every row; the control and unfinished runs are left out{unlike if self.unlike else ''}."
            )
        if self.has_ratio and chosen is None:
            said.append("MB / exact is MB per epoch over that of exact training under the same setting.")
        if self.mini_batches or any(group.more_steps for group in self.groups):
            said.append(
                "An epoch takes the training vertices once, in one optimiser step unless a row says how many:"
                " rows with other steps per epoch compare over time, bytes and steps, and not over epochs."
            )
        if any(run.summary["rounds"] for run in self.runs):
            said.append(
                "An epoch of an asynchronous run is as many updates as there are workers: its times are a"
                " worker's whole time over the number of epochs."
            )
        if any(len(group.seeds) > 1 for group in self.groups):
            less = "; minus exact is the leading score minus that of exact training under the same setting,"
            less = f"{less} paired over seeds" * there("minus exact")
            said.append(f"± is half a 95 % interval over seeds (Student's t){less}.")
        if any(group.first.track for group in self.groups):
            gain = "; minus fixed is the difference, paired over seeds" * there("minus fixed")
            said.append(
                "fixed rows are the systems' default settings; tuned ones those with the best validation"
                f" score of as many trials each, on seeds that no trial had{gain} (docs/howto/tune.md)."
            )
        said += [diverged(group, _row(group)) for group in self.groups if group.diverged]
        said += cannot_tell(self.groups, columns.LEADING[self.score][0])
        codes: dict[tuple[str, object], dict[str, None]] = {}  # two systems may have one label
        for group in self.groups:
            system = (group.first.name, group.first.keys.get("system._target_"))
            codes.setdefault(system, {}).update(dict.fromkeys(run.code for run in group.runs))
        for (name, _), found in codes.items():
            if len(found) > 1:
                said.append(f"Runs of {name} were computed by different code: {', '.join(found)}.")
        if busy := sum(any("other programs" in note for note in run.summary["notes"]) for run in self.runs):
            whose = "its wall time is" if busy == 1 else "their wall times are"
            took = f"In {counted(busy, 'run')} other programs took a share of the cores"
            said.append(f"{took}: {whose} too long.")
        if not all(group.finished for group in self.groups):
            said.append(
                "Unfinished runs stand in rows of their own; their values are of what they have traced so"
                " far."
            )
        return said

    def ratio(self, group: Group, column: Column = columns.ALL["mb_epoch"]) -> float | None:
        """A column's mean over that of exact training under the same setting; None without exact training, or
        where its mean is 0."""
        exact = reference_of(group, self.groups)
        if exact is None:
            return None
        ours, theirs = (each.estimate(column.value).mean for each in (group, exact))
        return ours / theirs if theirs else None

    @property
    def has_ratio(self) -> bool:
        return any(self.ratio(group) is not None for group in self.groups)

    @property
    def unlike(self) -> bool:
        """Whether the rows that compete have different numbers of epochs."""
        return len({group.epochs for group in self.groups if competes(group)}) > 1

    def best(self, column: Column) -> list[bool]:
        """[groups] whether a group that competes has a column's best value (the highest score, the fewest
        seconds or bytes), or one not told apart from it. All False where that would be every group, and for
        sums over whole runs that differ in their number of epochs."""
        sign = 1 if column.rising else -1
        compared = column.ranked and not (column.whole and self.unlike)
        values = {
            at: sign * mean
            for at, group in enumerate(self.groups)
            if compared and competes(group) and not math.isnan(mean := estimate_of(group, column).mean)
        }
        if not values:
            return [False] * len(self.groups)
        first = max(values, key=lambda at: values[at])

        several = any(len(self.groups[at].seeds) > 1 for at in values)

        def leads(at: int) -> bool:
            if values[at] == values[first]:
                return True
            behind = change(self.groups[at], self.groups[first], column)
            # One seed beside several tells nothing apart; where all rows have one, the best value is marked.
            return behind.side() == 0 if behind.n > 1 else several

        first_ones = {at for at in values if leads(at)}
        return [at in first_ones and len(first_ones) < len(values) for at in range(len(self.groups))]

    def cells(self) -> Cells:
        """The rows as text. Scores by seed, where a row has several, and differences to exact training, where
        it is there, follow the leading score; the ratio to its bytes follows the bytes per epoch."""
        text = {key: list(cells) for key, cells in zip(KEYS, zip(*map(_key_cells, self.groups)))}
        names = {key: key for key in (*KEYS, "note")} | FURTHER
        best, blocks = {}, []
        several = any(len(group.seeds) > 1 for group in self.groups)
        for number, block in enumerate(self.blocks):
            first = len(text)
            for at, column in enumerate(block):
                text[column.heading] = [format(estimate_of(g, column), column.digits) for g in self.groups]
                names[column.key] = column.heading
                best[column.heading] = self.best(column)
                if column.key == "mb_epoch" and self.has_ratio:
                    ratios = map(self.ratio, self.groups)
                    text["MB / exact"] = ["" if ratio is None else f"{ratio:.3f}" for ratio in ratios]
                if number == 0 and at == 1:
                    if several:
                        text["by seed"] = [self.by_seed(g) if len(g.seeds) > 1 else "" for g in self.groups]
                    less = [less_exact(g, self.groups) for g in self.groups]
                    text |= {"minus exact": less} if several or any(less) else {}
                    gains = [_points(self.ahead_of_fixed(g), g) for g in self.groups]
                    text |= {"minus fixed": gains} if any(gains) else {}
            blocks.append(list(range(first, len(text))))
        names |= {"score": self.blocks[0][0].heading, "time": self.blocks[1][0].heading}
        shown = pd.DataFrame(text)
        marks = pd.DataFrame(best).reindex(columns=shown.columns, fill_value=False)
        return Cells(shown, marks, blocks, names)

    def chosen(self, names: Sequence[str] = ()) -> Cells:
        """The columns of `cells` with these names or headings. Without names: those of `SHORT` (of `TUNED`
        where rows are tuned) that are not empty, and the metrics that were asked for. Workers, partition and
        epochs that rows do not share, and that are no columns, stand behind the row's name."""
        whole = self.cells()
        text = whole.text.copy()
        text["minus exact"] = [less_exact(g, self.groups) for g in self.groups]
        text["note"] = list(map(self._said, self.groups))
        if not names:
            usual = TUNED if "minus fixed" in text else SHORT
            further = [column.key for column in columns.metrics(metrics(self.groups))]
            names = [name for name in (*usual, *further) if any(text.get(whole.names[name], ()))]
        unsaid = set(KEYS[1:-1]) - {*names, *whole.shared}
        text["system"] = [
            f"{name} ({', '.join(_said_of(group)[key] for key in KEYS if key in unsaid)})" if unsaid else name
            for name, group in zip(text["system"], self.groups)
        ]
        headings = dict.fromkeys(whole.names.get(name, name) for name in names)
        text = text[[heading for heading in headings if heading in text]]
        return Cells(text, whole.best.reindex(columns=text.columns, fill_value=False), [], whole.names)

    def _said(self, group: Group) -> str:
        """The note on a row: that it diverged, or that exact training is not ahead of this control."""
        if group.diverged:
            return "diverged"
        for control, _, ahead in ahead_of_controls(self.groups, columns.LEADING[self.score][0]):
            if control is group and ahead.n > 1 and ahead.side() <= 0:
                return "not told from exact" if ahead.side() == 0 else "ahead of exact"
        return ""


def less_exact(group: Group, groups: list[Group]) -> str:
    """The leading score minus exact training's at the same setting, in points, paired over seeds, as text;
    "" without exact training."""
    return _points(ahead_of_exact(group, groups), group)


def ahead_of_exact(group: Group, groups: list[Group]) -> Estimate:
    """The difference that `less_exact` gives, as an estimate; its n is 0 without exact training."""
    return _ahead_of(reference_of(group, groups, elsewhere=True), group, leading(groups))


def _ahead_of(other: Group | None, group: Group, score: str) -> Estimate:
    if other is None or other is group:
        return estimate([])
    return change(group, other, columns.LEADING[score][0])


def competes(group: Group) -> bool:
    """Whether a group can be a column's best: it has finished, did not diverge, and is not the control."""
    return group.finished and not group.diverged and group.first.role != "control"


def diverged(group: Group, row: str) -> str:
    """The note below a table on a row of which runs diverged."""
    when = ", ".join(f"seed {seed} in epoch {epoch + 1}" for seed, epoch in group.diverged.items())
    return f"{row} diverged ({when}): its loss or its logits were not finite, so it has no accuracy."


def own(groups: list[Group]) -> list[str]:
    """The names of the scores of one's own that any of the runs has, in order."""
    return list(dict.fromkeys(name for g in groups for run in g.runs for name in run.summary["scores"]))


def metrics(groups: list[Group]) -> list[str]:
    """The names of the metrics that were asked for, in order."""
    return list(
        dict.fromkeys(name for g in groups for run in g.runs for name in run.summary.get("metrics", ()))
    )


def compared_by(groups: list[Group], clock: str) -> list[Column]:
    """The leading score, bytes and time of an epoch."""
    score = columns.named(columns.LEADING[leading(groups)][0], groups[0].first.summary["multilabel"])
    return [score, columns.ALL["mb_epoch"], columns.TIMES[clock][0]]


def sections(groups: list[Group]) -> list[Section]:
    """One for each (dataset, clock, machine), in the order of the groups."""
    parts: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        parts.setdefault((group.dataset, group.clock, group.first.machine), []).append(group)
    return [Section(*key, members) for key, members in parts.items()]


def only_section(groups: list[Group]) -> Section:
    """The groups as one table. InputError where they belong in several."""
    found = sections(groups)
    if len(found) > 1:
        where = "; ".join(f"{part.dataset}, {part.clock} clock, {part.machine}" for part in found)
        raise InputError(
            f"these runs cannot stand in one figure ({where}): give those of one graph, measured with one"
            " clock on one machine"
        )
    return found[0]


def estimate_of(group: Group, column: Column) -> Estimate:
    """The mean over the group's seeds; of a score none where one diverged: the others would flatter it."""
    return estimate([]) if group.diverged and column.scored else group.estimate(column.value)


def _points(ahead: Estimate, group: Group) -> str:
    """A difference in points, with the number of seeds where not all of the group's are in it."""
    fewer = f" ({ahead.n} of {len(group.seeds)} seeds)" if ahead.n < len(group.seeds) else ""
    return f"{ahead:+.2f}{fewer}" if ahead.n else ""


def _key_cells(g: Group) -> list[str]:
    name = g.label if g.finished else f"{g.label} (unfinished)"
    return [name, str(g.workers), g.partition, g.epochs, str(len(g.seeds))]


def _said_of(group: Group) -> dict[str, str]:
    workers, epochs = counted(group.workers, "worker"), counted(group.epochs, "epoch")
    return {"workers": workers, "partition": group.partition, "epochs": epochs}


def _row(group: Group) -> str:
    return f"{group.label} ({group.partition}, {counted(group.workers, 'worker')})"
