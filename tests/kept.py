"""Tables of a page from what results/reference keeps of experiments' runs
(`harness.papers.claims.reference`)."""

import re
from pathlib import Path

import pandas as pd

from harness.papers.claims import reference
from harness.results.report.estimate import Estimate, estimate

ROOT = Path(__file__).resolve().parent.parent
SPLITS = {"dataset.split=low_label": "20 per class", "dataset.split=random": "60/20/20"}
OWN = {"cora": "20 per class", "tolokers": "own, 50 %"}


def kept(name: str) -> pd.DataFrame:
    """A row per run of an experiment."""
    return pd.read_csv(ROOT / reference.FOLDER / name / "runs.csv")


def called(graph: str) -> str:
    """As "dblp, 60/20/20"."""
    name, *words = graph.split()
    return f"{name}, {SPLITS[words[0]] if words else OWN[name]}"


def of(runs: pd.DataFrame, graph: str, row: str) -> pd.DataFrame:
    """A row's runs on a graph, by seed."""
    return runs[(runs.graph == graph) & (runs.row == row)].set_index("seed").sort_index()


def mean(values: pd.Series) -> Estimate:
    return estimate(values.tolist())


def said(each: Estimate, digits: str = ".2f") -> str:
    return f"{each.mean:{digits}}" + (f" ± {each.half:.2f}" if each.half is not None else "")


def once(tables: str) -> str:
    """The tables without the first cells of a row that are those of the row above."""
    lines, above = [], [""]
    for line in tables.split("\n"):
        cells = line.split(" | ")
        same = next((at for at, (a, b) in enumerate(zip(cells, above)) if a != b), 0)
        above = cells
        if line.startswith("|") and same:
            cells = ["|" + " |" * (same - 1), *cells[same:]]
        lines.append(" | ".join(cells))
    return "\n".join(lines)


def place(command: str) -> re.Pattern[str]:
    """Where a page has the tables that `command` makes."""
    return re.compile(rf"(?<=: {re.escape(command)} -->\n).*?(?=\n<!-- -->)", re.S)


def with_tables(page: str, command: str, tables: str) -> str:
    """A page's text with these tables in place of those that it has."""
    found, times = place(command).subn(lambda _: tables, page)
    assert times == 1, f"a page has the tables of {command} {times} times"
    return found
