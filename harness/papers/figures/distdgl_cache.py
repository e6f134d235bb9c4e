"""PaGraph's static cache of features inside DistDGL: which share of the other workers' rows that are inputs
is found in it, by how the rows are chosen and how many.

From the metrics `remote` and `pulled` after the first epoch, when the policy `frequency` knows its rows. A
row that is pulled in every step (`features=refetch`) leaves something to keep.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from harness.papers.figures.panels import by_epoch, knob, line, panels
from harness.results.report.groups import Group, Run

KNOWN = 1  # the first epoch in which every policy has chosen


def hits_percent(run: Run) -> float:
    """Of the inputs that other workers own, those that were not pulled, after the first epoch."""
    remote, pulled = (by_epoch(run, name).loc[KNOWN:].to_numpy().sum() for name in ("remote", "pulled"))
    return 100 * (1 - pulled / remote) if remote else 0.0


def draw(groups: list[Group]) -> Figure:
    figure, axes = panels(groups, "Remote inputs found in the cache", 1, height=3.8, width=6.4)
    ax = axes[0, 0]
    for number, policy in enumerate(dict.fromkeys(knob(group, "system.policy") for group in groups)):
        mine = [group for group in groups if knob(group, "system.policy") == policy]
        mine = sorted(mine, key=lambda group: knob(group, "system.cache"))
        rates = [sum(map(hits_percent, group.runs)) / len(group.runs) for group in mine]
        shares = [100 * knob(group, "system.cache") for group in mine]
        line(ax, shares, rates, policy, number, marker="o", markersize=4)
    ax.set_xlabel("cache, % of other workers' vertices")
    ax.set_ylabel("hit rate, %")
    ax.set_ylim(bottom=0)
    ax.legend(frameon=False)
    return figure
