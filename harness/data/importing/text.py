"""Tables in text files: comma, tab, semicolon or space between columns, with or without a line of names."""

import csv
import gzip
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from harness.base.errors import InputError, did_you_mean
from harness.base.terminal import counted
from harness.data.raw import reading

SEPARATORS = ("\t", ",", ";", " ")
COMMENTS = ("#", "%")


@dataclass
class Table:
    """A table as text.

    cells  [rows, columns] text, without blanks at the ends
    lines  [rows] the number of the line at which each row begins: a cell in quotes may span several
    names  of the columns, or None
    first  the number of the line at which the table begins, with its names or else its first row
    """

    path: Path
    cells: np.ndarray
    lines: list[int]
    names: list[str] | None
    first: int

    def refuse(self, row: int, what: str) -> InputError:
        """The error for a row, which names the file and the row's line. The caller raises it."""
        return InputError(f'file "{self.path}", line {self.lines[row]}: {what}')

    def column(self, name: str) -> int:
        """The place of the column `name`. InputError where there is none."""
        if self.names is None:
            raise InputError(
                f'file "{self.path}" has no line of column names, so there is no column "{name}":'
                " add such a line"
            )
        if name not in self.names:
            raise InputError(f'file "{self.path}" has no column "{name}"{did_you_mean(name, self.names)}')
        return self.names.index(name)

    def name(self, column: int) -> str:
        """What messages call a column."""
        return f'column "{self.names[column]}"' if self.names else f"column {column + 1}"

    def numbers(self, columns: Sequence[int], otherwise: str = "") -> np.ndarray:
        """[rows, columns] float64. InputError with the line of the first cell that is no finite number; it
        offers `otherwise` as a second remedy."""
        found = np.empty((len(self.cells), len(columns)))
        for at, column in enumerate(columns):
            values = pd.to_numeric(pd.Series(self.cells[:, column]), errors="coerce").to_numpy(np.float64)
            bad = ~np.isfinite(values)
            if bad.any():
                row = int(np.argmax(bad))
                raise self.refuse(
                    row,
                    f'{self.name(column)} holds "{self.cells[row, column]}" where a number is wanted: give a'
                    f" finite number{otherwise}",
                )
            found[:, at] = values
        return found


def read(path: Path, header: bool | None, known: Sequence[str] = (), numeric_from: int = 1) -> Table:
    """The table in `path`, which may be gzipped.

    header        whether the first line holds column names. None: it does where one of its first cells is in
                  `known`, or where a column, from `numeric_from` on, has text in it and a number below

    Raises InputError where the file is missing, is no text or has no rows, where a quote is not closed or is
    closed within a cell, where lines differ in their number of columns, or two columns have one name."""
    if not path.is_file():
        raise InputError(f'file "{path}" is not there: give the path of a CSV or TSV file')
    with reading(path):
        lines, cells = _cells(path)
    names, first = None, lines[0]
    if header or (header is None and _is_header(cells, known, numeric_from)):
        names, cells, lines = cells[0].tolist(), cells[1:], lines[1:]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f'file "{path}", line {first}: two columns are named "{twice}": rename one')
    if not len(cells):
        raise InputError(f'file "{path}" has no rows below its column names: give a row per line')
    return Table(path, cells, lines, names, first)


def _cells(path: Path) -> tuple[list[int], np.ndarray]:
    """The number of the line at which each row begins, and [rows, columns] text of the rows. Lines of
    comments at the beginning and blank lines at the end are no rows."""
    rows: list[list[str]] = []
    begins: list[int] = []
    zipped = path.suffix == ".gz"
    with path.open("rb") as file:
        if not zipped and b"\0" in file.read(4096):
            made = "numpy.savetxt(FILE, array, delimiter=',')"
            raise InputError(f"it is not text: give a CSV or TSV file, as {made} makes")
    with (gzip.open if zipped else open)(path, "rt", encoding="utf-8-sig", newline="") as file:
        lines = enumerate(file)
        before, first = next(((at, line) for at, line in lines if not line.startswith(COMMENTS)), (0, ""))
        separator = next((mark for mark in SEPARATORS if mark in first.strip()), ",")
        rest: Iterable[str] = itertools.chain([first], file)
        if separator == " ":
            rest = (" ".join(line.split()) for line in rest)
        reader, line = csv.reader(rest, delimiter=separator, strict=True), before + 1
        try:
            for cells in reader:
                rows.append(cells or [""])  # a blank line is an empty cell
                begins.append(line)
                line = before + reader.line_num + 1  # where the next row begins
        except csv.Error as error:
            quote = "close every quote, at the end of its cell"
            mend = "shorten the cell" if "limit" in str(error) else quote
            raise InputError(f"line {line} cannot be split into columns ({error}): {mend}") from None
    while rows and not "".join(rows[-1]).strip():
        rows.pop()
    if not rows:
        raise InputError("it has no rows: give a table with a row per line")
    for line, row in zip(begins, rows):
        if len(row) != len(rows[0]):
            raise InputError(
                f"line {line} has {counted(len(row), 'column')} where the first has"
                f" {len(rows[0])}: give every line the same"
            )
    return begins[: len(rows)], np.char.strip(np.array(rows, dtype=np.str_))


def _is_header(cells: np.ndarray, known: Sequence[str], numeric_from: int) -> bool:
    first = [cell.lower() for cell in cells[0]]
    if any(cell in known for cell in first[: max(numeric_from, 2)]):
        return True
    second = cells[1] if len(cells) > 1 else cells[0]
    pairs = list(zip(cells[0], second))[numeric_from:] or list(zip(cells[0], second))
    # What stands for a missing label or value is no column's name.
    return any(
        not is_number(above) and above.lower() not in ("", "none", "null", "na") and is_number(below)
        for above, below in pairs
    )


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
