"""The leading score over time, bytes and epochs: the curve of a run, the band of a group, their picture."""

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import blended_transform_factory
from scipy.optimize import isotonic_regression

from harness.results.report.columns import LEADING, score_name
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group, Run
from harness.results.report.style import (
    BACKGROUND,
    LETTERS,
    Row,
    row_of,
    title,
    wrapped,
)
from harness.results.report.table import Section, estimate_of
from harness.results.rounds import Rounds, epochs_of_run


@dataclass(frozen=True)
class Axis:
    """What the score is drawn over.

    column   of the frame that `curve` gives
    name     in titles and at the end of a file's name
    label    of the axis, by clock
    """

    column: str
    name: str
    label: dict[str, str]


AXES = (
    Axis("seconds", "time", {
        "wall": "train clock after the first epoch, s (an epoch is its slowest worker's)",
        "cpu": "train clock after the first epoch, CPU s of its busiest worker (workers outnumber cores)",
    }),
    Axis("megabytes", "bytes", dict.fromkeys(("wall", "cpu"), "sent by all workers, MB (cumulative)")),
    Axis("epoch", "epochs", dict.fromkeys(("wall", "cpu"), "epoch")),
)  # fmt: skip


def curve(run: Run, score: str) -> pd.DataFrame:
    """A row per evaluated epoch of a run. Columns are `epoch` (1-based), `seconds` and `megabytes` up to its
    end, `score` and `val`, which are the test and validation scores in %, and the training `loss`.

    score   which score: "acc" or "auc"

    The first epoch counts 0 seconds, since mean epoch times leave it out too: it compiles and allocates.
    """
    rounds = Rounds.read(run.trace)
    seconds = rounds.cumulative("cpu_s" if run.summary["clock"] == "cpu" else "train_s")
    sent = rounds.epochs.groupby("of_run")["bytes_sent"].sum().cumsum()
    epochs = epochs_of_run(run.trace.epochs)
    epochs = epochs[epochs["epoch"] <= epochs.groupby("worker")["epoch"].max().min()]
    by_epoch = epochs.groupby("epoch")
    test = by_epoch[f"test_{score}"].first().dropna()
    at = test.index
    return pd.DataFrame(
        {
            "epoch": at + 1,
            # Where a worker died, the rounds of an epoch may be missing.
            "seconds": seconds.reindex(at, method="ffill").fillna(0.0).to_numpy(),
            "megabytes": sent.reindex(at, method="ffill").fillna(0.0).to_numpy() / 1e6,
            "score": 100 * test.to_numpy(),
            "val": 100 * by_epoch[f"val_{score}"].first()[at].to_numpy(),
            "loss": by_epoch["loss"].first()[at].to_numpy(),
        }
    )


def band(group: Group, score: str) -> pd.DataFrame:
    """Mean `curve` over seeds, with the lowest and highest score, at the epochs that all seeds evaluated."""
    together = pd.concat([curve(run, score).assign(seed=str(run.seed)) for run in group.runs])
    runs = together.groupby("epoch").size()
    by_epoch = together.groupby(["epoch", "seed"]).mean().groupby("epoch")  # repeats of a seed are one sample
    mean = by_epoch.mean()
    mean["low"], mean["high"] = by_epoch["score"].min(), by_epoch["score"].max()
    return mean[runs == len(group.runs)].reset_index()


def best_at(group: Group, score: str) -> pd.Series:
    """The mean over seeds of each run's row of `curve` at its best validation, as in tables."""
    found = []
    for run in group.runs:
        rows = curve(run, score)
        found.append(rows[rows["epoch"] == run.summary["best"]["epoch"] + 1].assign(seed=run.seed))
    best: pd.Series[Any] = pd.concat(found).groupby("seed", dropna=False).mean().mean()
    return best


@dataclass(frozen=True)
class Curve:
    """A group in a picture: its `band`, its name, the table's value, and how it is drawn."""

    group: Group
    rows: pd.DataFrame
    name: str
    value: Estimate
    stroke: dict[str, Any]

    @property
    def behind(self) -> bool:
        """Whether it is drawn in grey behind the others."""
        return self.stroke == BACKGROUND

    @property
    def said(self) -> str:
        return f"{self.name}  {'diverged' if self.group.diverged else f'{self.value.mean:.1f} %'}"


def accuracy_over(
    axis: Axis, section: Section, names: list[str], strokes: dict[Row, dict[str, Any]], told: str = ""
) -> Figure:
    """The leading score over time, bytes or epochs: one line per group, a band between its lowest and highest
    seed. A marker, and the value beside a name, are the table's value: the mean over seeds of each seed's
    score at its best validation.

    names     of the lines, in the order of `section.groups`
    strokes   how each row is drawn (`style.strokes_of`); rows with `BACKGROUND` lie behind the others, and
              their names stand together below the axis
    told      a line of text below the title

    The axis is logarithmic where finished lines end far apart."""
    # A line per group, and room for the names of those that are not grey.
    lines, column = [], LEADING[section.score][0]
    for group, name in zip(section.groups, names):
        if not (rows := band(group, section.score)).empty:
            lines.append(Curve(group, rows, name, estimate_of(group, column), strokes[row_of(group)]))
    named, others = ([line for line in lines if line.behind is behind] for behind in (False, True))
    figure, ax = _room_for([line.said for line in named], [line.said.replace("  ", " ") for line in others])
    for line in lines:
        _draw(ax, line, axis.column, section.score)
    whole = [line for line in lines if line.group.finished and not line.group.diverged]
    if _far_apart([line.rows[axis.column] for line in whole]):
        ax.set_xscale("log", nonpositive="mask")
    else:
        ax.set_xlim(left=0)
    # The texts come last: names stand at the heights of the lines' ends, which the limits of the axes decide.
    score = score_name(section.groups)
    ax.set_xlabel(axis.label[section.clock])
    ax.set_ylabel(f"test {score}, %")
    meaning = f"value and marker: at the best validation {score}"
    if any(len(group.seeds) > 1 for group in section.groups):
        meaning += " of each seed, mean over seeds"
    if any(len({run.summary["epochs"] for run in group.runs}) > 1 for group in section.groups):
        meaning += "; a line ends where its first seed stops"
    what = f"Test {score} over {axis.name}"
    bands = "bands from the lowest to the highest seed"
    title(figure, what, section.dataset, section.groups, bands, told, meaning)
    _label_ends(figure, ax, axis.column, named)
    return figure


def _draw(ax: Axes, line: Curve, column: str, score: str) -> None:
    x, y = line.rows[column], line.rows["score"]
    above = 0 if line.behind else 1  # added to matplotlib's zorder, which is 1 for areas and 2 for lines
    if len(line.group.runs) > 1 and not line.behind:
        shade = {"color": line.stroke["color"], "alpha": 0.15, "linewidth": 0}
        ax.fill_between(x, line.rows["low"], line.rows["high"], label=line.name, **shade)
    width = 1.0 if line.behind else 1.7
    alpha = 1.0 if line.group.finished else 0.5
    ax.plot(
        x, y, linewidth=width, alpha=alpha, label=line.name, zorder=1.5 + above, markevery=[], **line.stroke
    )
    if line.value.n and not line.behind:
        where = best_at(line.group, score)[column]
        dot = {"marker": line.stroke["marker"], "color": line.stroke["color"]}
        ax.plot(where, line.value.mean, markersize=5, clip_on=False, **dot)


FAR = 10.0  # the axis is logarithmic where one line ends at more than so many times the end of another


def _far_apart(columns: list[pd.Series]) -> bool:
    """Whether one line ends so far before another that it could not be seen on a linear axis. False where a
    line has no value above 0 (bytes of a single worker), which a logarithmic axis could not show."""
    ends = [column.max() for column in columns]
    return bool(ends) and min(ends) > 0 and max(ends) > FAR * min(ends)


def _room_for(named: list[str], others: list[str]) -> tuple[Figure, Axes]:
    """A figure with room for the names `named` to the right of its axes and for `others` below. The axes have
    the same width whatever the names, and become higher with many of them."""
    beside = [wrapped(name).splitlines() for name in named]
    longest = max((len(line) for name in beside for line in name), default=0)
    left, wide, right = 0.75, 6.2, 0.35 + LETTER * longest
    below_axis = textwrap.wrap(f"grey: {', '.join(others)}", int(LETTERS * (wide + right))) if others else []
    lines = sum(len(name) + APART for name in beside)
    below, high, above = 0.6 + LINE * len(below_axis), max(3.8, LINE * lines), 0.65
    figure = Figure(figsize=(left + wide + right, below + high + above))
    width, height = figure.get_size_inches()
    if below_axis:
        where = (left / width, 0.08 / height)
        figure.text(*where, "\n".join(below_axis), va="bottom", fontsize=9, color="#777777")
    return figure, figure.add_axes((left / width, below / height, wide / width, high / height))


LINE, LETTER = 0.17, 0.078  # inches: the height of a line of text beside a picture, the width of a letter
APART = 0.15  # space between two names, as a share of LINE


def _label_ends(figure: Figure, ax: Axes, column: str, lines: list[Curve]) -> None:
    """Name each line to the right of the axes, as near the height of its end as the other names allow, and
    join the name to the end by a thin line."""
    if not lines:
        return
    ends = np.array([line.rows[[column, "score"]].iloc[-1] for line in lines])
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    line = (high - low) / (figure.get_size_inches()[1] * ax.get_position().height) * LINE  # in data units
    order = np.argsort(ends[:, 1], kind="stable")
    texts = [wrapped(lines[i].said) for i in order]
    sizes = line * (1 + APART + np.array([text.count("\n") for text in texts]))
    steps = np.concatenate([[0.0], np.cumsum((sizes[1:] + sizes[:-1]) / 2)])
    # Least squares under "each name at least its own height above the one below".
    heights = isotonic_regression(ends[order, 1] - steps).x
    heights = np.clip(heights, low + sizes[0] / 2, high - sizes[-1] / 2 - steps[-1]) + steps
    right = blended_transform_factory(ax.transAxes, ax.transData)
    for i, y, text in zip(order, heights, texts):
        colour = lines[i].stroke["color"]
        faint = {"color": colour, "alpha": 0.45, "linewidth": 0.8}
        leader = {"arrowstyle": "-", **faint, "shrinkA": 0, "shrinkB": 3}
        place: dict[str, Any] = {"xytext": (1.02, y), "textcoords": right, "annotation_clip": False}
        ax.annotate("", ends[i], arrowprops=leader, **place)
        dark = [0.75 * c for c in to_rgb(colour)]
        ax.text(1.025, y, text, transform=right, va="center", fontsize=9, color=dark)
