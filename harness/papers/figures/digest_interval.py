"""DIGEST's Fig. 6: the interval N between synchronisations, with rows as they are and with rows of length 1.

Algorithm 1 divides every row by its length (line 11), which `model.norm=l2` does for every system alike;
comparisons are without it. The paper's text gives no number of Fig. 6, only which interval is best: that
stands in the legend.
"""

from harness.papers.claims.published import entries
from harness.papers.figures.panels import accuracy_panels, knob
from harness.results.report.style import COLOURS

INTERVALS = (1, 5, 10, 20)
SAID = entries()["digest_fig6"].published
PUBLISHED = {SAID["best_interval"]: "best", **dict.fromkeys(SAID["worse"], "worse")}


def draw(groups):
    groups = sorted(groups, key=index)
    return accuracy_panels(groups, "Accuracy by interval", ("seconds", "megabytes"), name, index)


def index(group) -> int:
    """A colour per interval; rows of length 1 with a stroke of their own."""
    place = INTERVALS.index(knob(group, "system.interval"))
    return place + len(COLOURS) * (knob(group, "model.norm") == "l2")


def name(group) -> str:
    interval = knob(group, "system.interval")
    if knob(group, "model.norm") == "l2":
        return f"N = {interval}, rows normalised"
    return f"N = {interval}" + (f" (paper: {PUBLISHED[interval]})" if interval in PUBLISHED else "")
