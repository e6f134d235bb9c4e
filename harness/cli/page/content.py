"""The content of the page, from groups of runs: everything but its layout."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import yaml

from harness.base.errors import InputError
from harness.cli.page import svg
from harness.cli.page.layout import Cell, Picture, Table
from harness.cli.runs import state
from harness.results.report import curves, plot, sweep_plots
from harness.results.report.advice import Advice, advise, comparable
from harness.results.report.columns import TIMES, Column, score_name
from harness.results.report.compare import differing
from harness.results.report.groups import Group
from harness.results.report.style import STYLE, names_of, strokes_of, told_apart
from harness.results.report.table import CLOCKS, Section, estimate_of, sections
from harness.run import repeat_command

WORDS = ("system", "partition", "by seed")  # columns that are sorted as text
CURVES = 8  # rows whose curves are drawn


@dataclass(frozen=True)
class Repeats:
    """The runs of a row: how to make them again, what they were asked for, and what they ran on.

    command       makes them again; "" where no command can
    mend          why no command can, and what to do; "" where one can
    runs          (folder, seed, state) of each
    config, resolved   of the first run: its config as YAML, its attempts as JSON
    environment   the number of its machine and packages in `Environments`
    """

    anchor: str
    name: str
    command: str
    mend: str
    runs: list[tuple[str, str, str]]
    config: str
    resolved: str
    environment: int


@dataclass(frozen=True)
class Part:
    """The rows of a table that can be compared.

    apart   its values of the keys in which the settings of the table's parts do not all agree
    """

    anchor: str
    apart: str
    advice: Advice
    pictures: list[Picture]
    table: Table
    notes: list[str]
    repeats: list[Repeats]


@dataclass(frozen=True)
class Graph:
    """What the page says of a graph.

    clock     which seconds its times are
    parts     the one with most rows first
    curves    pictures of rows of the first part
    """

    anchor: str
    title: str
    clock: str
    parts: list[Part]
    curves: list[Picture]


# The machines and packages that runs ran with: each as a text, with its number from 1.
Environments = dict[str, int]


def graphs(groups: list[Group], environments: Environments) -> list[Graph]:
    """One `Graph` per table of the report. Adds the environments of their runs to `environments`."""
    with matplotlib.rc_context(STYLE):
        return [
            _graph(f"graph{number}", section, environments)
            for number, section in enumerate(sections(groups), 1)
        ]


def _graph(anchor: str, section: Section, environments: Environments) -> Graph:
    parts = comparable(section)
    made = [
        _part(f"{anchor}-part{number}", part, apart, environments)
        for number, (part, apart) in enumerate(zip(parts, _apart(parts)), 1)
    ]
    return Graph(
        anchor,
        section.title,
        CLOCKS[section.clock],
        made,
        _curves(anchor, parts[0]),
    )


def _apart(parts: Sequence[Section]) -> list[str]:
    """KEY=VALUE of each part, for each key in which the settings of the parts do not all agree."""
    beside = ("system.", "partition.", "cluster.", "seed")
    found = differing([part.groups[0].first for part in parts])
    shown = {key: values for key, values in found.items() if not key.startswith(beside)}
    names = [key.removesuffix("._target_") for key in shown]
    return [
        " ".join(f"{name}={values[own]}" for name, values in zip(names, shown.values()) if values[own] != "-")
        for own in range(len(parts))
    ]


def _part(anchor: str, part: Section, apart: str, environments: Environments) -> Part:
    repeats = [
        _repeats(f"{anchor}-runs{number}", name, group, environments)
        for number, (name, group) in enumerate(zip(told_apart(part.groups), part.groups), 1)
    ]
    costs = part.compared[1:]
    return Part(
        anchor,
        apart,
        advise(part),
        [_against(f"{anchor}-{cost.key}", cost, part) for cost in costs] if len(part.groups) > 1 else [],
        _table(part, repeats),
        part.notes("Bold"),
        repeats,
    )


def _against(name: str, cost: Column, part: Section) -> Picture:
    """The leading score against a cost. Where the pointer rests on a point, its values are shown."""
    score = part.compared[0]
    what = f"Test {score_name(part.groups)} against {sweep_plots.axis_name(cost)}"
    values = [(estimate_of(group, score), estimate_of(group, cost)) for group in part.groups]
    says = [
        f"{row}: {score.heading} {s:{score.digits}}, {cost.heading} {c:{cost.digits}}"
        for row, (s, c) in zip(told_apart(part.groups), values)
    ]
    best = "; ".join(says[at] for at in sweep_plots.front_of(cost, part))
    picture = svg.element(
        sweep_plots.pareto(part, titled=False, costs=[cost]),
        name,
        f"{what}. On the Pareto front: {best}.",
        {f"{cost.key}-row{at}": each for at, each in enumerate(says)},
    )
    return picture, f"{what}; bars are 95 % intervals over seeds, cut where they leave the picture."


def _curves(anchor: str, part: Section) -> list[Picture]:
    """Curves of the rows with a score that are not grey against their costs, at most CURVES of them, and
    where their time goes."""
    rows = part.groups if len(part.groups) <= sweep_plots.MANY else sweep_plots.matter(part)
    chosen = [group for group in rows if estimate_of(group, part.compared[0]).n][:CURVES]
    if not chosen:
        return []
    few = Section(part.dataset, part.clock, part.machine, chosen)
    strokes = strokes_of(part.groups)
    names = names_of(chosen, brief=False)
    score = score_name(chosen)
    drawn = {
        f"Test {score} over {axis.name}": curves.accuracy_over(axis, few, names, strokes)
        for axis in curves.AXES
    }
    drawn["Where an epoch's time goes"] = plot.breakdown(few, names)
    said = ", ".join(told_apart(chosen))
    return [
        (svg.element(figure, f"{anchor}-curve{number}", f"{what}: {said}."), f"{what}.")
        for number, (what, figure) in enumerate(drawn.items(), 1)
    ]


def _table(part: Section, repeats: Sequence[Repeats]) -> Table:
    """The report's rows, with time over exact training's beside bytes over exact training's. What all rows
    share stands in the caption."""
    cells = part.cells()
    keys = {column.heading: column.key for block in part.blocks for column in block}
    columns: dict[str, list[Cell]] = {}
    for heading in map(str, cells.text):
        if heading in cells.shared:
            continue
        columns[heading] = [Cell(t, bool(b)) for t, b in zip(cells.text[heading], cells.best[heading])]
        if heading == TIMES[part.clock][0].heading:
            ratios = [part.ratio(group, TIMES[part.clock][0]) for group in part.groups]
            if any(ratio is not None for ratio in ratios):
                columns["time / exact"] = [Cell("" if r is None else f"{r:.3f}") for r in ratios]
    columns["system"] = [
        Cell(cell.text, cell.best, each.anchor) for cell, each in zip(columns["system"], repeats)
    ]
    headings = [(heading, heading in WORDS, keys.get(heading, "")) for heading in columns]
    return Table(", ".join(cells.shared.values()), headings, [list(row) for row in zip(*columns.values())])


def _repeats(anchor: str, name: str, group: Group, environments: Environments) -> Repeats:
    stored = [run.trace.config for run in group.runs]
    try:
        path = group.first.path
        inside = len(path.parts) > 2  # RESULTS/GRAPH/RUN; a shorter path was given from inside that folder
        results = path.parent.parent if inside else Path(os.path.relpath(path.resolve().parent.parent))
        command, mend = repeat_command.command(stored, results), ""
    except InputError as error:
        command, mend = "", str(error)
    first = group.first
    # The hash of the code stands among the attempts; runs by other code may share an environment.
    told = {key: value for key, value in first.trace.environment.items() if key != "code"}
    environment = json.dumps(told, indent=1, sort_keys=True)
    return Repeats(
        anchor,
        name,
        command,
        mend,
        [(str(run.path), str(run.seed), state(run)) for run in group.runs],
        yaml.safe_dump(first.trace.config, sort_keys=False, allow_unicode=True),
        json.dumps(first.attempts, indent=1),
        environments.setdefault(environment, len(environments) + 1),
    )
