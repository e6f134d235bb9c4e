"""Numbers of runs over one of their knobs, a panel per number and a line per value of another knob: for
experiments of any kind."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from harness.papers.claims.measure import measure_of
from harness.papers.figures.panels import knob, line, panels
from harness.results.report.groups import Group


def draw(
    groups: list[Group], says: str, over: str, by: str, measures: Mapping[str, Any], label: str = ""
) -> Figure:
    """Means over seeds.

    over       a knob by its dotted name, as "system.cache"
    by         another, whose values name the lines
    measures   by what its axis is called each number (`harness.papers.claims.measure`)
    label      what the axis of `over` is called; "": the knob
    """
    figure, axes = panels(groups, says, len(measures), height=3.8, width=min(9.6, 6.4 * len(measures)))
    for ax, (called, given) in zip(axes[0], measures.items()):
        value = measure_of(given).value
        for index, name in enumerate(dict.fromkeys(knob(group, by) for group in groups)):
            mine = sorted((g for g in groups if knob(g, by) == name), key=lambda g: knob(g, over))
            means = [float(np.mean([value(run, float("nan")) for run in group.runs])) for group in mine]
            line(ax, [knob(g, over) for g in mine], means, str(name), index, marker="o", markersize=4)
        ax.set_xlabel(label or over)
        ax.set_ylabel(called)
        ax.set_ylim(bottom=0)
    axes[0, 0].legend(frameon=False)
    return figure
