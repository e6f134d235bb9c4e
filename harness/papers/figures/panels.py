"""What several figures share: a metric by epoch, panels side by side, a title that says what was drawn."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.results.report.columns import leading, score_name
from harness.results.report.curves import AXES, band
from harness.results.report.groups import Group, Run
from harness.results.report.style import row_of, stroke, strokes_of, title

INSIDE = 10  # names that fit among the lines; where there are more, they stand beside the panels


def by_epoch(run: Run, name: str, how: str = "sum") -> pd.DataFrame:
    """A metric by epoch (rows, 0-based) and layer (columns), over workers by `how` ("sum", "mean", "max")."""
    metrics = run.trace.metrics
    return metrics[metrics["name"] == name].groupby(["epoch", "layer"])["value"].agg(how).unstack("layer")


def series(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The epochs, and by epoch a metric that belongs to no layer: its mean over workers."""
    values = by_epoch(run, name, "mean").iloc[:, 0]
    return values.index.to_numpy(), values.to_numpy()


def knob(group: Group, key: str):
    """A value of the group's config by its dotted key; None where the config lacks it."""
    return group.first.keys.get(key)


def panels(
    groups: list[Group],
    what: str,
    columns: int,
    rows: int = 1,
    height: float = 3.6,
    width: float = 9.6,
    **share,
) -> tuple[Figure, np.ndarray]:
    """A titled figure of rows x columns axes; below the title the graph and the workers."""
    figure = Figure(figsize=(width, 0.6 + height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **share)
    title(figure, what, groups[0].dataset, groups, "means over seeds")
    return figure, axes


def line(ax: Axes, x, y, label: str, index: int, **style) -> None:
    """A line in the palette's colour of `index`; past the palette's end with another stroke."""
    ax.plot(x, y, label=label, **{"linewidth": 1.7, **stroke(index), **style})


# A line has its marker a few times, as far apart as a quarter of the panel: a colour may serve two systems.
MARKED: dict[str, Any] = {"markevery": 0.25, "markersize": 5}


def accuracy_panels(
    groups: list[Group],
    what: str,
    columns: tuple[str, ...],
    name: Callable[[Group], str],
    index: Callable[[Group], int] | None = None,
) -> Figure:
    """The leading score over each of `columns` of `harness.results.report.curves.curve`, side by side. A line
    has the stroke of its row (`style.strokes_of`), or, where `index` is given, that of its index. A group in
    which a seed diverged says so, and its line ends in a cross."""
    score = leading(groups)
    figure, axes = panels(groups, what, len(columns), height=4.0, sharey=True)
    strokes = strokes_of(groups)
    for ax, column in zip(axes[0], columns):
        for group in groups:
            rows, label = band(group, score), name(group)
            style = {**(strokes[row_of(group)] if index is None else stroke(index(group))), **MARKED}
            if group.diverged:
                label, style = f"{label} (diverged)", {**style, "marker": "x", "markevery": slice(-1, None)}
            ax.plot(rows[column], rows["score"], label=label, linewidth=1.7, **style)
        axis = next(axis for axis in AXES if axis.column == column)
        ax.set_xlabel(axis.label[groups[0].clock].replace(" (", "\n("))
    axes[0, 0].set_ylabel(f"test {score_name(groups)}, %")
    last = axes[0, -1]
    if len(groups) <= INSIDE:
        last.legend(frameon=False)
    else:
        handles, labels = last.get_legend_handles_labels()
        beside = "outside center right"  # which matplotlib's stubs lack
        figure.legend(handles, labels, loc=beside, frameon=False)  # type: ignore[call-overload]
    return figure
