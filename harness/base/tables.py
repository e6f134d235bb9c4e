"""The one way to lay out a table: for a terminal, for a pipe or a file, and as Markdown.

A table is its headings and its rows; cells become text by `str`. Words stand to the left and numbers to the
right: `words` has the headings of the columns that hold words, and is the first column where it is not given.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.base.terminal import Terminal

if TYPE_CHECKING:
    import pandas as pd

UNLIMITED = 100_000  # characters of a line
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a cell begins with that a spreadsheet computes
Row = Sequence[object]


class Fitted(Table):
    """A table for a terminal, whose cells are folded between words alone. Where that needs more room than the
    terminal has, a row is its first cell and, below it, each other cell behind its heading."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least, full = [], []
        for column in self.columns:
            column.width = None  # of an earlier terminal
            cells = [line for cell in column.cells for line in str(cell).split("\n")]
            whole = cells if column.no_wrap else [word for line in cells for word in line.split()]
            least.append(max(map(cell_len, [*str(column.header).split(), *whole]), default=0))
            full.append(max(map(cell_len, [*str(column.header).split("\n"), *cells])))
        needed = Measurement.get(console, options.update_width(UNLIMITED), self).maximum
        slack = options.max_width - needed + sum(full) - sum(least)  # of lines between columns, too
        if slack < 0:
            yield from self._below(options)
        else:
            for column, shortest, longest in zip(self.columns, least, full):
                column.width = min(longest, shortest + slack)
                slack -= column.width - shortest
            yield from super().__rich_console__(console, options)

    def _below(self, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.title:
            yield Text(str(self.title), style=self.title_style or "")
        for row, cells in zip(self.rows, zip(*(column.cells for column in self.columns))):
            first, *others = (" ".join(str(cell).split()) for cell in cells)
            named = zip(self.columns[1:], others)
            told = ", ".join(f"{column.header} {cell}".strip() for column, cell in named if cell)
            yield Text(first, style=row.style or "", overflow="fold")
            for line in textwrap.wrap(told, max(width - 2, 1), break_on_hyphens=False):
                yield Text(f"  {line}", style=row.style or "")


def shown(
    headings: Row, rows: Iterable[Row] = (), words: Collection[object] | None = None, **options: Any
) -> Table:
    """A table for a terminal. Where a line is too long, words are folded and numbers are not. `options`:
    those of rich's Table."""
    looks = {"box": SIMPLE_HEAD, "pad_edge": False, "title_justify": "left", "title_style": "bold"}
    table = Fitted(**{**looks, **options})
    for heading, side in zip(headings, _sides(headings, words)):
        table.add_column(str(heading), justify=side, no_wrap=side == "right", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row))
    return table


def pairs(title: str) -> Table:
    """A table for a terminal, of two columns without headings: names and their values."""
    table = shown(["", ""], words=[""], title=title, box=None, show_header=False, padding=(0, 2, 0, 0))
    table.columns[0].style = "dim"
    return table


def text(
    headings: Row, rows: Iterable[Row], words: Collection[object] | None = None, width: int = UNLIMITED
) -> str:
    """A table in aligned columns, for files and pipes. Words are folded, to `width` characters per line."""
    table = shown(headings, rows, words, box=None, padding=(0, 2, 0, 0))
    console = Terminal(width=width, force_terminal=False, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(map(str.rstrip, captured.get().splitlines()))


def markdown(headings: Row, rows: Iterable[Row], words: Collection[object] | None = None) -> str:
    """A table in Markdown, its columns aligned in the source too."""
    lines = [[str(cell).replace("|", r"\|") for cell in row] for row in (headings, *rows)]
    widths = [max(3, *map(len, cells)) for cells in zip(*lines)]
    sides = _sides(headings, words)
    rule = [
        f":{'-' * (width + 1)}" if side == "left" else f"{'-' * (width + 1)}:"
        for side, width in zip(sides, widths)
    ]
    heads, *others = (
        " | ".join(
            cell.ljust(width) if side == "left" else cell.rjust(width)
            for cell, side, width in zip(line, sides, widths)
        )
        for line in lines
    )
    return "\n".join([f"| {heads} |", f"|{'|'.join(rule)}|", *(f"| {line} |" for line in others)])


def csv(frame: pd.DataFrame, **options: Any) -> str:
    """CSV for a spreadsheet. Text that it would take for a formula gets an apostrophe in front, which makes
    it text there; numbers stand as they are. `options`: those of pandas' to_csv."""
    words = frame.select_dtypes(exclude=["number", "bool"]).columns
    shown = frame.assign(**{name: frame[name].map(_as_text) for name in words}).rename(columns=_as_text)
    made: str = shown.to_csv(index=False, lineterminator="\n", **options)
    return made


def natural(value: object) -> list[str | float]:
    """A sort key of a value's text, by which numbers inside texts are ordered by size."""
    parts = re.split(r"(\d+(?:\.\d+)?)", str(value))
    return [float(part) if at % 2 else part for at, part in enumerate(parts)]


def _as_text(cell: object) -> object:
    if not isinstance(cell, str) or cell[:1] not in FORMULA or len(cell) == 1:
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def _sides(headings: Row, words: Collection[object] | None) -> list[Literal["left", "right"]]:
    left = headings[:1] if words is None else words
    return ["left" if heading in left else "right" for heading in headings]
