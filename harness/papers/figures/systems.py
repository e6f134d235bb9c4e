"""Rows of an experiment on one graph: the score against its cost with the Pareto front, the score over
epochs, time and bytes, and where an epoch's time goes.

Where there are many rows, those of the front, exact training and the control have colours; the others are
grey. Exact training is shown in both forms, since systems must not be compared where only one side caches the
static features. So is the control, whose remote rows are zero: a system no better than it uses no remote
information.
"""

from matplotlib.figure import Figure

from harness.results.report import plot, style, sweep_plots
from harness.results.report.groups import Group
from harness.results.report.table import only_section


def draw(groups: list[Group]) -> dict[str, Figure]:
    section = only_section(groups)
    return {"cost": sweep_plots.pareto(section), **plot.pictures(section, style.strokes_of(section.groups))}
