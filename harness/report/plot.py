"""Pictures of runs side by side: score over time, bytes and epochs, and where an epoch's time goes."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.transforms import blended_transform_factory
from scipy.optimize import isotonic_regression

from harness.report.columns import LEADING, TIMES
from harness.report.groups import Estimate, Group, Run
from harness.report.table import Section, estimate_of, sections
from harness.trace.rounds import Rounds, epochs_of_run

# Okabe and Ito's palette (distinct to colour-blind readers) without its yellow, which is too pale for a line.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#555555")
STROKES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))
PARTS = {"compute": "#33638D", "comm": "#E8853D", "rest": "#C9CDD2"}
STYLE: dict[Any, Any] = {  # any: matplotlib's stubs list the names of all its parameters
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "axes.edgecolor": "#888888",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "axes.labelcolor": "#222222",
}


@dataclass(frozen=True)
class Axis:
    """What accuracy is drawn over: a column of `curve`, the end of the file's name, the axis label for each
    clock.
    """

    column: str
    name: str
    label: dict[str, str]


AXES = (
    Axis(
        "seconds",
        "time",
        {
            "wall": "train clock after the first epoch, s (an epoch is its slowest worker's)",
            "cpu": "train clock after the first epoch, CPU s of its busiest worker (workers outnumber cores)",
        },
    ),
    Axis("megabytes", "bytes", dict.fromkeys(("wall", "cpu"), "sent by all workers, MB (cumulative)")),
    Axis("epoch", "epochs", dict.fromkeys(("wall", "cpu"), "epoch")),
)


def curve(run: Run, score: str) -> pd.DataFrame:
    """Evaluated epochs of a run: `epoch` (1-based), `seconds` and `megabytes` up to its end, the test
    vertices' `score` ("acc" or "auc") in % and the validation vertices' `val`.

    The first epoch takes no time here, as it has no part in the mean epoch time: it compiles and allocates.
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
            # Of a run that died the rounds of an epoch may be missing.
            "seconds": seconds.reindex(at, method="ffill").fillna(0.0).to_numpy(),
            "megabytes": sent.reindex(at, method="ffill").fillna(0.0).to_numpy() / 1e6,
            "score": 100 * test.to_numpy(),
            "val": 100 * by_epoch[f"val_{score}"].first()[at].to_numpy(),
        }
    )


def band(group: Group, score: str) -> pd.DataFrame:
    """Mean `curve` over seeds, lowest and highest score among them, at the epochs that all seeds
    evaluated.
    """
    together = pd.concat([curve(run, score) for run in group.runs])
    by_epoch = together.groupby("epoch")
    mean = by_epoch.mean()
    mean["low"], mean["high"] = by_epoch["score"].min(), by_epoch["score"].max()
    return mean[by_epoch.size() == len(group.runs)].reset_index()


FORMATS = ("png", "pdf", "svg")


def draw(
    groups: list[Group],
    folder: Path | str,
    of: Callable[[Section], dict[str, Figure]] | None = None,
    *,
    format: str = "png",
    titled: bool = True,
) -> list[Path]:
    """The pictures of `groups` into `folder`; returns the files. One dataset, clock and machine per picture.
    Names of files have no space, and no dot but before the ending: LaTeX takes them.

    of      pictures of a section by the end of the file's name; None: `pictures`
    format  one of FORMATS
    titled  whether what is shown, and of what, stands above a picture
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    strokes = strokes_of(group.label for group in groups)
    of = of or (lambda section: pictures(section, strokes))
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
                name = re.sub(r"[^\w-]+", "-", f"{stem}-{ending}")
                made.append(save(figure, folder / f"{name}.{format}", titled))
    return made


def pictures(section: Section, strokes: dict[str, dict]) -> dict[str, Figure]:
    """Score over time, bytes and epochs, and where an epoch's time goes, by the end of the file's name."""
    names = names_of(section.groups)
    over = {f"accuracy-over-{axis.name}": accuracy_over(axis, section, names, strokes) for axis in AXES}
    return {**over, "breakdown": breakdown(section, names)}


SCORE_NAMES = {"acc": "test accuracy", "auc": "test AUC"}


def accuracy_over(axis: Axis, section: Section, names: list[str], strokes: dict[str, dict]) -> Figure:
    """The leading score over time, bytes or epochs: one line per group, a band between its lowest and highest
    seed. The value beside a name is the table's, the mean of each seed's at its best validation; a dot marks
    the best validation of the mean."""
    score = SCORE_NAMES[section.score]
    figure, ax = _beside_names(names)
    ends = []
    for group, name in zip(section.groups, names):
        rows = band(group, section.score)
        if rows.empty:
            continue
        stroke = strokes[group.label]
        x, y = rows[axis.column], rows["score"]
        if len(group.runs) > 1:
            ax.fill_between(x, rows["low"], rows["high"], color=stroke["color"], alpha=0.15, linewidth=0)
        ax.plot(x, y, linewidth=1.7, alpha=1.0 if group.finished else 0.5, label=name, **stroke)
        best = int(rows["val"].argmax()) if rows["val"].notna().any() else -1
        ax.plot(x.iloc[best], y.iloc[best], "o", markersize=4, color=stroke["color"], clip_on=False)
        told = estimate_of(group, LEADING[section.score][0])
        ends.append(
            (
                x.iloc[-1],
                y.iloc[-1],
                f"{name}  {'diverged' if group.diverged else f'{told.mean:.1f} %'}",
                stroke,
            )
        )
    ax.set_xlabel(axis.label[section.clock])
    ax.set_ylabel(f"{score}, %")
    ax.set_xlim(left=0)
    meaning = f"values and dots: best validation {'accuracy' if section.score == 'acc' else 'AUC'}"
    title(
        figure,
        f"{score.capitalize() if section.score == 'acc' else 'Test AUC'} over {axis.name}",
        section.dataset,
        section.groups,
        "bands from the lowest to the highest seed",
        meaning,
    )
    _label_ends(figure, ax, ends)
    return figure


NAME_WIDTH = 34  # characters of a line beside a picture


def _beside_names(names: list[str]) -> tuple[Figure, Axes]:
    """A figure whose axes have the same size whatever stands to the right, and grow with many names."""
    lines = sum(len(_wrapped(f"{name}  100.0 %").splitlines()) for name in names)
    widest = max(
        (len(line) for name in names for line in _wrapped(f"{name}  100.0 %").splitlines()), default=0
    )
    left, wide, right = 0.75, 6.2, 0.35 + 0.078 * widest
    below, high, above = 0.6, max(3.8, LINE * lines + 0.2), 0.65
    figure = Figure(figsize=(left + wide + right, below + high + above))
    width, height = figure.get_size_inches()
    return figure, figure.add_axes((left / width, below / height, wide / width, high / height))


def _wrapped(name: str) -> str:
    return textwrap.fill(name, NAME_WIDTH, break_long_words=False, break_on_hyphens=False)


def breakdown(section: Section, names: list[str]) -> Figure:
    """One stacked bar per group: compute, exposed communication (CPU clock: communication), rest; mean over
    seeds.
    """
    groups, clock = section.groups, section.clock
    figure = Figure(figsize=(9.6, 1.9 + 0.46 * len(groups)), layout="constrained")
    ax = figure.subplots()
    whole, *parts = TIMES[clock]
    rows = np.arange(len(groups))[::-1]
    left = np.zeros(len(groups))
    labels = {
        "compute": "compute",
        "comm": "exposed communication" if clock == "wall" else "communication",
        "rest": "rest",
    }
    for (part, label), figures in zip(labels.items(), parts):
        width = np.array([group.estimate(figures.value).mean for group in groups])
        ax.barh(
            rows,
            width,
            left=left,
            height=0.66,
            color=PARTS[part],
            label=label,
            edgecolor="white",
            linewidth=0.6,
        )
        left += width
    totals = [group.estimate(whole.value) for group in groups]
    # Room for the figures; two seeds can have whiskers many times as long as any bar, and these are cut.
    limit = min(1.22 * max(t.mean + (t.half or 0.0) for t in totals), 2.2 * left.max())
    for row, total in zip(rows, totals):
        end = total.mean + (total.half or 0.0)
        if total.half:
            ax.errorbar(total.mean, row, xerr=total.half, color="#222222", linewidth=1, capsize=2.5)
        ax.annotate(
            _rounded(total),
            (min(end, 0.86 * limit), row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#222222",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
        )
    ax.set_yticks(rows, [name.replace(" ", "\n", 1) if len(name) > 24 else name for name in names])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlim(0, limit)
    ax.set_xlabel(
        {
            "wall": "an epoch of the slowest worker, s",
            "cpu": "an epoch of the busiest worker, CPU s (workers outnumber cores)",
        }[clock]
    )
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower right", ncols=3, frameon=False)
    title(figure, "Where an epoch's time goes", section.dataset, groups, "whiskers: 95 % interval over seeds")
    return figure


TITLE = "title"  # what the texts above a picture are marked with


def title(
    figure: Figure, what: str, dataset: str, groups: list[Group], repeated: str, told: str = ""
) -> None:
    """What is shown, and below it of what: the dataset (a twin says so), the workers, how repeats over seeds
    look, what else is `told`."""
    workers = {group.workers for group in groups}
    details = [
        f"{dataset} (twin: a synthetic graph)" if dataset.startswith("twin/") else dataset,
        f"{workers.pop()} workers" if len(workers) == 1 else "",
        repeated if any(len(group.seeds) > 1 for group in groups) else "",
        told,
    ]
    inch = 1 / figure.get_size_inches()[1]
    if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - 0.52 * inch))
    figure.text(0.012, 1 - 0.08 * inch, what, va="top", fontsize=12, fontweight="bold", gid=TITLE)
    below: dict[str, Any] = {"va": "top", "fontsize": 9.5, "color": "#444444", "gid": TITLE}
    figure.text(0.012, 1 - 0.31 * inch, ", ".join(filter(None, details)), **below)


def _rounded(e: Estimate) -> str:
    """Two digits of the smaller of mean and interval, three of a mean without one."""
    if not e.half:
        return f"{e.mean:.3g}"
    return format(e, f".{max(0, 1 - math.floor(math.log10(min(e.half, abs(e.mean) or e.half))))}f")


def names_of(groups: list[Group]) -> list[str]:
    """Labels, and whatever else tells groups of one picture apart."""
    told = []
    for group in groups:
        extra = [
            f"{group.workers} workers" if len({g.workers for g in groups}) > 1 else "",
            group.partition if len({g.partition for g in groups}) > 1 else "",
            (
                f"(unfinished, {group.epochs} epochs)"
                if not group.finished
                else f"{group.epochs} epochs"
                if len({g.epochs for g in groups if g.finished}) > 1
                else ""
            ),
        ]
        told.append(" ".join(filter(None, [group.label, *extra])))
    return told


def strokes_of(labels: Iterable[str]) -> dict[str, dict]:
    """A colour and line for each label, the same in every picture of one call."""
    return {
        label: {"color": COLOURS[i % len(COLOURS)], "linestyle": STROKES[i // len(COLOURS) % len(STROKES)]}
        for i, label in enumerate(sorted(set(labels)))
    }


LINE = 0.17  # inches of a line of text beside a picture


def _label_ends(figure: Figure, ax: Axes, ends: list[tuple[float, float, str, dict]]) -> None:
    """Name each line to the right of the axes, as near its end's height as the other names allow, with a
    leader.
    """
    if not ends:
        return
    low, high = ax.get_ylim()
    ax.set_ylim(low, high)
    line = (high - low) / (figure.get_size_inches()[1] * ax.get_position().height) * LINE  # in data units
    order = np.argsort([y for _, y, _, _ in ends], kind="stable")
    texts = [_wrapped(ends[i][2]) for i in order]
    sizes = line * (1.15 + np.array([text.count("\n") for text in texts]))
    steps = np.concatenate([[0.0], np.cumsum((sizes[1:] + sizes[:-1]) / 2)])
    # Least squares under "each name at least its own height above the one below".
    heights = isotonic_regression(np.array([ends[i][1] for i in order]) - steps).x + steps
    heights -= max(0.0, heights[-1] - (high - sizes[-1] / 2))
    right = blended_transform_factory(ax.transAxes, ax.transData)
    for i, y, text in zip(order, heights, texts):
        x_end, y_end, _, stroke = ends[i]
        leader = {
            "arrowstyle": "-",
            "color": stroke["color"],
            "alpha": 0.45,
            "linewidth": 0.8,
            "shrinkA": 0,
            "shrinkB": 3,
        }
        ax.annotate(
            "",
            (x_end, y_end),
            xycoords="data",
            xytext=(1.02, y),
            textcoords=right,
            annotation_clip=False,
            arrowprops=leader,
        )
        ax.text(
            1.025,
            y,
            text,
            transform=right,
            va="center",
            fontsize=9,
            color=[0.75 * c for c in to_rgb(stroke["color"])],
        )


def save(figure: Figure, path: Path, titled: bool = True) -> Path:
    """The figure as a file of the format that its ending says, the same bytes whenever it is made."""
    when = {".png": {"Software": None}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}}[path.suffix]
    box = None
    if not titled:
        for text in [text for text in figure.texts if text.get_gid() == TITLE]:
            text.remove()
        # The room above goes to the axes, or away where these have a place of their own.
        if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
            engine.set(rect=(0, 0, 1, 1))
        else:
            box = "tight"
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        figure.savefig(path, dpi=150, metadata=when, bbox_inches=box)
    return path
