"""The leading score against the bytes of a whole run: a point per row, and the front of the rows whose score
is told to be above that of every row on it that sends less. A line joins a system's default setting to its
tuned one."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from harness.results import track
from harness.results.report.columns import ALL, score_name
from harness.results.report.compare import change, fixed_of
from harness.results.report.groups import Group
from harness.results.report.style import (
    BACKGROUND,
    listed,
    names_of,
    row_of,
    strokes_of,
    title,
    unsaid,
    verbatim,
)
from harness.results.report.sweep_plots import whiskers
from harness.results.report.table import Section, competes, estimate_of, only_section

LINE = 130  # characters of a line of names below the picture
LETTER, HEIGHT = 4.8, 11.0  # points: the width of a letter of a name, the height of a name
GREY, JOINED = "#777777", "#BBBBBB"
# Where a name may stand beside its point, in points; the first place that is free is taken.
BESIDE = [
    (side * 7.0, up)
    for up in (5.0, -14.0, 20.0, -29.0, 34.0, -43.0, 48.0, -57.0, 62.0, -71.0, -85.0)
    for side in (1, -1)
]


def draw(
    groups: list[Group],
    says: str = "What a score costs in bytes",
    only: str = "",
    more: Mapping[str, str] | None = None,
    coloured: Sequence[str] = (),
) -> Figure:
    """Draw the picture. Exact training, the control and the rows on the front are coloured, others grey.
    Names stand beside their points, or below the picture where there is no room. Of a system that `halobench
    tune` ran, the tuned point has the name, and a line leads to it from the point of the default setting.

    says       the picture's title
    only       draw only rows whose labels end in this; the names in the picture leave it out
    more       further rows to draw: the name in the picture by the row's label
    coloured   labels of further rows to colour
    """
    more = more or {}
    section = only_section([g for g in groups if g.label.endswith(only) or g.label in more])
    usual_names = dict(zip(map(id, section.groups), names_of(section.groups)))
    cost, score = ALL["mb_run"], section.compared[0]
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    ax = figure.subplots()
    title(figure, says, section.dataset, section.groups, "means over seeds", unsaid(section.groups))
    ax.set_xscale("log")
    strokes, best = strokes_of(section.groups), front(section)
    step = [(estimate_of(group, cost).mean, estimate_of(group, score).mean) for group in best]
    step = [(sent, scored) for sent, scored in step if sent > 0]
    if step:  # not where every run diverged
        ax.step(*zip(*step), where="post", color="#999999", linewidth=1.2, zorder=1)
    # A point per row that has a score; the names that are to stand beside points are collected.
    names: list[tuple[float, float, str, str]] = []
    unshown: list[str] = []  # a logarithmic axis has no place for rows that send nothing
    for group in section.groups:
        x, y = estimate_of(group, cost), estimate_of(group, score)
        if not y.n:
            continue
        if not x.mean > 0:
            unshown.append(usual_names[id(group)])
            continue
        if (fixed := fixed_of(group, section.groups)) is not None:
            begun = estimate_of(fixed, cost).mean, estimate_of(fixed, score).mean
            ax.plot(*zip(begun, (x.mean, y.mean)), color=JOINED, linewidth=0.8, zorder=1)
        telling = bool(group.first.role) or group.label in coloured or any(group is each for each in best)
        style: dict[str, Any] = {**(strokes[row_of(group)] if telling else BACKGROUND), "linestyle": ""}
        ax.errorbar(x.mean, y.mean, whiskers([y]), whiskers([x]), elinewidth=1, capsize=2, zorder=2 + telling,
                    label=group.label, **style)  # fmt: skip
        if group.first.track == track.FIXED and not telling:
            continue  # the tuned point of this system has the name
        own = more.get(group.label) or _tuned(group, section.groups)
        name = verbatim(own) if own else usual_names[id(group)].replace(only, "", 1)
        colour = style["color"] if telling else GREY
        names.insert(0 if telling else len(names), (x.mean, y.mean, name, colour))  # coloured names first
    # Axes, then the names.
    ax.set_xlabel("MB that all workers send in a run; bars are 95 % intervals over seeds")
    ax.set_ylabel(f"test {score_name(section.groups)}, %")
    ax.margins(x=0.08, y=0.12)
    low, high = ax.get_ylim()
    ax.set_ylim(max(0.0, low), min(100.0, high))
    figure.draw_without_rendering()  # gives the axes their size, on which the room for names depends
    said = {"without a name": _name(ax, names), "sends nothing, so not shown": unshown}
    if told := "; ".join(f"{what}: {listed(found)}" for what, found in said.items() if found):
        figure.supxlabel(textwrap.fill(told, LINE), fontsize=8, color=GREY, x=0.01, ha="left")
    return figure


def _tuned(group: Group, groups: Sequence[Group]) -> str:
    """What a system that was tuned goes by, as long as no other group has its name: that name alone, since
    the tuned keys in its label are a line of numbers. "" for other groups."""
    alone = [g for g in groups if g.first.name == group.first.name] == [group]
    if not group.first.track or not alone:
        return ""
    return group.first.system + (", default" if group.first.track == track.FIXED else "")


def front(section: Section) -> list[Group]:
    """The groups whose leading score is told to be above that of every group on the front that sends less in
    a run, paired over seeds. A group with one seed needs only the higher score at that seed. The control,
    unfinished and diverged groups are not on the front."""
    cost, score = ALL["mb_run"], section.compared[0]
    found: list[Group] = []
    able = [group for group in section.groups if competes(group) and estimate_of(group, score).n]
    for group in sorted(able, key=lambda group: estimate_of(group, cost).mean):
        if all(change(group, other, score).side(counted=len(group.seeds) == 1) > 0 for other in found):
            found.append(group)
    return found


def _name(ax: Axes, names: Sequence[tuple[float, float, str, str]]) -> list[str]:
    """Write each (x, y, name, colour), in their order, beside its point where it covers no other name and no
    point; returns the names for which there was no room."""
    scale, unnamed = ax.figure.dpi / 72, []
    at = [ax.transData.transform((x, y)) / scale for x, y, *_ in names]
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in at]
    inside = Bbox(ax.get_window_extent().get_points() / scale)
    for place, (x, y, name, colour) in zip(at, names):
        width = LETTER * len(name)
        for right, up in BESIDE:
            left, bottom = place[0] + right - (width if right < 0 else 0), place[1] + up
            box = Bbox.from_bounds(left, bottom, width, HEIGHT)
            within = inside.contains(box.x0, box.y0) and inside.contains(box.x1, box.y1)
            if within and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                style: dict[str, Any] = {"fontsize": 8.5, "color": colour, "va": "bottom", "zorder": 5}
                if abs(up) > 15:
                    style["arrowprops"] = {"arrowstyle": "-", "color": "#AAAAAA", "linewidth": 0.6}
                side = "left" if right > 0 else "right"
                ax.annotate(name, (x, y), (right, up), textcoords="offset points", ha=side, **style)
                break
        else:
            unnamed.append(name)
    return unnamed
