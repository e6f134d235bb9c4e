"""The leading score against one cost: every row a point, the Pareto front drawn and named."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from scipy.optimize import isotonic_regression

from harness.results.report.columns import Column
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group
from harness.results.report.style import row_of, strokes_of, told_apart
from harness.results.report.sweep_plots import axis_name, front_of
from harness.results.report.table import Section, estimate_of

SIZE = (5.2, 3.9)  # inches: readable on a telephone, and two of them side by side
LINE = 0.17  # inches of a line of text
GREY = "#8A8F94"
WIDE = 5.0  # the cost axis is logarithmic where the largest cost is more than so many times the least
FLOOR = 2.0  # points of score: the least distance of `lowest` below the named points
FEW = 8  # with at most so many rows each has a letter
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Point:
    """A row in a picture.

    gid        the id of its point in the picture
    named      whether it is on a front of its section, is the cheapest exact training or is the control
    letter     its letter in all pictures of the section: of named rows, and of all where there are at most
               FEW; else ""
    says       its name and values, in words
    on_front   whether it is on the front of this picture
    """

    group: Group
    gid: str
    named: bool
    letter: str
    says: str
    cost: Estimate
    score: Estimate
    on_front: bool


def points(cost: Column, section: Section) -> list[Point]:
    """The rows that have a score, by falling score. A row's letter is the same for all costs of a section."""
    score, *costs = section.compared
    found = [
        (group, name, estimate_of(group, cost), estimate_of(group, score))
        for group, name in zip(section.groups, told_apart(section.groups))
    ]
    found = sorted(
        (each for each in found if not math.isnan(each[3].mean)),
        key=lambda each: (-each[3].mean, estimate_of(each[0], costs[0]).mean, each[1]),
    )
    fronts = {each.key: {id(section.groups[i]) for i in front_of(each, section)} for each in (*costs, cost)}
    called = set().union(*fronts.values()) | {id(g) for g in section.groups if g.first.role == "control"}
    exact = [group for group, *_ in found if group.first.role == "reference"]
    for each in costs if exact else ():  # of several rows of exact training, the cheapest is named
        called.add(id(min(exact, key=lambda group: estimate_of(group, each).mean)))
    letters, made = iter(LETTERS), []
    for number, (group, name, c, s) in enumerate(found):
        on_front = id(group) in fronts[cost.key]
        says = f"{name}: {score.heading} {s:{score.digits}}, {cost.heading} {c:{cost.digits}}"
        named = id(group) in called
        letter = next(letters, "") if named or len(found) <= FEW else ""
        made.append(Point(group, f"point-{number}", named, letter, says, c, s, on_front))
    return made


def over_cost(cost: Column, section: Section) -> Figure:
    """The picture for one of the section's costs, without a title. Bars are 95 % intervals over seeds. Exact
    training is a square, the control a diamond; rows without a letter are grey; a triangle at the lower edge
    is a row whose score lies below the picture. Letters are those of `points`."""
    score, shown = section.compared[0], points(cost, section)
    figure = Figure(figsize=SIZE, layout="constrained")
    ax = figure.subplots()
    floor = lowest(shown)
    strokes = strokes_of(section.groups)
    ends = []
    for point in shown:
        colour = strokes[row_of(point.group)]["color"] if point.letter else GREY
        role = point.group.first.role
        x, y = point.cost, point.score
        strong = 0.9 if point.on_front else 0.3
        bars: dict[str, Any] = {
            "fmt": "none",
            "ecolor": colour,
            "elinewidth": 1,
            "capsize": 2,
            "alpha": strong,
        }
        if y.mean >= floor:
            ax.errorbar(x.mean, y.mean, xerr=x.half, yerr=y.half, zorder=1 + point.on_front, **bars)
        below = y.mean < floor
        ax.plot(
            x.mean,
            max(y.mean, floor),
            "v" if below else {"reference": "s", "control": "D"}.get(role, "o"),
            color=colour,
            markersize=7 if point.letter else 5,
            markerfacecolor="white" if role == "control" else colour,
            zorder=3 + point.on_front,
            gid=point.gid,
        )
        if point.letter:
            ends.append((x.mean, max(y.mean, floor), point.letter, colour))
    # The front, then the axes and the letters at the right edge.
    line = sorted((p.cost.mean, p.score.mean) for p in shown if p.on_front)
    if line:
        ax.step(*zip(*line), where="post", color="#555555", linewidth=1.2, zorder=0)
    ax.set_xlabel(axis_name(cost, section))
    ax.set_ylabel(axis_name(score, section))
    costs = [p.cost.mean for p in shown]
    if costs and 0 < WIDE * min(costs) < max(costs):
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_minor_locator(NullLocator())
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    _limits(ax, shown, floor)
    _letter(ax, ends)
    return figure


def lowest(shown: list[Point]) -> float:
    """The score below which points are drawn as triangles at the lower edge, so that failed rows do not
    squeeze the others together. It lies below the lowest named point by the range of the named points, at
    least by FLOOR; -inf without named points."""
    named = [point.score.mean for point in shown if point.named]
    return min(named) - max(max(named) - min(named), FLOOR) if named else -math.inf


def _limits(ax: Axes, shown: list[Point], floor: float) -> None:
    """Set the limits of the axes, so that they hold all points and their bars. Bars of few seeds can be far
    longer than the picture, so bars are cut as `_reach` says."""
    if not shown:
        return
    low, high = _reach([p.score for p in shown if p.score.mean >= floor], 5.0)
    low = min(low, max(floor, min(p.score.mean for p in shown)))
    ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))
    least, most = _reach([p.cost for p in shown], 0.1 * max(p.cost.mean for p in shown))
    if ax.get_xscale() == "log":
        least = max(least, min(p.cost.mean for p in shown) / 1.3)
        ax.set_xlim(least / 1.1, most * 1.2)
    else:
        ax.set_xlim(max(0.0, least - 0.05 * (most - least)), most + 0.05 * (most - least))


def _reach(values: list[Estimate], least: float) -> tuple[float, float]:
    """The lowest and the highest end of the bars, cut at the range of the means (or `least`, where that is
    more) beyond the lowest and the highest mean; and at least a tenth of it beyond them."""
    means = np.array([value.mean for value in values])
    halves = np.array([value.half or 0.0 for value in values])  # None: of one seed
    room = max(np.ptp(means), least)
    low = max((means - halves).min(), means.min() - room)
    high = min((means + halves).max(), means.max() + room)
    return min(low, means.min() - 0.1 * room), max(high, means.max() + 0.1 * room)


def _letter(ax: Axes, ends: list[tuple[float, float, str, str]]) -> None:
    """Letters at the right edge, in the order of their points' heights, each with a line to its point."""
    if not ends:
        return
    low, high = ax.get_ylim()
    step = LINE / (0.8 * SIZE[1])  # of the axes' height
    rising = ends[::-1]
    steps = step * np.arange(len(rising))
    # Least squares under "each letter at least a line above the one below".
    heights = isotonic_regression([(y - low) / (high - low) for _, y, _, _ in rising] - steps).x + steps
    heights -= max(0.0, heights[-1] - 1.0)
    for (x, y, letter, colour), height in zip(rising, heights):
        ax.annotate(
            letter,
            (x, y),
            xytext=(1.02, height),
            textcoords="axes fraction",
            va="center",
            fontsize=9,
            fontweight="bold",
            color="#222222",
            arrowprops={"arrowstyle": "-", "color": colour, "alpha": 0.6, "linewidth": 0.8, "shrinkB": 4},
        )
