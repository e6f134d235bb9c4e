"""Tables of results: many runs side by side, for a person, a paper or a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.report import columns
from harness.report.columns import Column
from harness.report.compare import cannot_tell, paired, reference_of
from harness.report.groups import Estimate, Group, estimate

CLOCKS = {
    "wall": "wall seconds of each epoch's slowest worker",
    "cpu": (
        "CPU seconds of each epoch's busiest worker (workers outnumber cores: wall time would measure the"
        " machine)"
    ),
}
BEST = " *"  # after the best value of a column
KEYS = ("system", "workers", "partition", "epochs", "seeds")


@dataclass
class Section:
    """What stands in one table: runs on one graph, measured with one clock on one machine."""

    dataset: str
    clock: str
    machine: str
    groups: list[Group]

    @property
    def score(self) -> str:
        return leading(self.groups)

    @property
    def blocks(self) -> list[tuple[Column, ...]]:
        """The measured columns: scores, times, bytes."""
        scores = (*columns.LEADING[self.score], *columns.BESIDE[self.score], *columns.more(own(self.groups)))
        multilabel = self.groups[0].first.summary["multilabel"]
        return [
            tuple(columns.named(column, multilabel) for column in scores),
            columns.times(self.clock),
            columns.BYTES,
        ]

    @property
    def title(self) -> str:
        return (
            f"{self.dataset}{' (twin: a synthetic graph)' if self.dataset.startswith('twin/') else ''};"
            f" {self.machine}"
        )

    def by_seed(self, group: Group) -> str:
        """The leading score at the best validation of each seed, in the order of seeds."""
        values = group.by_seed(columns.LEADING[self.score][0].value)
        # Of several runs of a seed it is their mean alone.
        told = {seed: format(estimate([value.mean]), ".1f") for seed, value in values.items()}
        return " ".join("diverged" if seed in group.diverged else value for seed, value in told.items())

    def less_exact(self, group: Group) -> str:
        """The leading score less that of exact training under the same setting, in points, paired over seeds;
        empty where it is not there."""
        ahead = self.ahead(group)
        return f"{ahead:+.2f}" if ahead.n else ""

    def ahead(self, group: Group) -> Estimate:
        exact = reference_of(group, self.groups, elsewhere=True)
        if exact is None or exact is group or group.diverged or exact.diverged:
            return estimate([])
        return paired(group, exact, columns.LEADING[self.score][0].value)

    def notes(self) -> list[str]:
        name = {"acc": "accuracy", "auc": "AUC"}[self.score]
        said = [
            f"Times are {CLOCKS[self.clock]}, means over epochs without the first.",
            (
                f"Scores are those of the test vertices at the best validation {name}, and {name} in the last"
                " evaluation; AUC and balanced accuracy are means over classes; majority is the accuracy of"
                " the most frequent class."
            ),
            "MB (10^6 bytes) are summed over workers.",
        ]
        if any(any(self.best(column)) for block in self.blocks for column in block):
            said.append(
                f"{BEST.strip()} marks the best of a column, the control and unfinished runs left out."
            )
        if any(map(self.bytes_ratio, self.groups)):
            said.append("MB / exact is MB per epoch over that of exact training under the same setting.")
        if any(run.summary["rounds"] for group in self.groups for run in group.runs):
            said.append(
                "An epoch of an asynchronous run is as many updates as there are workers: its times are a"
                " worker's whole time over the number of epochs."
            )
        if any(len(group.seeds) > 1 for group in self.groups):
            said.append(
                "± is half a 95 % interval over seeds (Student's t); less exact is the leading score less"
                " that of exact training under the same setting, paired over seeds."
            )
        for group in self.groups:
            if group.diverged:
                when = ", ".join(f"seed {seed} in epoch {epoch}" for seed, epoch in group.diverged.items())
                said.append(
                    f"{_row(group)} diverged ({when}): its loss or its logits were no finite numbers, "
                    "so it has no accuracy."
                )
        said += cannot_tell(self.groups, columns.LEADING[self.score][0])
        codes: dict[str, dict[str, None]] = {}
        for group in self.groups:
            codes.setdefault(group.first.name, {}).update(dict.fromkeys(run.code for run in group.runs))
        for name, found in codes.items():
            if len(found) > 1:
                said.append(f"Runs of {name} were computed by different code: {', '.join(found)}.")
        busy = sum(
            any("other programs" in note for note in run.summary["notes"])
            for group in self.groups
            for run in group.runs
        )
        if busy:
            said.append(
                f"In {busy} runs other programs took a share of the cores: their wall times are too long."
            )
        if not all(group.finished for group in self.groups):
            said.append(
                "Unfinished runs stand in rows of their own; their values are of what they have traced so"
                " far."
            )
        return said

    def bytes_ratio(self, group: Group) -> str:
        """MB per epoch over that of exact training under the same setting; empty where it is not there."""
        exact = reference_of(group, self.groups)
        if exact is None:
            return ""
        ours, theirs = (each.estimate(columns.ALL["mb_epoch"].value).mean for each in (group, exact))
        return f"{ours / theirs:.3f}" if theirs else ""

    def best(self, column: Column) -> list[bool]:
        """Which groups have the best value of a column: the highest score, the fewest seconds or bytes. The
        control does without remote rows and is no competitor; nor is a run that has not finished."""
        sign = 1 if column.scored else -1
        values = [
            sign * estimate_of(g, column).mean
            if column is not columns.MAJORITY and g.finished and not g.diverged and g.first.role != "control"
            else math.nan
            for g in self.groups
        ]
        known = [value for value in values if not math.isnan(value)]
        return [len(set(known)) > 1 and value == max(known) for value in values]

    def cells(self) -> tuple[list[str], list[list[str]], list[list[int]]]:
        """Headings, rows as text, and the places of each block's columns. Values by seed, and their
        difference to exact training, stand after the leading score where a row has several seeds."""
        several = any(len(group.seeds) > 1 for group in self.groups)
        headings, rows, places = list(KEYS), [_key_cells(group) for group in self.groups], []
        for number, block in enumerate(self.blocks):
            first = len(headings)
            for at, column in enumerate(block):
                headings.append(column.heading)
                for group, row, best in zip(self.groups, rows, self.best(column)):
                    row.append(format(estimate_of(group, column), column.digits) + (BEST if best else ""))
                if column.key == "mb_epoch" and any(map(self.bytes_ratio, self.groups)):
                    headings.append("MB / exact")
                    for group, row in zip(self.groups, rows):
                        row.append(self.bytes_ratio(group))
                if several and number == 0 and at == 1:
                    headings += ["by seed", "less exact"]
                    for group, row in zip(self.groups, rows):
                        row += [self.by_seed(group) if len(group.seeds) > 1 else "", self.less_exact(group)]
            places.append(list(range(first, len(headings))))
        return headings, rows, places


def own(groups: list[Group]) -> list[str]:
    """The names of the scores of one's own that any of the runs has, in order."""
    return list(dict.fromkeys(name for g in groups for run in g.runs for name in run.summary["scores"]))


def leading(groups: list[Group]) -> str:
    """The score that leads: "auc" where it does so in every run, else "acc"."""
    return "auc" if all(run.summary["score"] == "auc" for group in groups for run in group.runs) else "acc"


def sections(groups: list[Group]) -> list[Section]:
    """One for each (dataset, clock, machine), in the order of the groups."""
    parts: dict[tuple[str, str, str], list[Group]] = {}
    for group in groups:
        parts.setdefault((group.dataset, group.clock, group.first.machine), []).append(group)
    return [Section(*key, members) for key, members in parts.items()]


def estimate_of(group: Group, column: Column) -> Estimate:
    """The column's mean over the group's seeds; none of a score where a seed diverged: the others' mean would
    flatter.
    """
    return estimate([]) if group.diverged and column.scored else group.estimate(column.value)


def _key_cells(g: Group) -> list[str]:
    return [
        g.label if g.finished else f"{g.label} (unfinished)",
        str(g.workers),
        g.partition,
        g.epochs,
        str(len(g.seeds)),
    ]


def _row(group: Group) -> str:
    return f"{group.label} ({group.partition}, {group.workers} workers)"


def rich_tables(groups: list[Group], width: int) -> list[RenderableType]:
    """For a terminal of `width` columns: what all rows share goes into the title, and scores, times and bytes
    into tables of their own where one table would be too wide."""
    shown: list[RenderableType] = []
    for section in sections(groups):
        headings, rows, places = section.cells()
        shared = {i for i in range(1, len(KEYS)) if len({row[i] for row in rows}) == 1}
        said = ", ".join(f"{rows[0][i]} {headings[i]}" if i != 2 else rows[0][i] for i in sorted(shared))
        keys = [i for i in range(len(KEYS)) if i not in shared]
        tables = [_rich(section, headings, rows, [*keys, *(i for block in places for i in block)])]
        if Measurement.get(Console(width=10_000), Console(width=10_000).options, tables[0]).maximum > width:
            tables = [_rich(section, headings, rows, [*keys, *block]) for block in places]
        tables[0].title = "\n".join(filter(None, [section.title, said]))
        shown += [*tables, *(Text(note, style="dim") for note in section.notes()), Text()]
    return shown


def _rich(section: Section, headings: list[str], rows: list[list[str]], chosen: list[int]) -> Table:
    table = Table(
        title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    for i in chosen:
        # Where it is still too wide, names are folded and numbers never.
        table.add_column(
            headings[i].replace(" ", "\n"),
            justify=_justify(i),
            vertical="top",
            no_wrap=i > 0,
            overflow="fold",
        )
    for group, row in zip(section.groups, rows):
        # One knob per line, and an interval below its mean.
        table.add_row(
            *(row[i].replace(" ", "\n  ") if i == 0 else row[i].replace(" ± ", "\n± ") for i in chosen),
            style=None if group.finished else "yellow",
        )
    return table


def _justify(column: int) -> Literal["left", "right"]:
    return "left" if column in (0, 2) else "right"  # names to the left, numbers to the right


def plain(groups: list[Group]) -> str:
    """Aligned text without a width limit, for files and pipes."""
    parts = []
    for section in sections(groups):
        headings, rows, _ = section.cells()
        widths = [max(map(len, column)) for column in zip(headings, *rows)]
        lines = [
            "  ".join(_pad(cell, width, i) for i, (cell, width) in enumerate(zip(row, widths))).rstrip()
            for row in [headings, *rows]
        ]
        parts.append("\n".join([section.title, *lines, *section.notes()]))
    return "\n\n".join(parts)


def _pad(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if _justify(column) == "left" else cell.rjust(width)


def markdown(groups: list[Group]) -> str:
    parts = []
    for section in sections(groups):
        headings, rows, _ = section.cells()
        rule = [":--" if _justify(i) == "left" else "--:" for i in range(len(headings))]
        lines = [
            "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
            for row in [headings, rule, *rows]
        ]
        parts.append(
            "\n".join([f"**{section.title}**", "", *lines, "", *(f"- {note}" for note in section.notes())])
        )
    return "\n\n".join(parts)


def write_csv(groups: list[Group], path: Path | str) -> None:
    """One row per group, full precision. A column that a row's section does not show is empty there;
    `_half95` is half the 95 % interval, empty with one seed; `by_seed` the leading score of each seed."""
    shown = {id(group): section for section in sections(groups) for group in section.groups}
    every = {**columns.ALL, **{column.key: column for column in columns.more(own(groups))}}
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(
        [
            "dataset",
            "twin",
            *KEYS[:4],
            "finished",
            "diverged",
            "seeds",
            "runs",
            "clock",
            "machine",
            "score",
            "by_seed",
            "less_exact",
            "less_exact_half95",
            *(f"{key}{end}" for key in every for end in ("", "_half95")),
        ]
    )
    for g in groups:
        section = shown[id(g)]
        held = {column.key for block in section.blocks for column in block}
        row = [
            g.dataset,
            g.first.summary["twin"],
            g.label,
            g.workers,
            g.partition,
            g.first.summary["epochs"],
            g.finished,
            len(g.diverged),
            len(g.seeds),
            len(g.runs),
            g.clock,
            g.first.machine,
            section.score,
            section.by_seed(g),
            *_exactly(section.ahead(g)),
        ]
        for key, column in every.items():
            e = estimate_of(g, column) if key in held else None
            row += ["", ""] if e is None else _exactly(e)
        out.writerow(row)
    Path(path).write_text(text.getvalue())


def _exactly(e: Estimate) -> list[str]:
    """Mean and half interval in full; empty where there is none."""
    return [repr(e.mean), "" if e.half is None else repr(e.half)] if e.n else ["", ""]
