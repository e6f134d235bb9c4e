"""Tables of results for a person, a paper or a spreadsheet: the same rows in every format."""

import textwrap
from collections.abc import Callable, Iterable, Sequence

import pandas as pd
from rich.console import RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from harness.base import tables
from harness.base.errors import choice
from harness.base.terminal import Terminal
from harness.results.report import columns
from harness.results.report.groups import Group
from harness.results.report.table import KEYS, Section, ahead_of_exact, estimate_of, metrics, own, sections

MARK = "*"  # after the best value of a column, where a format has no bold
LEFT = ("system", "partition", "note")  # words to the left, numbers to the right
WIDTH = 120  # characters of a line where only some columns are shown
Names = Sequence[str] | None  # names of columns; empty: the usual few (`Section.chosen`); None: all columns
# What LaTeX would read as something else.
LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
    }
)


def check_columns(names: Sequence[str], groups: list[Group]) -> None:
    """InputError for the first of these column names that no table of the groups has."""
    tables = [section.cells() for section in sections(groups)]
    known = {"less_exact", "minus exact", "note"}
    for cells in tables:
        known |= {*cells.text, *(name for name, heading in cells.names.items() if heading in cells.text)}
    for name in names:
        choice("--columns", name, sorted(known))


def rich_tables(groups: list[Group], width: int, names: Names = None) -> list[RenderableType]:
    """The tables for a terminal of `width` characters. Of all columns, scores, times and bytes have tables of
    their own, and what all rows share stands in the title."""
    shown: list[RenderableType] = []
    for section in sections(groups):
        title, frame, notes = _view(section, names)
        frames = [frame]
        if names is None:
            cells = section.cells()
            keys = [key for key in KEYS if key not in cells.shared]
            frames = [frame[[*keys, *frame.columns[places]]] for places in cells.blocks]
            title = _titled(section, cells.shared.values(), "\n")
        laid = [_laid(section, each, width) for each in frames]
        laid[0].title = title
        shown += [*laid, *(Text(note, style="dim") for note in notes), Text()]
    return shown


def _laid(section: Section, frame: pd.DataFrame, width: int) -> Table:
    """A table for a terminal, whose unfinished runs are yellow. Where it would be wider, it has one knob per
    line, and an interval below its mean."""
    table, console = tables.shown(*_rows(frame), LEFT), Terminal(width=10_000)
    if Measurement.get(console, console.options, table).maximum > width:
        table = tables.shown([heading.replace(" ", "\n") for heading in map(str, frame)], words=LEFT)
        for cells in frame.to_dict("records"):
            table.add_row(
                *(
                    cell.replace(" ", "\n  ") if heading == "system" else cell.replace(" ± ", "\n± ")
                    for heading, cell in cells.items()
                )
            )
    for row, group in zip(table.rows, section.groups):
        row.style = None if group.finished else "yellow"
    return table


def _titled(section: Section, shared: Iterable[str], between: str) -> str:
    return between.join(filter(None, [section.title, ", ".join(shared)]))


def _view(section: Section, names: Names) -> tuple[str, pd.DataFrame, list[str]]:
    """The title of a table, its columns with the best of each marked, and the sentences below it."""
    if names is None:
        return section.title, section.cells().marked(MARK), section.notes(MARK)
    cells = section.chosen(names)
    shared = [told for key, told in section.cells().shared.items() if key not in cells.text]
    more = "--all prints every column and says what it is, --columns a,b those that are named."
    return _titled(section, shared, "; "), cells.marked(MARK), [*section.notes(MARK, cells), more]


def plain(groups: list[Group], names: Names = None) -> str:
    """Aligned text for files and pipes: all columns in lines of any length, some in WIDTH characters."""
    width, parts = tables.UNLIMITED if names is None else WIDTH, []
    for section in sections(groups):
        title, frame, notes = _view(section, names)
        rows = tables.text(*_rows(frame), LEFT, width)
        parts.append("\n".join([title, rows, *(textwrap.fill(note, width) for note in notes)]))
    return "\n\n".join(parts)


def _rows(frame: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row per group."""
    return list(map(str, frame)), frame.to_numpy().tolist()


def markdown(groups: list[Group], names: Names = None) -> str:
    """A Markdown table per section, with its notes as a list below."""
    parts = []
    for section in sections(groups):
        title, frame, notes = _view(section, names)
        rows = tables.markdown(*_rows(frame), LEFT)
        # A star at the beginning of an item would begin a list of its own.
        said = "\n".join(f"- {note.replace('*', '&ast;')}" for note in notes)
        parts.append(f"**{title}**\n\n{rows}\n\n{said}")
    return "\n\n".join(parts)


def latex(groups: list[Group]) -> str:
    """A LaTeX `table` per section, with \\usepackage{booktabs}: the columns that compare its rows, the best
    of each in bold. Its notes stand above it as comments."""
    parts = []
    for section in sections(groups):
        cells, compared = section.cells(), [column.heading for column in section.compared]
        wanted = [*KEYS, compared[0], "minus exact", *compared[1:], "MB / exact"]
        left_out = [name for name in cells.text if name not in wanted or name in cells.shared]
        several = any(len(group.seeds) > 1 for group in section.groups)
        caption = ", ".join([section.title, *cells.shared.values()])
        meaning = "Means over seeds with half a 95 % interval; bold" if several else "Bold"
        bold = cells.best.map(lambda best: "font-weight: bold" if best else "")
        table = (
            cells.text.style.hide(axis="index")
            .apply(lambda _, bold=bold: bold, axis=None)
            .format(_latex)
            .format_index(_latex, axis=1)
            .hide(left_out, axis="columns")
            .to_latex(
                hrules=True,
                convert_css=True,
                column_format="".join("l" if n in LEFT else "r" for n in cells.text if n not in left_out),
                caption=_latex(
                    f"{caption}. {meaning} marks the best of a column and what is not told apart from it."
                ),
                position="htb",
            )
        )
        parts += [*(f"% {note}" for note in section.notes("Bold")), table]
    return "% needs \\usepackage{booktabs}\n" + "\n".join(parts).rstrip()


def _latex(text: object) -> str:
    return str(text).translate(LATEX)


def numbers(groups: list[Group]) -> pd.DataFrame:
    """The tables as numbers in full precision: one row per group, in their order.

    A column that a row's table does not show is NaN there. `NAME_half95` is half the 95 % interval over
    seeds, NaN with one seed; `by_seed` the leading score of each seed; `mb_exact_ratio` MB per epoch over
    that of exact training under the same setting; `best_of` the columns in which the row is best."""
    shown = {id(group): section for section in sections(groups) for group in section.groups}
    further = (*columns.more(own(groups)), *columns.metrics(metrics(groups)))
    every = {**columns.ALL, **{column.key: column for column in further}}
    rows = []
    for group in groups:
        section = shown[id(group)]
        held = {column.key: column for block in section.blocks for column in block}
        at = next(number for number, each in enumerate(section.groups) if each is group)
        ahead, gain = ahead_of_exact(group, section.groups), section.ahead_of_fixed(group)
        row = {
            "dataset": group.dataset,
            "twin": group.first.summary["twin"],
            "system": group.label,
            "workers": group.workers,
            "partition": group.partition,
            "epochs": group.first.summary["epochs"],
            "finished": group.finished,
            "diverged": len(group.diverged),
            "seeds": len(group.seeds),
            "runs": len(group.runs),
            "clock": group.clock,
            "machine": group.first.machine,
            "score": section.score,
            "by_seed": section.by_seed(group),
            "best_of": " ".join(key for key, column in held.items() if section.best(column)[at]),
            "less_exact": ahead.mean,
            "less_exact_half95": ahead.half,
            "less_fixed": gain.mean,
            "less_fixed_half95": gain.half,
        }
        for key, column in every.items():
            estimate = estimate_of(group, column) if key in held else None
            row[key] = None if estimate is None else estimate.mean
            row[f"{key}_half95"] = None if estimate is None else estimate.half
            if key == "mb_epoch":
                row["mb_exact_ratio"] = section.ratio(group)
        rows.append(row)
    frame = pd.DataFrame(rows)
    measured = list(frame.columns[frame.columns.get_loc("less_exact") :])
    return frame.astype(dict.fromkeys(measured, float))


def csv(groups: list[Group]) -> str:
    """`numbers` as text; empty where there is none."""
    return tables.csv(numbers(groups)).rstrip("\n")


FORMATS: dict[str, Callable[[list[Group]], str]] = {"markdown": markdown, "latex": latex, "csv": csv}
