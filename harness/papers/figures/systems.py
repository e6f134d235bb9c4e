"""Rows of an experiment on one graph: the score against its cost with the Pareto front, the score over
epochs, time and bytes, and where an epoch's time goes.

In the curves the rows of the front, exact training and the control have colours; the others are grey. Exact
training stands there in both forms, since only one side caching the static features is no comparison, and so
does the control, whose remote rows are zero: a system no better than it uses no remote information.
"""

from matplotlib.figure import Figure

from harness.results.report import plot, scatter, style, sweep_plots
from harness.results.report.groups import Group
from harness.results.report.table import Section, only_section


def draw(groups: list[Group]) -> dict[str, Figure]:
    section = only_section(groups)
    chosen = style.strokes_of(leading(section))
    strokes = {group.label: chosen.get(group.label, style.BACKGROUND) for group in section.groups}
    return {"cost": sweep_plots.pareto(section), **plot.pictures(section, strokes)}


def leading(section: Section) -> list[str]:
    """The labels of exact training, of the control, and of the rows on a front of score against a cost."""
    found = [group.label for group in section.groups if group.first.role in ("reference", "control")]
    for cost in section.compared[1:]:
        found += [point.group.label for point in scatter.points(cost, section) if point.on_front]
    return list(dict.fromkeys(found))
