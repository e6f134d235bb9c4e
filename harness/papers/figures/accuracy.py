"""The leading score of each row over epochs, time or bytes, side by side: for experiments of any kind."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from harness.papers.figures.panels import accuracy_panels
from harness.results.report.columns import leading
from harness.results.report.curves import band
from harness.results.report.groups import Group


def draw(
    groups: list[Group], says: str, over: Sequence[str] = ("epoch", "megabytes"), log: bool = False
) -> Figure:
    """A panel per column of `harness.results.report.curves.curve` in `over`; a line per row of the
    experiment.

    log   whether these axes are logarithmic; names then stand in the order in which their lines end on the
          first of them, the longest first
    """

    def ends(group: Group) -> float:
        return band(group, leading(groups))[over[0]].iloc[-1]

    ordered = sorted(groups, key=lambda group: group.label)
    if log:
        ordered.sort(key=ends, reverse=True)
    figure = accuracy_panels(ordered, says, tuple(over), lambda group: group.label)
    for axes in figure.axes if log else ():
        axes.set_xscale("log")
    return figure
