"""The table in every format has the same rows, marks the best of each column, and keeps the ratio."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser

import pandas as pd
import pytest

from harness.results.report import columns, formats, groups, table
from harness.results.report.__main__ import main
from tests import traces
from tests.reported import rows, section_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Exact training with two seeds, and a system that sends a tenth, whose name no format takes as it is."""
    folder = tmp_path_factory.mktemp("runs")
    for name, role, size in (("exact", "reference", 1000), ("frugal", "", 100)):
        for seed in (1, 2):
            label = "50 % & a_b|<c>" if not role else None
            how = {"size": size, "speed": seed, "ran_on": {"role": role}}
            traces.of(folder / f"{name}{seed}", name, seed=seed, label=label, **how)
    return folder


def printed(capsys, *arguments) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


class Page(HTMLParser):
    """The rows of a page's tables, the ids of its cells, and its text."""

    def __init__(self, text: str):
        super().__init__()
        self.rows, self.ids, self.said, self.inside = [], {}, "", ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.inside = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.ids[dict(attributes)["id"]] = (len(self.rows) - 1, len(self.rows[-1]) - 1)

    def handle_endtag(self, tag):
        self.inside = ""

    def handle_data(self, text):
        self.said += text
        if self.inside in ("td", "th"):
            self.rows[-1][-1] += text


def test_html_has_the_rows_of_the_table_with_the_best_in_bold(folder, capsys):
    text = printed(capsys, "table", folder, "--format", "html")
    page = Page(text)
    section = section_of(folder)
    cells = section.cells()
    assert page.rows == [list(cells.text), *cells.text.to_numpy().tolist()]
    assert "50 % & a_b|<c>" in page.rows[1] and section.title in page.said
    style = text[text.index("<style") : text.index("</style>")]
    bold = {page.ids[name] for name in re.findall(r"#(\w+)", style)}
    best = cells.best.to_numpy()
    assert bold == {(row + 1, column) for row, column in zip(*best.nonzero())} and best.any()
    assert "Bold marks the best" in page.said and "*" not in page.said
    assert text == printed(capsys, "table", folder, "--format", "html"), "the same bytes each time"


def test_latex_is_a_small_table_with_the_best_in_bold_and_notes_as_comments(folder, capsys):
    whole = printed(capsys, "table", folder, "--format", "latex")
    text = "".join(line for line in whole.splitlines(keepends=True) if not line.startswith("%"))
    section = section_of(folder)
    cells = section.cells()
    names = ["system", "test acc %", "minus exact", "epoch s", "MB per epoch", "MB / exact"]
    cells = replace(cells, text=cells.text[names], best=cells.best[names])
    body = text[text.index("\\midrule") : text.index("\\bottomrule")].splitlines()[1:]
    found = [[cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r" \\"))] for line in body]
    told = [
        [
            ("\\bfseries " if best else "") + cell.replace("±", "$\\pm$")
            for cell, best in zip(row[1:], marks[1:])
        ]
        for row, marks in zip(cells.text.to_numpy().tolist(), cells.best.to_numpy())
    ]
    assert [row[1:] for row in found] == told
    assert found[0][0] == r"50 \% \& a\_b\textbar{}\textless{}c\textgreater{}"
    assert (
        "\\bfseries" in text
        and "MB / exact" in text
        and re.findall(r"\\caption\{(.*)\}", text)
        == [
            "cora; Test CPU, 4 cores, 2 workers, metis, 5 epochs, 2 seeds."
            r" Means over seeds with half a 95 \% interval; bold marks the best of a column."
        ]
    )
    assert all(f"% {note}" in whole.splitlines() for note in section.notes("Bold"))
    assert not re.search(r"(?<!\\)%", text), "a % begins a comment"
    (places,) = re.findall(r"\\begin\{tabular\}\{([lr]+)\}", text)
    assert places == "lrrrrr"
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_csv_has_the_numbers_the_best_and_the_ratio(folder, capsys, tmp_path):
    text = printed(capsys, "table", folder, "--format", "csv")
    data = pd.read_csv(io.StringIO(text)).set_index("system")
    compared = groups.load([folder])[0]
    for group in compared:
        row = data.loc[group.label]
        for key, column in columns.ALL.items():
            mean = table.estimate_of(group, column).mean
            assert pd.isna(row[key]) or row[key] == mean, key
    frugal = data.loc["50 % & a_b|<c>"]
    assert frugal["mb_exact_ratio"] == frugal["mb_epoch"] / data.loc["exact", "mb_epoch"]
    assert {"mb_epoch", "mb_run"} <= set(frugal["best_of"].split())
    assert pd.isna(data.loc["exact", "best_of"])
    printed(capsys, "table", folder, "--csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == text


def test_markdown_marks_the_best_and_escapes_what_would_end_a_cell(folder, capsys):
    text = printed(capsys, "table", folder, "--format", "markdown")
    assert text == printed(capsys, "table", folder, "--markdown")
    frugal, exact = rows(text)
    assert frugal["system"] == r"50 % & a_b\|<c>" and frugal["MB per epoch"].endswith(" *")
    assert exact["MB / exact"] == "1.000" and float(frugal["MB / exact"]) < 0.2
    assert len({line.count(" | ") for line in text.splitlines() if line.startswith("| ")}) == 1


@pytest.mark.parametrize(
    "options",
    [("--csv", "x.csv", "--markdown"), ("--format", "html", "--markdown"), ("--format", "csv", "--csv", "x")],
)
def test_two_formats_are_refused(folder, capsys, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        main(["table", str(folder), *options])
    assert "not allowed with argument" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_section_is_lost_in_any_format(folder, tmp_path):
    traces.finished(tmp_path / "other", traces.config(dataset__name="dblp"))
    compared = groups.load([folder, tmp_path])[0]
    for name, made in formats.FORMATS.items():
        text = made(compared)
        assert "cora" in text and "dblp" in text, name
    page = formats.html(compared)
    ids = re.findall(r'id="(\w+)"', page)
    assert len(ids) == len(set(ids)), "two tables of a page have cells of one name"
