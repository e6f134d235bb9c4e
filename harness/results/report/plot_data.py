"""The data of a picture: what was drawn, panel by panel, so that anyone can draw it again or compare two."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from harness.base import tables

COLUMNS = ("panel", "title", "x_axis", "y_axis", "kind", "label", "x", "y")


def drawn(figure: Figure) -> pd.DataFrame:
    """One row per point that was drawn. Columns:

    panel   0-based; `title`, `x_axis` and `y_axis` are the panel's texts as printed
    kind    "line", "dots", "bar", or "low" and "high" of a shaded band or an error bar
    label   its name in the legend; one that begins with "_" is not shown there
    x, y    of the point; of a bar its place on the axis and its length
    """
    rows = [(panel, ax.get_title(loc="left") or ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), *point)
            for panel, ax in enumerate(figure.axes) for point in _points(ax)]  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


def _points(ax: Axes) -> Iterator[tuple[Any, ...]]:
    # matplotlib keeps the name of what was drawn with error bars in its container, and not in its lines: the
    # points, and the caps, which are by turns at the low and at the high end.
    told: dict[Line2D, tuple[str, str]] = {}
    for container in ax.containers:
        if isinstance(container, ErrorbarContainer):
            points, caps, _ = container.lines
            label = str(container.get_label())
            told |= {} if points is None else {points: ("line", label)}
            told |= {cap: (("low", "high")[at % 2], label) for at, cap in enumerate(caps)}
    for line in ax.lines:
        kind, label = told.get(line, ("line", str(line.get_label())))
        for x, y in zip(np.ravel(line.get_xdata()), np.ravel(line.get_ydata())):
            yield kind, label, x, y
    for collection in ax.collections:
        label = str(collection.get_label())
        if isinstance(collection, PathCollection):
            for x, y in np.asarray(collection.get_offsets()):
                yield "dots", label, x, y
        elif isinstance(collection, PolyCollection):
            # The outline of a band goes along one bound and back along the other.
            outline = np.concatenate([path.vertices for path in collection.get_paths()])
            by_x = pd.Series(outline[:, 1]).groupby(outline[:, 0])
            for kind, bound in (("low", by_x.min()), ("high", by_x.max())):
                for x, y in bound.items():
                    yield kind, label, x, y
    for container in ax.containers:
        for patch in getattr(container, "patches", ()):
            lying = getattr(container, "orientation", "vertical") == "horizontal"
            place = patch.get_y() + patch.get_height() / 2 if lying else patch.get_x() + patch.get_width() / 2
            yield "bar", str(container.get_label()), place, patch.get_width() if lying else patch.get_height()


def write(figure: Figure, picture: Path) -> Path:
    """Write the data of a picture to a CSV of the same name beside it; returns its path."""
    path = picture.with_suffix(".csv")
    path.write_text(tables.csv(drawn(figure), float_format="%.6g"))
    return path
