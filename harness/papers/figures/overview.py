"""Bytes per epoch and leading score of every row of an experiment on one graph, a line per row.

Dashed lines are the scores of exact training and of the control, whose remote rows are zero. A system to the
left of exact training's line loses accuracy; a system no better than the control makes no use of remote rows.
"""

from matplotlib.figure import Figure

from harness.results.report.groups import Group
from harness.results.report.style import COLOURS, title, unsaid, verbatim
from harness.results.report.sweep_plots import axis_name
from harness.results.report.table import estimate_of, only_section

ROLES = {"reference": COLOURS[1], "control": COLOURS[2]}


def draw(groups: list[Group]) -> Figure:
    section = only_section(groups)
    score, sent = section.compared[:2]
    rows = sorted(section.groups, key=lambda group: -estimate_of(group, sent).mean)
    figure = Figure(figsize=(8.6, 0.3 * len(rows) + 1.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for ax, column in zip(panels, (sent, score)):
        for at, group in enumerate(rows):
            value = estimate_of(group, column)
            colour = ROLES.get(group.first.role, COLOURS[0])
            if column is score and group.first.role in ROLES:
                ax.axvline(value.mean, color=colour, linestyle="--", linewidth=1, zorder=0)
            ax.errorbar(value.mean, at, xerr=value.half, fmt="o", color=colour, capsize=3, label=group.label)
        ax.set_xlabel(axis_name(column))
    panels[0].set_xlim(left=0)
    panels[0].set_yticks(range(len(rows)), [verbatim(group.label) for group in rows])
    bars = "bars: 95 % interval over seeds"
    title(figure, "Bytes sent and accuracy", section.dataset, section.groups, bars, unsaid(section.groups))
    return figure
