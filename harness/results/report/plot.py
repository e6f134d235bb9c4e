"""Pictures of runs side by side, as files: score over time, bytes, epochs; where an epoch's time goes."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.results.report.columns import TIMES
from harness.results.report.curves import AXES, LETTER, LINE, accuracy_over
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group
from harness.results.report.style import PARTS, STYLE, Row, names_of, save, strokes_of, title, unsaid, wrapped
from harness.results.report.sweep_plots import strokes_in
from harness.results.report.table import Section, sections

WIDE = 6.2  # inches of the axes of a breakdown


def draw(
    groups: list[Group],
    folder: Path | str,
    of: Callable[[Section], dict[str, Figure]] | None = None,
    *,
    format: str = "png",
    titled: bool = True,
) -> list[Path]:
    """Write the pictures of `groups` into `folder`; returns the files. A picture shows one dataset, clock and
    machine. Names of files have no space, and no dot but before the ending, so that LaTeX takes them.

    of      makes the pictures of a section, by the end of the file's name; None: `pictures`
    format  png, pdf or svg
    titled  whether pictures have titles
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    strokes = strokes_of(groups)
    of = of or (lambda section: pictures(section, strokes, titled))
    made = []
    parts = sections(groups)
    with matplotlib.rc_context(STYLE):
        for section in parts:
            alike = [part for part in parts if part.dataset == section.dataset]
            apart = [f"-{section.clock}" if len({part.clock for part in alike}) > 1 else ""]
            machines = list(dict.fromkeys(part.machine for part in alike))
            apart.append(f"-machine{machines.index(section.machine) + 1}" if len(machines) > 1 else "")
            stem = section.dataset + "".join(apart)
            for ending, figure in of(section).items():
                name = re.sub(r"\W+", "-", f"{stem}-{ending}")
                made.append(save(figure, folder / f"{name}.{format}", titled))
    return made


def pictures(section: Section, strokes: dict[Row, dict[str, Any]], titled: bool = True) -> dict[str, Figure]:
    """By the end of the file's name: score over time, bytes and epochs, and where an epoch's time goes. Of
    more than `sweep_plots.MANY` rows, those that do not matter are grey.

    titled   whether titles will be shown; what names then leave out stands in the title
    """
    names = names_of(section.groups, brief=titled)
    told = unsaid(section.groups) if titled else ""
    strokes = strokes_in(section, strokes)
    over = {f"accuracy-over-{axis.name}": accuracy_over(axis, section, names, strokes, told) for axis in AXES}
    return {**over, "breakdown": breakdown(section, names, told)}


def breakdown(section: Section, names: list[str], told: str = "") -> Figure:
    """One stacked bar per group: seconds of compute, exposed communication (CPU clock: communication) and
    rest, as means over seeds.

    names   of the bars, in the order of `section.groups`
    told    a line of text below the title
    """
    groups, clock = section.groups, section.clock
    whole, *parts = TIMES[clock]
    figure, ax, rows = _room_for([wrapped(name) for name in names])
    left = np.zeros(len(groups))
    comm = "exposed communication" if clock == "wall" else "communication"
    labels = {"compute": "compute", "comm": comm, "rest": "rest"}
    for (part, label), figures in zip(labels.items(), parts):
        width = np.array([group.estimate(figures.value).mean for group in groups])
        ax.barh(
            rows,
            width,
            left=left,
            height=0.3,
            color=PARTS[part],
            label=label,
            edgecolor="white",
            linewidth=0.6,
        )
        left += width
    totals = [group.estimate(whole.value) for group in groups]
    # The axis has room for the numbers behind the bars. Whiskers of two seeds can be many times as long as
    # any bar, so the axis ends at 2.2 times the longest bar at most and cuts them.
    ends = [t.mean + (t.half or 0.0) for t in totals]
    rooms = [1 - (0.25 + LETTER * len(_rounded(t))) / WIDE for t in totals]
    limit = min(max(end / room for end, room in zip(ends, rooms)), 2.2 * left.max())
    for row, total, end, room in zip(rows, totals, ends, rooms):
        if total.half:
            ax.errorbar(total.mean, row, xerr=total.half, color="#222222", linewidth=1, capsize=2.5)
        ax.annotate(
            _rounded(total),
            (min(end, room * limit), row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#222222",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    ax.set_yticks(rows, [wrapped(name) for name in names])
    ax.tick_params(axis="y", length=0, labelsize=9)
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, limit)
    whose = {"wall": "slowest worker, s", "cpu": "busiest worker, CPU s (workers outnumber cores)"}
    ax.set_xlabel(f"an epoch of the {whose[clock]}")
    figure.legend(*ax.get_legend_handles_labels(), loc="lower right", ncols=3, frameon=False)
    repeated = "whiskers: 95 % interval over seeds"
    title(figure, "Where an epoch's time goes", section.dataset, groups, repeated, told)
    return figure


def _room_for(names: list[str]) -> tuple[Figure, Axes, np.ndarray]:
    """A figure whose axes have the same width whatever the names to their left, and the height of all names;
    and [names] the place of each name on the vertical axis, in inches."""
    lines = [name.splitlines() for name in names]
    sizes = np.array([max(0.46, LINE * len(each) + 0.14) for each in lines])
    left = 0.25 + LETTER * max(len(line) for each in lines for line in each)
    wide, right, below, high, above = WIDE, 0.15, 0.9, float(sizes.sum()), 0.65
    figure = Figure(figsize=(left + wide + right, below + high + above))
    width, height = figure.get_size_inches()
    ax = figure.add_axes((left / width, below / height, wide / width, high / height))
    ax.set_ylim(0, high)
    return figure, ax, high - np.cumsum(sizes) + sizes / 2


def _rounded(e: Estimate) -> str:
    """The estimate with two significant digits of the smaller of mean and interval; a mean without interval
    has three."""
    if not e.half:
        return f"{e.mean:.3g}"
    return format(e, f".{max(0, 1 - math.floor(math.log10(min(e.half, abs(e.mean) or e.half))))}f")
