"""The study's tables: what finished runs say, kept whole in `study.csv`, and what the page shows of it."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from harness.base.errors import InputError
from harness.results.report import groups
from harness.results.report.table import sections

USUAL = "metis,random"  # partitions, as on the command line
TABLE = "study.csv"
PLACE = ("graph", "kind", "part")  # the columns of TABLE that say where a row belongs
# Further columns beside those of the report: how a part was made and what it lacks (in its first row), the
# notes of a table (in the table's first row), the machine, and the score that leads.
SAID, NOTES, MACHINE, LEADING, SYSTEM = "said", "notes", "machine", "leading score", "system"
# Columns that the page reads, beside scores and costs.
SHOWN = (SYSTEM, LEADING, "minus exact", MACHINE, SAID)
PAGE = Path(__file__).with_name("page.md").read_text()  # what the page says before its tables


def tables_of(
    there: dict[str, dict[Path, str]], unmade: dict[str, list[str]], said: list[str]
) -> dict[str, pd.DataFrame]:
    """By partition the report's rows as text. The first row also says how they were made and what is missing.

    there    by partition, the rows' names by run folder
    unmade   by partition, the rows that lack runs
    said     how the runs were made, in sentences
    """
    made = {}
    for partition in dict.fromkeys([*there, *unmade]):
        missing = unmade.get(partition)
        lacks = [f"Not made when this was written: {'; '.join(missing)}."] if missing else []
        frames = _reported(there[partition]) if partition in there else [pd.DataFrame(index=[0])]
        table = pd.concat(frames, ignore_index=True).fillna("")
        table[SAID] = ""
        table.loc[0, SAID] = " ".join([*said, *lacks])
        made[partition] = table
    return made


def _reported(rows: dict[Path, str]) -> list[pd.DataFrame]:
    """The report's tables of these run folders; each group goes by the name of its row."""
    compared, _ = groups.load(rows)
    row_of = {id(group): rows[group.runs[0].path] for group in compared}
    order, groups_of = list(dict.fromkeys(rows.values())), Counter(row_of.values())
    compared.sort(key=lambda group: order.index(row_of[id(group)]))
    for group in compared:
        row = row_of[id(group)]
        group.label = row + group.more_steps if groups_of[row] == 1 else f"{row}: {group.label}"
    frames = []
    for section in sections(compared):
        frame = section.cells().marked("*")
        leading = next(str(name) for name in frame if str(name).startswith("test "))
        notes = ["\n".join(section.notes("*")), *[""] * (len(frame) - 1)]
        frames.append(frame.assign(**{LEADING: leading, MACHINE: section.title, NOTES: notes}))
    return frames


def shown(parts: dict[str, pd.DataFrame]) -> str:
    """Partitions side by side, as Markdown: where and how they were made, and a table of the columns that
    compare systems."""
    machines = dict.fromkeys(each for rows in parts.values() for each in rows[MACHINE] if each)
    said = [f"- {name}: {rows[SAID].iloc[0]}" for name, rows in parts.items() if rows[SAID].iloc[0]]
    headings, columns = [SYSTEM], []
    for name, rows in parts.items():
        have = rows[rows[SYSTEM] != ""].drop_duplicates(SYSTEM, keep="last").set_index(SYSTEM)
        if have.empty:
            continue
        first = have.iloc[0]
        clock = next(key for key in map(str, have) if re.fullmatch("epoch .*s", key) and first[key])
        score = f"{name}: {first[LEADING].removeprefix('test ')}"
        headings += [score, "- exact", "MB", clock.removeprefix("epoch ")]
        columns += [have[key].map(_mean) for key in (first[LEADING], "minus exact", "MB per epoch", clock)]
    lines = [headings, ["---", *["--:"] * len(columns)]] if columns else []
    if columns:
        lines += pd.concat(columns, axis=1, sort=False).fillna("").reset_index().to_numpy().tolist()
    return "\n\n".join(
        filter(
            None,
            [
                f"**{'; '.join(machines)}**" if machines else "",
                "\n".join(said),
                "\n".join(f"| {' | '.join(cells)} |" for cells in lines),
            ],
        )
    )


def _mean(cell: str) -> str:
    """A cell's mean without its interval; a mark "*" stays. A difference, which has a sign, stays as it
    is."""
    if cell.startswith(("+", "-")):
        return cell
    mean = cell.partition(" ± ")[0].removesuffix(" *")
    return f"{mean}*" if cell.endswith("*") else mean


def place(heading: str) -> str:
    """The order of partitions: METIS, random, then whatever else was asked for; of one partition the whole
    table before tables of some rows."""
    usual, partition = USUAL.split(","), heading.partition(":")[0]
    return f"{usual.index(partition) if partition in usual else len(usual)}{heading}"


def read_table(path: Path) -> pd.DataFrame:
    """What was kept of the study, all of it text; no rows where there is no file. InputError where the file
    is another."""
    if not path.exists():
        return pd.DataFrame(columns=list(PLACE))
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError:  # pandas's ParserError, or no text
        table = pd.DataFrame()
    if not {*PLACE, *SHOWN} <= {*table}:
        raise InputError(f"{path} holds no tables of a study: move it away, or give another --out")
    return table


def with_part(table: pd.DataFrame, at: tuple[str, str, str], rows: pd.DataFrame) -> pd.DataFrame:
    """The table in which these rows are the part `at` (`PLACE`); rows that it had of that part are
    replaced."""
    others = table[~table[list(PLACE)].eq(list(at)).all(axis=1)]
    made = pd.concat([others, pd.DataFrame(dict(zip(PLACE, at)), rows.index).join(rows)], ignore_index=True)
    return made.reindex(columns=list(dict.fromkeys([*made, *SHOWN]))).astype(object).fillna("")


def ordered(table: pd.DataFrame, graphs: Sequence[str], kinds: Sequence[str]) -> pd.DataFrame:
    """The parts of these graphs and kinds of rows, in their order; a graph's partitions in theirs."""
    known = table[table["graph"].isin(graphs) & table["kind"].isin(kinds)]
    order: dict[str, Callable[[str], Any]] = {"graph": graphs.index, "kind": kinds.index, "part": place}
    return known.sort_values(
        list(PLACE), key=lambda column: column.map(order[str(column.name)]), kind="stable", ignore_index=True
    )
