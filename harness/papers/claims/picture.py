"""Our value of each claim beside the published one, as a picture."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from harness.papers.claims.evaluate import Result
from harness.results.report.style import COLOURS, STROKES

OURS, PUBLISHED = COLOURS[0], COLOURS[1]
COLUMNS = 3  # of series
SINGLE, SERIES = 0.95, 1.7  # inches of height


def draw(title: str, results: Sequence[Result], graphs: Sequence[str]) -> Figure | None:
    """A panel per claim of one experiment with a value of ours: a dot with its 95 % interval, the published
    number or range, and no difference as a dotted line; below them one per series of a table's cells. None
    where nothing has a value.
    """
    # What a figure and a claim of a paper say alike is drawn once.
    known = list({result.says: result for result in results if result.ours is not None}.values())
    if not known:
        return None
    single = [result for result in known if not result.series]
    series: dict[str, list[Result]] = {}
    for result in known:
        if result.series:
            series.setdefault(result.series, []).append(result)
    below_each = -(-len(series) // COLUMNS)
    heights = [height for height in (SINGLE * len(single), SERIES * below_each) if height]
    figure = Figure(figsize=(9.6, 1.0 + sum(heights)), layout="constrained")
    where = "; ".join(graphs)
    twins = " (twins: synthetic graphs)" if any(graph.startswith("twin/") for graph in graphs) else ""
    seeds = max(result.ours.n for result in known if result.ours is not None)
    below = f"{where}{twins}; {seeds} {'seeds, 95 % intervals' if seeds > 1 else 'seed'}"
    figure.suptitle(f"{title}\n{textwrap.fill(below, 110)}", x=0.01, ha="left", fontsize=10)
    parts = iter(figure.subfigures(len(heights), height_ratios=heights, squeeze=False)[:, 0])
    if single:
        for ax, result in zip(next(parts).subplots(len(single), squeeze=False)[:, 0], single):
            _panel(ax, result)
    if series:
        grid = next(parts).subplots(below_each, COLUMNS, squeeze=False).ravel()
        for ax, (says, cells) in zip(grid, series.items()):
            _series(ax, says, cells)
        for ax in grid[len(series) :]:
            ax.remove()
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for ax in figure.axes[1:]:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(handles, labels, loc="outside lower right", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel(ax: Axes, result: Result) -> None:
    ours, said = result.ours, result.published
    assert ours is not None
    if said is not None:
        low, high = (said[0], said[-1]) if isinstance(said, list) else (said, said)
        if low == high:
            ax.plot([low], [0], "D", color=PUBLISHED, markersize=7, label="published")
        else:
            ax.axvspan(low, high, color=PUBLISHED, alpha=0.25, label="published")
    if result.neutral is not None:
        ax.axvline(result.neutral, color="#666666", linestyle=STROKES[1], linewidth=1, label="no difference")
    ax.errorbar(
        [ours.mean], [0], xerr=[ours.half or 0], fmt="o", color=OURS, capsize=4, markersize=6, label="here"
    )
    ax.set_yticks([])
    ax.set_ylim(-1, 1)
    # At least a tenth of our value to both sides, by which a published one may be off.
    near = [ours.mean - 0.1 * abs(ours.mean), ours.mean + 0.1 * abs(ours.mean)]
    ax.update_datalim([(x, 0) for x in near])
    ax.autoscale_view()
    ax.margins(x=0.15)
    ax.ticklabel_format(axis="x", useOffset=False)
    ax.set_title(f"{result.verdict.word}: {result.says}", loc="left", fontsize=9)
    ax.grid(visible=False, axis="y")


def _series(ax: Axes, says: str, cells: Sequence[Result]) -> None:
    """Ours and what is published by step."""
    steps = [cell.step for cell in cells]
    ours = [cell.ours for cell in cells if cell.ours is not None]
    if all(isinstance(cell.published, int | float) for cell in cells):
        ax.plot(
            steps, [cell.published for cell in cells], "D", color=PUBLISHED, markersize=4, label="published"
        )
    for neutral in {cell.neutral for cell in cells if cell.neutral is not None}:
        ax.axhline(neutral, color="#666666", linestyle=STROKES[1], linewidth=1, label="no difference")
    halves = [each.half or 0 for each in ours]
    ax.errorbar(
        steps, [each.mean for each in ours], yerr=halves, fmt="o", color=OURS, capsize=2, markersize=3,
        label="here",
    )  # fmt: skip
    neutrals = {cell.neutral for cell in cells} - {None}
    if neutrals == {1} and min(each.mean for each in ours) > 0:  # ratios
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter(NullFormatter())
    ax.tick_params(labelsize=7)
    if max(map(len, steps)) > 6:
        ax.tick_params(axis="x", labelrotation=30, labelsize=6)
    what = says.replace(", {}", "").replace("{}, ", "").replace("{}: ", "")
    ax.set_title(textwrap.fill(what, 44), loc="left", fontsize=7)
