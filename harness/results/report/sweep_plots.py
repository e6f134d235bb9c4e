"""Pictures of a sweep: score, bytes and time against the knob that was swept; score against what it costs."""

import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from harness.base.errors import InputError, did_you_mean
from harness.base.terminal import counted
from harness.results.report.columns import Column, score_name
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group, knob, typed_value
from harness.results.report.style import (
    BACKGROUND,
    Row,
    listed,
    names_of,
    row_of,
    strokes_of,
    title,
    told_apart,
    unsaid,
    verbatim,
    wrapped,
)
from harness.results.report.table import Section, competes, estimate_of

MANY = 7  # with more rows than this, those that do not `matter` are grey
SPAN = 30.0  # an axis is logarithmic where its largest value is more than so many times its least
TOLD = 12  # lines of names in a legend, of rows that lie behind the others
WIDE = 26  # characters per line of a name
CHARACTERS = 36  # of words below an axis that fit side by side
TICKS = 8  # with more values than this, the ticks of an axis are round numbers instead of the values
DIGIT = 0.035  # the width of a digit, as a share of the axis


def check_key(x: str, groups: Sequence[Group], field: str = "--x", instead: Sequence[str] = ()) -> None:
    """InputError where no run has the key `x`, or all runs have the same value of it; also for the seed, over
    which rows are means.

    field     the option or parameter in which the key was given, for the error's sentence
    instead   what else could have been given in it
    """
    if x == "seed":
        raise InputError(f"{field} seed: values are means over seeds; give another key")
    known = {key for group in groups for key in group.first.keys}
    if x not in known:
        raise InputError(f'{field} "{x}" is not a key of these runs{did_you_mean(x, {*known, *instead})}')
    values = _values(x, groups)
    if len(values) == 1:
        (value,) = values
        raise InputError(
            f"{field} {x}: all runs that have this key have the value {value}; give one that differs between"
            " them"
        )


def varies(x: str, groups: Sequence[Group]) -> bool:
    """Whether some of the groups differ in the key `x`."""
    return len(_values(x, groups)) > 1


def _values(x: str, groups: Sequence[Group]) -> set[str]:
    return {repr(group.first.keys[x]) for group in groups if x in group.first.keys}


def over_knob(x: str, section: Section) -> Figure:
    """Leading score, bytes and time of an epoch against the key `x`: a line for all groups that differ in `x`
    alone, with 95 % intervals over seeds. A group without the key, such as exact training, is a level line. A
    group for which only one value was run is a point on a dotted level line, and its name says the value.

    The values are the tables' (`harness.results.report.table.estimate_of`). `section.groups` are those that
    `groups.load` gives for this `x`."""
    # Where each value stands on the axis, and how each line is drawn.
    lines = _lines(x, section.groups)
    known = {repr(v): v for line in lines.values() for v, group in line if x in group.first.keys}
    values = _in_order(known.values())
    places, ticks, log = _places(values, x)
    strokes, telling = strokes_of(line[0][1] for line in lines.values()), set(map(row_of, matter(section)))
    grey = []
    if len(lines) > MANY:
        grey = [name for name, line in lines.items() if not telling & {row_of(group) for _, group in line}]
    figure, panels = _panels(3, list(lines), grey)
    # A panel each for score, bytes and time.
    for column, ax in zip(section.compared, panels):
        for name, line in lines.items():
            style = BACKGROUND if name in grey else strokes[row_of(line[0][1])]
            estimates = [(places[repr(v)], estimate_of(g, column)) for v, g in line if x in g.first.keys]
            points = [(place, e) for place, e in estimates if not math.isnan(e.mean)]
            if len({repr(v) for v, _ in line}) == 1:
                if estimates and name not in grey:
                    name = f"{name}, only {verbatim(knob(in_words(x), line[0][0]))}"
                    style = {**style, "linestyle": ":", "alpha": 0.7}
                level = {**style, "marker": "", "label": "_" if points else name}
                ax.axhline(estimate_of(line[0][1], column).mean, linewidth=1.2, **level)
            _draw(ax, points, name, style)
        ax.set_xlabel(in_words(x))
        ax.set_ylabel(axis_name(column))
        if log:
            ax.set_xscale("log")
        if ticks:
            ax.set_xticks(range(len(ticks)), ticks)
            ax.tick_params("x", labelrotation=25 * (sum(map(len, ticks)) > CHARACTERS))
        elif len(places) <= TICKS:
            ax.set_xticks(apart(list(places.values()), log))
            ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.xaxis.set_minor_locator(NullLocator())
        ax.set_ylim(bottom=max(0.0, ax.get_ylim()[0]))
    _legend(figure, panels[0], grey)
    bars, told = "bars: 95 % interval over seeds", "" if in_words(x) == x else f"{in_words(x)} is {x}"
    title(figure, f"Against {in_words(x)}", section.dataset, section.groups, bars, told)
    return figure


def in_words(key: str) -> str:
    """A key in words, as an axis is labelled; the line below the title gives the key itself."""
    block, *rest = key.split(".")
    return " ".join([each for each in rest if each not in ("name", "_target_")] or [block]).replace("_", " ")


def apart(values: Sequence[float], log: bool) -> list[float]:
    """Of ascending values those whose numbers fit below the axis side by side, the first and the last too."""
    scale = math.log if log else float
    whole = scale(values[-1]) - scale(values[0])

    def fit(left: float, right: float) -> bool:
        digits = 0.5 + (len(f"{left:g}") + len(f"{right:g}")) / 2
        return scale(right) - scale(left) >= digits * DIGIT * whole

    kept = list(values[:1])
    for value in values[1:-1]:
        if fit(kept[-1], value) and fit(value, values[-1]):
            kept.append(value)
    return kept + [value for value in values[-1:] if value != kept[0]]


def pareto(
    section: Section, key: str | None = None, titled: bool = True, costs: Sequence[Column] = ()
) -> Figure:
    """The leading score against what it costs: a point per group with its 95 % intervals over seeds, and a
    grey line, the Pareto front, through those that can win (`table.competes`) and that no other beats in
    both. The `gid` of a point is the key of its cost, "-row" and its place in `section.groups`.

    key      a key that the groups' labels leave out (`groups.load`); here it is part of their names
    titled   whether there is a title; what names then leave out stands in it
    costs    a panel for each; none given: bytes and time of an epoch
    """
    score, *usual = section.compared
    costs = costs or usual
    section = replace(section, groups=[_with_value(key, group) for group in section.groups])
    names = names_of(section.groups, brief=titled)
    strokes = strokes_in(section, strokes_of(section.groups))
    grey = [name for name, g in zip(names, section.groups) if strokes[row_of(g)] is BACKGROUND]
    figure, panels = _panels(len(costs), names, grey)
    for cost, ax in zip(costs, panels):
        points = [(estimate_of(g, cost), estimate_of(g, score)) for g in section.groups]
        known = [(x, y) for x, y in points if not math.isnan(y.mean)]
        log = bool(known) and min(x.mean for x, _ in known) > 0 and _is_wide([x.mean for x, _ in known])
        for number, ((x, y), name, group) in enumerate(zip(points, names, section.groups)):
            if math.isnan(y.mean):
                continue
            style = {**strokes[row_of(group)], "linestyle": "", "zorder": 2 - (name in grey)}
            drawn = ax.errorbar(x.mean, y.mean, whiskers([y]), whiskers([x]), capsize=2, label=name, **style)
            # Bars may be cut at the edge, points are not.
            drawn.lines[0].set(clip_on=False, gid=f"{cost.key}-row{number}")
        best = [(x.mean, y.mean) for x, y in (points[i] for i in front_of(cost, section))]
        if len(best) > 1:  # one point, or none where every run diverged, makes no line
            ax.step(*zip(*best), where="post", color="#999999", linewidth=1.2, zorder=0, label="Pareto front")
        ax.set_xlabel(axis_name(cost))
        ax.set_ylabel(axis_name(score))
        if known:
            _limit(ax, [x for x, _ in known], [y for _, y in known], log)
    _legend(figure, panels[0], grey)
    if titled:
        what = f"Test {score_name(section.groups)} against its cost"
        bars = "bars: 95 % interval over seeds, cut where they leave the panel"
        title(figure, what, section.dataset, section.groups, bars, unsaid(section.groups))
    return figure


def _limit(ax: Axes, costs: list[Estimate], scores: list[Estimate], log: bool) -> None:
    """Set the limits of a panel. Bars of few seeds can be far longer than the picture, so they are cut where
    they reach further beyond the points than the points lie apart."""
    low, high = _reach(scores)
    ax.set_ylim(max(0.0, low), high)
    low, high = _reach(costs)
    least = min(cost.mean for cost in costs)
    if log:
        ax.set_xscale("log")
        ax.set_xlim(max(low, least / 1.3), high)
    else:
        ax.set_xlim(max(0.0, low), high)
        ax.locator_params("x", nbins=4)  # numbers of small seconds are wide


def _reach(values: list[Estimate]) -> tuple[float, float]:
    """The ends of an axis that holds the means and their intervals, cut as `_limit` says."""
    means = np.array([value.mean for value in values])
    halves = np.array([value.half or 0.0 for value in values])  # None: of one seed
    room = max(np.ptp(means), 0.1 * means.max()) or 1.0
    low = max((means - halves).min(), means.min() - room)
    high = min((means + halves).max(), means.max() + room)
    return low - 0.05 * room, high + 0.05 * room


def front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of (cost, score) those that no other point equals or beats in both, by ascending cost."""
    found: list[tuple[float, float]] = []
    for cost, score in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not found or score > found[-1][1]:
            found.append((cost, score))
    return found


def front_of(cost: Column, section: Section) -> list[int]:
    """Indices into `section.groups` of the groups on the front of the leading score against a cost, by
    ascending cost. Groups that cannot win are on no front: the control, and diverged or unfinished groups."""
    score = section.compared[0]
    values = [(estimate_of(group, cost).mean, estimate_of(group, score).mean) for group in section.groups]
    can = [i for i, group in enumerate(section.groups) if competes(group) and not math.isnan(values[i][1])]
    best = front([values[i] for i in can])
    return sorted((i for i in can if values[i] in best), key=lambda i: values[i])


def matter(section: Section) -> list[Group]:
    """Those that a text about the groups speaks of: exact training, the control, and those on a front."""
    best = {i for cost in section.compared[1:] for i in front_of(cost, section)}
    return [group for i, group in enumerate(section.groups) if group.first.role or i in best]


def strokes_in(section: Section, strokes: dict[Row, dict[str, Any]]) -> dict[Row, dict[str, Any]]:
    """The strokes of a section's rows; of more than MANY those that do not matter are `BACKGROUND`."""
    many, telling = len(section.groups) > MANY, set(map(row_of, matter(section)))
    rows = map(row_of, section.groups)
    return {row: BACKGROUND if many and row not in telling else strokes[row] for row in rows}


def axis_name(column: Column) -> str:
    """The label of an axis: the heading of its column in tables, with whose bytes or time they are."""
    told = {"mb_epoch": "MB per epoch, all workers", "epoch_s": "epoch s, slowest worker"}
    return told.get(column.key, column.heading.replace("epoch CPU s", "epoch CPU s, busiest worker"))


def _lines(x: str, groups: Sequence[Group]) -> dict[str, list[tuple[Any, Group]]]:
    """By name of a line, its groups, which differ in `x` alone: each as (its value of `x`, the group). The
    value is None where the group has no such key."""
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


def _places(values: list[Any], key: str) -> tuple[dict[str, float], list[str], bool]:
    """The place of each value of `key` (by its repr) on the axis, the texts of the ticks, and whether the
    axis is logarithmic. Values that an axis of numbers cannot show stand side by side; all others need no
    texts."""
    if all(map(_is_number, values)) and (not _is_wide(values) or min(values) > 0):
        return {repr(v): float(v) for v in values}, [], _is_wide(values)
    places = {repr(v): float(i) for i, v in enumerate(values)}
    return places, [verbatim(typed_value(key, v)) for v in values], False


def _is_wide(values: Sequence[float]) -> bool:
    least = min((abs(v) for v in values if v), default=1.0)
    return max(map(abs, values)) > SPAN * least


def whiskers(estimates: Sequence[Estimate]) -> np.ndarray | None:
    """[2, points] intervals as `errorbar` takes them, cut at 0, since no score, byte or second is below; None
    where no estimate has an interval."""
    halves = np.array([e.half or 0.0 for e in estimates])
    below = np.minimum(halves, [max(0.0, e.mean) for e in estimates])
    return np.array([below, halves]) if halves.any() else None


def _draw(ax: Axes, points: list[tuple[float, Estimate]], name: str, style: dict[str, Any]) -> None:
    if points:
        x, estimates = zip(*points)
        y, style = [e.mean for e in estimates], {"linewidth": 1.6, "markersize": 5, "label": name, **style}
        ax.errorbar(x, y, whiskers(estimates), capsize=2, clip_on=False, **style)


def _panels(count: int, names: Collection[str], grey: Collection[str]) -> tuple[Figure, list[Axes]]:
    """So many panels side by side, and room for their names as `_legend` writes them."""
    told = [wrapped(name, WIDE) for name in names if name not in grey] + [_others(grey)]
    lines = sum(name.count("\n") + 1.4 for name in told)
    figure = Figure(figsize=(3.4 * count + 2.4, max(3.9, 0.15 * lines + 0.6)), layout="constrained")
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def _legend(figure: Figure, ax: Axes, grey: Collection[str]) -> None:
    """Names beside the panels; those of what is grey together, as the last."""
    found = [(handle, label) for handle, label in zip(*ax.get_legend_handles_labels()) if label not in grey]
    if grey:
        found.append((Line2D([], [], **BACKGROUND), _others(grey)))
    handles = [handle for handle, _ in found]
    told = [wrapped(label, WIDE) for _, label in found]
    figure.legend(handles, told, loc="outside right upper", frameon=False, fontsize=9, handlelength=3.2)


def _others(grey: Collection[str]) -> str:
    """The names of what is grey; where these would take more than TOLD lines, how many they are."""
    told = wrapped(f"others: {listed([*grey])}", WIDE)
    return told if told.count("\n") < TOLD else counted(len(grey), "other row")


def _with_value(key: str | None, group: Group) -> Group:
    """The group with the key's value in its label, where it has one."""
    if key is None or key not in group.first.keys:
        return group
    value = knob(key.removeprefix("system."), group.first.keys[key])
    return replace(group, label=f"{group.label} {value}")
