"""Training loss, and below it the leading score of the validation vertices, over training time."""

from matplotlib.figure import Figure

from harness.papers.figures.panels import MARKED, panels
from harness.results.report.columns import leading, score_name
from harness.results.report.curves import AXES, band
from harness.results.report.groups import Group
from harness.results.report.style import row_of, strokes_of


def draw(groups: list[Group], says: str) -> Figure:
    """A line per row of the experiment; means over seeds."""
    score = leading(groups)
    figure, axes = panels(groups, says, 1, 2, height=2.8, sharex=True)
    strokes = strokes_of(groups)
    for ax, column in zip(axes[:, 0], ("loss", "val")):
        for group in groups:
            rows = band(group, score)
            look = {**strokes[row_of(group)], **MARKED}
            ax.plot(rows["seconds"], rows[column], label=group.label, linewidth=1.7, **look)
    above, below = axes[:, 0]
    above.set_ylabel("training loss")
    below.set_ylabel(f"validation {score_name(groups)}, %")
    below.set_xlabel(AXES[0].label[groups[0].clock])
    above.legend(frameon=False, fontsize=9)
    return figure
