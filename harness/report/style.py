"""What all pictures of the report share: colours, titles, names of lines, files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from harness.base.terminal import counted
from harness.report.groups import Group

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
SCORE_NAMES = {"acc": "test accuracy", "auc": "test AUC"}
FORMATS = ("png", "pdf", "svg")


LETTERS = 14.0  # that stand in an inch of the line below a title
TITLE = "title"  # what the texts above a picture are marked with


def title(
    figure: Figure, what: str, dataset: str, groups: list[Group], repeated: str, told: str = ""
) -> None:
    """What is shown, and below it of what: the dataset (a twin says so), the workers, how repeats over seeds
    look, what else is `told`."""
    workers = {group.workers for group in groups}
    details = [
        f"{dataset} (twin: a synthetic graph)" if dataset.startswith("twin/") else dataset,
        counted(workers.pop(), "worker") if len(workers) == 1 else "",
        repeated if any(len(group.seeds) > 1 for group in groups) else "",
        told,
    ]
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(verbatim(", ".join(filter(None, details))), int(LETTERS * width))
    inch = 1 / height
    if isinstance(engine := figure.get_layout_engine(), ConstrainedLayoutEngine):
        room = 0.52 + 0.16 * (len(lines) - 1)
        engine.set(rect=(0, 0, 1, 1 - room * inch))
    figure.text(0.012, 1 - 0.08 * inch, what, va="top", fontsize=12, fontweight="bold", gid=TITLE)
    below: dict[str, Any] = {"va": "top", "fontsize": 9.5, "color": "#444444", "gid": TITLE}
    figure.text(0.012, 1 - 0.31 * inch, "\n".join(lines), **below)


def verbatim(text: str) -> str:
    """The text as matplotlib shows it with its dollar signs, which otherwise begin mathematics."""
    return text.replace("$", r"\$")


def names_of(groups: list[Group]) -> list[str]:
    """`told_apart` as matplotlib shows it."""
    return list(map(verbatim, told_apart(groups)))


def told_apart(groups: list[Group]) -> list[str]:
    """Labels, and whatever else tells groups of one picture apart."""
    told = []
    for group in groups:
        extra = [
            counted(group.workers, "worker") if len({g.workers for g in groups}) > 1 else "",
            group.partition if len({g.partition for g in groups}) > 1 else "",
            (
                f"(unfinished, {group.epochs} epochs)"
                if not group.finished
                else counted(group.epochs, "epoch")
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
