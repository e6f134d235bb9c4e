"""Our value of each claim beside the published one, as a picture."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from harness.papers.claims import table
from harness.papers.claims.evaluate import Result
from harness.results.report.style import COLOURS, STROKES

OURS, PUBLISHED = COLOURS[0], COLOURS[1]
NEUTRAL: dict[str, Any] = {
    "color": "#666666",
    "linestyle": STROKES[1],
    "linewidth": 1,
    "label": "no difference",
}
COLUMNS = 3  # of series
# inches: height of a panel of a series, and of what stands below the rows of another panel
SERIES, AXIS = 1.7, 0.55
LINE, LETTERS = 0.17, 52  # height in inches of a line of a row's text, and letters per line
FAR = 30.0  # times the least value: a panel that reaches farther is logarithmic


def draw(title: str, results: Sequence[Result], graphs: Sequence[str]) -> Figure | None:
    """A panel per unit of the claims of one experiment, with a row for each that has a value of ours: a dot
    with its 95 % interval, the published number or range, and no difference as a dashed line; below them a
    panel per series of two or more cells. None where nothing has a value."""
    if not (known := _drawn(results)):
        return None
    units: dict[str, list[Result]] = {}
    series: dict[str, list[Result]] = {}
    for result in known:
        if "{}" in result.claim.series:  # cells that differ in their entry alone say the same
            series.setdefault(result.claim.series, []).append(result)
        else:
            units.setdefault(result.claim.unit, []).append(result)
    for cells in [cells for cells in series.values() if len(cells) == 1]:  # no series after all
        units.setdefault(cells[0].claim.unit, []).extend(series.pop(cells[0].claim.series))
    # The layout: panels of units on top, as high as their rows' text, and panels of series below.
    below_each = -(-len(series) // COLUMNS)
    panels = [AXIS + LINE * sum(map(_lines, rows)) for rows in units.values()]
    heights = [height for height in (sum(panels), SERIES * below_each) if height]
    figure = Figure(figsize=(9.6, 1.0 + sum(heights)), layout="constrained")
    where = "; ".join(graphs)
    twins = " (twins: synthetic graphs)" if any(graph.startswith("twin/") for graph in graphs) else ""
    seeds = max(result.ours.n for result in known if result.ours is not None)
    below = f"{where}{twins}; {seeds} {'seeds, 95 % intervals' if seeds > 1 else 'seed'}"
    figure.suptitle(f"{title}\n{textwrap.fill(below, 110)}", x=0.01, ha="left", fontsize=10)
    parts = iter(figure.subfigures(len(heights), height_ratios=heights, squeeze=False)[:, 0])
    if units:
        grid = next(parts).subplots(len(units), squeeze=False, height_ratios=panels)[:, 0]
        for ax, (unit, rows) in zip(grid, units.items()):
            _panel(ax, unit, rows)
    if series:
        grid = next(parts).subplots(below_each, COLUMNS, squeeze=False).ravel()
        for ax, (says, cells) in zip(grid, series.items()):
            _series(ax, says, cells)
        for ax in grid[len(series) :]:
            ax.remove()
    # One legend for all panels, with each label once.
    named: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            named.setdefault(label, handle)
    figure.legend(
        list(named.values()), list(named), loc="outside lower right", ncols=3, frameon=False, fontsize=9
    )
    return figure


def described(results: Sequence[Result]) -> str:
    """What `draw` draws of these results in words, a line for each: they go into the picture's file."""
    return "\n".join(
        f"{each.verdict.word}: {each.says}: here {table.value(each.ours)}"
        + (f", published {said}" if (said := table.said(each.claim.published)) else "")
        for each in _drawn(results)
    )


def _drawn(results: Sequence[Result]) -> list[Result]:
    """Those with a value; a part that a figure and a claim of a paper both say is drawn once."""
    return list({result.says: result for result in results if result.ours is not None}.values())


def _said(result: Result) -> str:
    return textwrap.fill(f"{result.verdict.word}: {result.says}", LETTERS)


def _lines(result: Result) -> int:
    return _said(result).count("\n") + 2


def _panel(ax: Axes, unit: str, results: Sequence[Result]) -> None:
    """A row per result, from the top."""
    ends = np.cumsum([_lines(result) for result in results])
    rows = [end - _lines(result) / 2 for end, result in zip(ends, results)]
    shown, ranges = [], []
    for row, result in zip(rows, results):
        ours, said, neutral = result.ours, result.claim.published, result.claim.drawn_neutral
        assert ours is not None
        shown.append(ours.mean)
        if said is not None:
            low, high = (said[0], said[-1]) if isinstance(said, list) else (said, said)
            shown += [end for end in (low, high) if math.isfinite(end)]
            if low == high:
                ax.plot([low], [row], "D", color=PUBLISHED, markersize=7, label="published")
            else:
                ranges.append((row, low, high))
        if neutral is not None:
            shown.append(neutral)
            ends_of_line = [row - 0.5 * _lines(result), row + 0.5 * _lines(result)]
            ax.plot([neutral] * 2, ends_of_line, **NEUTRAL)
        bars = [ours.half or 0]
        ax.errorbar([ours.mean], [row], xerr=bars, fmt="o", color=OURS, capsize=4, markersize=6, label="here")
    ax.set_yticks(rows, [_said(result) for result in results], fontsize=8)
    ax.set_ylim(ends[-1], 0)
    if min(shown) > 0 and max(shown) > FAR * min(shown):
        ax.set_xscale("log")
    # At least a tenth of our value to both sides, by which a published one may be off.
    near = [(1 + sign) * result.ours.mean for result in results if result.ours for sign in (-0.1, 0.1)]
    ax.update_datalim([(x, rows[0]) for x in (*near, *shown)])
    ax.autoscale_view(scaley=False)
    ax.margins(x=0.1)
    left, right = ax.get_xlim()  # a range with one end alone reaches to the panel's edge
    for row, low, high in ranges:
        inside = [max(low, left), min(high, right)]
        ax.plot(inside, [row] * 2, color=PUBLISHED, linewidth=9, alpha=0.3, solid_capstyle="butt",
                label="published")  # fmt: skip
    ax.set_xlim(left, right)
    ax.set_xlabel(unit)
    ax.grid(visible=False, axis="y")


def _series(ax: Axes, says: str, cells: Sequence[Result]) -> None:
    """One panel of a series: our values and the published ones by step."""
    steps = [cell.claim.step for cell in cells]
    said = [cell.claim.published for cell in cells]
    ours = [cell.ours for cell in cells if cell.ours is not None]
    if all(isinstance(number, int | float) for number in said):
        ax.plot(steps, said, "D", color=PUBLISHED, markersize=4, label="published")
    neutrals = {each for cell in cells if (each := cell.claim.drawn_neutral) is not None}
    for neutral in neutrals:
        ax.axhline(neutral, **NEUTRAL)
    halves = [each.half or 0 for each in ours]
    ax.errorbar(
        steps, [each.mean for each in ours], yerr=halves, fmt="o", color=OURS, capsize=2, markersize=3,
        label="here",
    )  # fmt: skip
    if neutrals == {1} and min(each.mean for each in ours) > 0:  # ratios
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel(textwrap.fill(cells[0].claim.unit, 26), fontsize=6)
    ax.tick_params(labelsize=7)
    if max(map(len, steps)) > 6:
        ax.tick_params(axis="x", labelrotation=30, labelsize=6)
    ax.margins(y=0.1)  # no marker is cut at the edge
    what = says
    for named, left in (" on {},", ","), (", {}", ""), ("{}, ", ""), ("{}: ", ""), ("{}", "each"):
        what = what.replace(named, left)
    ax.set_title(textwrap.fill(what, 44), loc="left", fontsize=7)
