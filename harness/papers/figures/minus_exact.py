"""How far each system's leading score is from exact training's over a key, a panel per value of other
keys: for experiments of any kind."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from harness.papers.figures.panels import knob, line, panels
from harness.results.report import groups as by_group
from harness.results.report.columns import LEADING, leading, score_name
from harness.results.report.compare import paired, reference_of
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group


def draw(
    groups: list[Group], says: str, over: str, panel: Sequence[str], label: str = "", last: bool = False
) -> Figure:
    """The leading score less that of exact training at the same keys, in points, paired over seeds, with 95 %
    intervals; a line per system. What diverged has no score, and no point.

    over     a key by its dotted name, as "dataset.labels_per_class"; a run without one has its usual value
    panel    keys by their dotted names, whose values name a panel
    label    what the axis of `over` is called; "": the key
    last     the score in the last epoch, instead of that at the best validation
    """
    score = leading(groups)
    titles = list(dict.fromkeys(_title(group, panel) for group in groups))
    names = list(dict.fromkeys(group.first.name for group in groups if group.first.role != "reference"))
    word = f"{over.rpartition('.')[2]}="  # which is on the axis
    graph = " ".join(said for said in groups[0].dataset.split() if not said.startswith(word))
    figure, axes = panels(
        [replace(group, dataset=graph) for group in groups], says, len(titles), height=4.0, sharey=True
    )
    for ax, title in zip(axes[0], titles):
        ax.axhline(0, color="#666666", linewidth=1)
        for index, name in enumerate(names):
            members = [g for g in groups if g.first.name == name and _title(g, panel) == title]
            points = sorted(_points(members, groups, over, score, last).items())
            x, y = [at for at, _ in points], [each.mean for _, each in points]
            line(ax, x, y, name, index, marker="o", markersize=4)
            drawn = ax.lines[-1]
            half = [each.half or 0.0 for _, each in points]
            style = {"fmt": "none", "ecolor": drawn.get_color(), "capsize": 3, "label": f"_{name}"}
            _, caps, bars = ax.errorbar(x, y, half, **style)
            # Side by side, so that intervals do not lie on each other.
            aside = offset_copy(ax.transData, figure, x=4 * (index - (len(names) - 1) / 2), units="points")
            for artist in (drawn, *caps, *bars):
                artist.set_transform(aside)
        ax.set_xscale("log")
        ax.set_xticks(sorted({_value(group, over) for group in groups}))
        ax.minorticks_off()
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel(label or over)
        ax.set_title(title, loc="left", fontsize=10)
    when = " in the last epoch" if last else ""
    axes[0, 0].set_ylabel(f"test {score_name(groups)}{when}\nminus exact training's, points")
    axes[0, -1].legend(frameon=False)
    return figure


def _points(
    members: list[Group], groups: list[Group], over: str, score: str, last: bool
) -> dict[Any, Estimate]:
    """By the value of `over` how far each group is from exact training at its own keys."""
    found = {}
    for group in members:
        exact = reference_of(group, groups, elsewhere=True)
        if exact is not None and not group.diverged and not exact.diverged:
            found[_value(group, over)] = paired(group, exact, LEADING[score][last].value)
    return found


def _title(group: Group, keys: Sequence[str]) -> str:
    """As "optimiser=sgd momentum=0.9"."""
    classes = {key for key in keys if key.endswith("._target_")}
    return " ".join(
        by_group.knob(key if key in classes else key.rpartition(".")[2], knob(group, key))
        for key in keys
        if knob(group, key) is not None
    )


def _value(group: Group, key: str) -> Any:
    found = knob(group, key)
    return by_group.USUAL.get(key) if found is None else found
