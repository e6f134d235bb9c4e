"""Pictures of a sweep: score, bytes and time against the knob that was swept; score against what it costs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from harness.base.errors import InputError, did_you_mean
from harness.results.report.columns import Column
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group, knob, typed_value
from harness.results.report.style import (
    COLOURS,
    SCORE_TITLES,
    names_of,
    stroke,
    title,
    told_apart,
    unsaid,
    verbatim,
    wrapped,
)
from harness.results.report.table import Section, estimate_of

MARKERS = ("o", "s", "^", "D")  # another for each round of colours, so that 28 lines can be told apart
SPAN = 30.0  # an axis that reaches more than so many times its least value is logarithmic
WIDE = 26  # characters of a line of a name


def check_key(x: str, groups: Sequence[Group], field: str = "--x", instead: Sequence[str] = ()) -> None:
    """InputError where a key is none of the runs', or has one value in all of them.

    field, instead   where it was given, and what else could have been given there
    """
    known = {key for group in groups for key in group.first.keys}
    if x not in known:
        raise InputError(f'{field} "{x}" is not a key of these runs{did_you_mean(x, {*known, *instead})}')
    values = _values(x, groups)
    if len(values) == 1:
        (value,) = values
        raise InputError(
            f"{field} {x}: all runs have the value {value}; give a key that differs between them"
        )


def varies(x: str, groups: Sequence[Group]) -> bool:
    """Whether some of the groups differ in the key `x`."""
    return len(_values(x, groups)) > 1


def _values(x: str, groups: Sequence[Group]) -> set[str]:
    return {repr(group.first.keys[x]) for group in groups if x in group.first.keys}


def over_knob(x: str, section: Section) -> Figure:
    """Leading score, bytes and time of an epoch against the key `x`: a line per group of runs that differ in
    it alone, with 95 % intervals over seeds. Runs without the key are a level line; those with one value of
    it a point, whose name says the value, and a dotted line at its height to compare with.

    The values are the tables' (`harness.results.report.table.estimate_of`). `section.groups` are those that
    `groups.load` gives for this `x`.
    """
    lines = _lines(x, section.groups)
    known = {repr(v): v for line in lines.values() for v, group in line if x in group.first.keys}
    values = _in_order(known.values())
    places, ticks, log = _places(values)
    figure, panels = _panels(3, len(lines))
    for column, ax in zip(section.compared, panels):
        for (name, line), style in zip(lines.items(), _styles(len(lines))):
            estimates = [(places[repr(v)], estimate_of(g, column)) for v, g in line if x in g.first.keys]
            points = [(place, e) for place, e in estimates if not math.isnan(e.mean)]
            if len({repr(v) for v, _ in line}) == 1:
                if estimates:
                    name = f"{name}, only {verbatim(knob(x, line[0][0]))}"
                    style = {**style, "linestyle": ":", "alpha": 0.7}
                level = {**style, "marker": "", "label": "_" if points else name}
                ax.axhline(estimate_of(line[0][1], column).mean, linewidth=1.2, **level)
            _draw(ax, points, name, style)
        ax.set_xlabel(x)
        ax.set_ylabel(axis_name(column, section))
        if log:
            ax.set_xscale("log")
        elif all(isinstance(value, int) for value in values):
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if ticks:
            ax.set_xticks(range(len(ticks)), ticks)
    _legend(figure, panels[0])
    title(figure, f"Against {x}", section.dataset, section.groups, "bars: 95 % interval over seeds")
    return figure


def pareto(section: Section, key: str | None = None, titled: bool = True) -> Figure:
    """The leading score against bytes and against time of an epoch: a point per group, and a grey line, the
    Pareto front, through those that no other beats in both.

    key      one that the groups' labels leave out (`groups.load`): here it is part of their names
    titled   whether its title will be shown: what names leave out stands there
    """
    score, *costs = section.compared
    named = zip(names_of(section.groups, brief=titled), section.groups)
    names = [_with_value(name, key, group) for name, group in named]
    figure, panels = _panels(2, len(names))
    for cost, ax in zip(costs, panels):
        points = [(estimate_of(g, cost), estimate_of(g, score)) for g in section.groups]
        for (x, y), name, style in zip(points, names, _styles(len(names))):
            if math.isnan(y.mean):
                continue
            style = {**style, "linestyle": ""}
            ax.errorbar(x.mean, y.mean, xerr=x.half, yerr=y.half, capsize=2, label=name, **style)
        known = [(x.mean, y.mean) for x, y in points if not math.isnan(y.mean)]
        if known:  # not where every run diverged
            best = front(known)
            ax.step(*zip(*best), where="post", color="#999999", linewidth=1.2, zorder=0, label="Pareto front")
        ax.set_xlabel(axis_name(cost, section))
        ax.set_ylabel(axis_name(score, section))
        if known and min(x for x, _ in known) > 0 and _is_wide([x for x, _ in known]):
            ax.set_xscale("log")
    _legend(figure, panels[0])
    title(
        figure,
        f"{SCORE_TITLES[section.score]} against its cost",
        section.dataset,
        section.groups,
        "bars: 95 % interval over seeds",
        unsaid(section.groups),
    )
    return figure


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, score) those that no other point equals or beats in both, by ascending cost."""
    found: list[tuple[float, float]] = []
    for cost, score in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not found or score > found[-1][1]:
            found.append((cost, score))
    return found


def axis_name(column: Column, section: Section) -> str:
    """What an axis is called: as the column of the tables."""
    told = {"mb_epoch": "MB per epoch, all workers", "epoch_s": "epoch s, slowest worker"}
    return told.get(column.key, column.heading.replace("epoch CPU s", "epoch CPU s, busiest worker"))


def _lines(x: str, groups: Sequence[Group]) -> dict[str, list[tuple[Any, Group]]]:
    """Groups that differ in `x` alone, by name: each its value of `x` (None: it has no such key) and the
    group."""
    together: dict[str, list[Group]] = {}
    for group in groups:
        same = {key: value for key, value in group.first.keys.items() if key not in (x, "seed")}
        key = json.dumps([same, group.finished, group.first.resolved], sort_keys=True, default=str)
        together.setdefault(key, []).append(group)
    firsts = [members[0] for members in together.values()]
    own = {"partition"} if x.startswith("partition.") else {x}
    made: dict[str, list[tuple[Any, Group]]] = {}
    for name, members in zip(map(verbatim, told_apart(firsts, own)), together.values()):
        order = _in_order([member.first.keys.get(x) for member in members])
        members.sort(key=lambda member: order.index(member.first.keys.get(x)))
        made.setdefault(name, []).extend((member.first.keys.get(x), member) for member in members)
    return made


def _in_order(values: Iterable[Any]) -> list[Any]:
    """Numbers by size, then everything else by name."""
    return sorted(values, key=lambda v: (0, v, "") if _is_number(v) else (1, 0.0, str(v)))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _places(values: list[Any]) -> tuple[dict[str, float], list[str], bool]:
    """Where each value (by its repr) stands on the axis, the names of ticks where values stand side by side,
    and whether the axis is logarithmic."""
    if all(map(_is_number, values)) and (not _is_wide(values) or min(values) > 0):
        return {repr(v): float(v) for v in values}, [], _is_wide(values)
    return (
        {repr(v): float(i) for i, v in enumerate(values)},
        [verbatim(typed_value("", v)) for v in values],
        False,
    )


def _is_wide(values: Sequence[float]) -> bool:
    least = min((abs(v) for v in values if v), default=1.0)
    return max(map(abs, values)) > SPAN * least


def _styles(count: int) -> list[dict[str, Any]]:
    return [{**stroke(i), "marker": MARKERS[i // len(COLOURS) % len(MARKERS)]} for i in range(count)]


def _draw(ax: Axes, points: list[tuple[float, Estimate]], name: str, style: dict[str, Any]) -> None:
    if points:
        x, estimates = zip(*points)
        bars = np.array([e.half or 0.0 for e in estimates])
        y = [e.mean for e in estimates]
        ax.errorbar(
            x,
            y,
            yerr=bars if bars.any() else None,
            capsize=2,
            linewidth=1.6,
            markersize=5,
            label=name,
            **style,
        )


def _panels(count: int, names: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(3.4 * count + 2.4, max(3.9, 0.3 * names + 1.2)), layout="constrained")
    return figure, list(figure.subplots(1, count))


def _legend(figure: Figure, ax: Axes) -> None:
    handles, labels = ax.get_legend_handles_labels()
    told = [wrapped(label, WIDE) for label in labels]
    figure.legend(handles, told, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)


def _with_value(name: str, x: str | None, group: Group) -> str:
    keys = group.first.keys
    return (
        name if x is None or x not in keys else f"{name} {verbatim(knob(x.removeprefix('system.'), keys[x]))}"
    )
