"""The table in every format has the same rows, marks the best of each column, and keeps the ratio; where
somebody looks at it no number is cut, and it is plain text where nobody does.
"""

import csv
import io
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.base import tables
from harness.base.terminal import counted
from harness.results import files
from harness.results.reader import Trace
from harness.results.report import columns, formats, groups, single, table
from harness.results.report.__main__ import main
from harness.results.report.estimate import estimate
from tests import traces
from tests.reported import read_once, rendered, rows, run, runs, section_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Exact training with two seeds, and a system that sends a tenth, whose name no format takes as it is."""
    folder = tmp_path_factory.mktemp("runs")
    for name, role, size in (("exact", "reference", 1000), ("frugal", "", 100)):
        for seed in (1, 2):
            label = "50 % & a_b|<c>" if not role else None
            how = {"size": size, "speed": seed, "ran_on": {"role": role}}
            traces.of(folder / f"{name}{seed}", name, seed=seed, label=label, **how)
    with read_once():
        yield folder


def printed(capsys, *arguments) -> str:
    assert main([str(argument) for argument in arguments]) == 0
    return capsys.readouterr().out


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
    assert "\\bfseries" in text and "MB / exact" in text
    (caption,) = re.findall(r"\\caption\{(.*)\}", text)
    assert caption.startswith("cora; Test CPU, 4 cores, 2 workers, metis, 5 epochs, 2 seeds.")
    assert all(f"% {note}" in whole.splitlines() for note in section.notes("Bold"))
    assert not re.search(r"(?<!\\)%", text), "a % begins a comment"
    assert text.count("{") - text.count("\\{") == text.count("}") - text.count("\\}")


def test_csv_has_the_numbers_in_full_the_best_and_the_ratio(folder, capsys, tmp_path):
    text = printed(capsys, "table", folder, "--format", "csv")
    data = pd.read_csv(io.StringIO(text)).set_index("system")
    for group in groups.load([folder])[0]:
        row = data.loc[group.label]
        for key, column in columns.ALL.items():
            mean = table.estimate_of(group, column).mean
            assert pd.isna(row[key]) or row[key] == mean, key
        each = [run.summary["epoch_s"] for run in group.runs]
        assert row["epoch_s"] == np.mean(each) and row["epoch_s_half95"] == estimate(each).half
    frugal = data.loc["50 % & a_b|<c>"]
    assert frugal["mb_exact_ratio"] == frugal["mb_epoch"] / data.loc["exact", "mb_epoch"]
    assert {"mb_epoch", "mb_run"} <= set(frugal["best_of"].split())
    assert pd.isna(data.loc["exact", "best_of"])
    assert [*frugal[["dataset", "twin", "clock", "seeds"]]] == ["cora", False, "wall", 2]
    assert pd.isna(frugal["epoch_cpu_s"])


def test_in_a_csv_the_columns_that_two_clocks_share_stand_once(tmp_path):
    for name, cores in (("roomy", 4), ("crowded", 1)):
        traces.finished(tmp_path / name, traces.config(), cores=cores)
    header, *both = csv.reader(io.StringIO(formats.csv(groups.load([tmp_path])[0])))
    assert len(header) == len(set(header)) and all(len(row) == len(header) for row in both)
    assert [row[header.index("exposed_s")] != "" for row in both] == [True, True]


def test_markdown_marks_the_best_and_escapes_what_would_end_a_cell(folder, capsys):
    text = printed(capsys, "table", folder, "--format", "markdown")
    frugal, exact = rows(text)
    assert frugal["system"] == r"50 % & a_b\|<c>" and frugal["MB per epoch"].endswith(" *")
    assert exact["MB / exact"] == "1.000" and float(frugal["MB / exact"]) < 0.2
    assert len({line.count(" | ") for line in text.splitlines() if line.startswith("| ")}) == 1
    assert "\n- &ast; marks the best" in text, "a bare star begins a list of its own"


def test_all_columns_have_the_difference_to_exact_training_with_one_seed_too(tmp_path, capsys):
    run(tmp_path, "exact", 1, 0.8, role="reference")
    run(tmp_path, "other", 1, 0.7)
    table = printed(capsys, "table", tmp_path, "--all", "--format", "markdown")
    assert {each["system"]: each["minus exact"] for each in rows(table)} == {"exact": "", "other": "-10.00"}


def test_few_columns_say_what_they_say_in_the_whole_table(folder, capsys):
    few = rows(printed(capsys, "table", folder, "--format", "markdown"))
    whole = rows(printed(capsys, "table", folder, "--format", "markdown", "--all"))
    assert list(few[0]) == [
        *("system", "test acc %", "minus exact", "MB per epoch", "MB / exact", "epoch s", "seeds")
    ]
    assert few == [{heading: row[heading] for heading in few[0]} for row in whole]


@pytest.mark.parametrize(
    "names, speaks",
    [
        ("system,score", ()),
        ("system,time", ("Times are",)),
        ("system,mb_epoch", ("MB per epoch are",)),
        ("system,time,mb_epoch", ("Times are", "MB per epoch are")),
        ("system,less_exact", ("minus exact is",)),
    ],
)
def test_notes_speak_of_columns_that_are_there(folder, capsys, names, speaks):
    _, _, notes = printed(capsys, "table", folder, "--columns", names, "--format", "markdown").rpartition("|")
    known = ("Times are", "MB per epoch are", "minus exact is")
    assert tuple(each for each in known if each in notes) == speaks


def test_columns_that_are_named_stand_in_their_order_and_all_are_known_by_their_name_in_a_csv(folder, capsys):
    shown = rows(
        printed(capsys, "table", folder, "--columns", "epoch s, system,by_seed", "--format", "markdown")
    )
    assert list(shown[0]) == ["epoch s", "system", "by seed"]
    section = section_of(folder)
    held = {column.key for block in section.blocks for column in block}
    assert held <= set(section.cells().names) and held <= set(formats.numbers(section.groups))


@pytest.mark.parametrize(
    "words, said",
    [
        ("table --columns mb_epoc", '--columns="mb_epoc" is not known; did you mean "mb_epoch"?'),
        ("table --columns system,", '--columns="" is not known'),
        ("table --columns less_fixed", '--columns="less_fixed" is not known'),
        ("plot --x=", '--x "" is not a key of these runs'),
        ("table --columns system --format csv", "--columns is for text and markdown, and csv has every"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_sentence(
    folder, refused, words, said, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    command, *options = words.split()
    refused(main, [command, str(folder), *options], f"error: {said}")
    assert not list(tmp_path.iterdir())


def test_a_bare_pattern_is_told_to_be_quoted(folder, capsys):
    assert main(["compare", str(folder), str(folder), str(folder)]) == 2
    assert capsys.readouterr().err == (
        "error: report compare has two sides, and 3 were given: put each pattern in quotes\n"
    )


def test_a_row_says_in_its_name_what_rows_do_not_share(tmp_path, capsys):
    for workers, epochs in ((2, 2), (3, 3)):
        traces.finished(tmp_path / str(workers), traces.config(gpus=workers, epochs=epochs))
    text = printed(capsys, "table", tmp_path)
    assert "plain (2 workers, 2 epochs)" in text and "plain (3 workers, 3 epochs)" in text
    shown = rows(printed(capsys, "table", tmp_path, "--columns", "system,workers", "--format", "markdown"))
    assert [row["system"] for row in shown] == ["plain (2 epochs)", "plain (3 epochs)"]


@pytest.mark.parametrize(
    "scores, note",
    [([0.7, 0.6, 0.8], "not told from exact"), ([0.81, 0.69, 0.9], "ahead of exact"), ([0.2, 0.1, 0.3], "")],
)
def test_a_note_says_where_exact_training_is_not_ahead_of_the_control(tmp_path, capsys, scores, note):
    runs(tmp_path, "exact", [0.71, 0.59, 0.80], role="reference")
    runs(tmp_path, "control", scores, role="control")
    shown = {row["system"]: row for row in rows(printed(capsys, "table", tmp_path, "--format", "markdown"))}
    assert shown["control"].get("note", "") == note and shown["exact"].get("note", "") == ""


def test_no_section_is_lost_in_any_format(folder, tmp_path):
    traces.finished(tmp_path / "other", traces.config(dataset__name="dblp"))
    compared = groups.load([folder, tmp_path])[0]
    for name, made in formats.FORMATS.items():
        text = made(compared)
        assert "cora" in text and "dblp" in text, name


@pytest.mark.parametrize("width", [80, 160])
def test_on_a_terminal_no_figure_is_cut_whatever_the_names(tmp_path, width):
    for number, staleness in enumerate(("epoch_fixed", "variation_gap")):
        for seed in (1, 2):
            label = f"a system whose name is {'very ' * 20}long"
            composed = traces.config(seed=seed, system__staleness=staleness, label=label)
            traces.finished(tmp_path / f"{number}-{seed}", composed, speed=seed, size=10**9)
    compared, _ = groups.load([tmp_path])
    text = "".join(rendered(part, width) for part in formats.rich_tables(compared, width))
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for column in (columns.ACCURACY, columns.LAST, *columns.times("wall"), *columns.BYTES):
        e = compared[0].estimate(column.value)
        assert f"{e.mean:{column.digits}}" in text
    assert "staleness=variation_gap" in text
    few = [part for part in formats.rich_tables(compared, width, ()) if hasattr(part, "title")]
    assert max(len(line) for part in few for line in rendered(part, width).splitlines()) <= width


@given(
    rows=st.lists(st.tuples(*[st.from_regex(r"[a-z]{1,9}( [a-z/]{1,30}){0,3}", fullmatch=True)] * 3)),
    numbers=st.booleans(),
    width=st.integers(40, 120),
)
def test_on_a_terminal_no_word_is_broken(rows, numbers, width):
    headings = ["run", "state of it", "MB"]
    shown = rendered(tables.shown(headings, rows, words=headings[: 2 if numbers else 3]), width)
    assert max(map(len, shown.splitlines()), default=0) <= width
    told = set(shown.replace(",", " ").split())
    assert {word for row in rows for cell in row for word in cell.split()} <= told


@pytest.mark.parametrize("width", [40, 400])
@pytest.mark.parametrize("names", [(), None])
def test_on_a_terminal_unfinished_runs_are_yellow_however_wide_it_is(tmp_path, width, names):
    run(tmp_path, "done", 1, 0.7)
    composed = traces.config(gpus=1, epochs=2, system___target_="a.going.S")
    traces.stream(traces.prepare(tmp_path / "going", composed), range(1), workers=1)
    shown = formats.rich_tables(groups.load([tmp_path])[0], width, names)
    styles = [[row.style for row in part.rows] for part in shown if hasattr(part, "rows")]
    assert styles and all(each == [None, "yellow"] for each in styles)


def test_plain_text_where_nobody_looks(tmp_path, capsys):
    traces.finished(tmp_path)
    assert main(["table", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("cora; Test CPU, 4 cores; 2 workers, metis, 5 epochs\nsystem ")
    assert "\x1b" not in text and "│" not in text


def test_what_is_counted_has_its_plural():
    told = {1: "1 run", "1": "1 run", 0: "0 runs", "2 of 5": "2 of 5 runs"}
    assert {number: counted(number, "run") for number in told} == told


def test_the_run_table_says_where_time_and_bytes_went(tmp_path):
    text = rendered(single.run_table(traces.finished(tmp_path, size=10**6)))
    assert "plain on cora, 2 workers, metis, seed 1" in text
    parts = "0.3300 s compute (57 %) + 0.2000 s exposed communication (34 %) + 0.0500 s rest (9 %)"
    assert f"0.5800 s per epoch = {parts}" in text
    assert re.search(r"halo +2\.000 +4\.000 +0\.000 +6\.000", text)
    best = Trace(tmp_path).summary["best"]
    assert f"{100 * best['test']:.2f} % at the best validation" in text


def ended(folder, system: str) -> dict[str, str]:
    """What the end of the first run of a system says, by the first word of a line."""
    path = min(folder.glob(f"{system}1*"))
    lines = rendered(single.run_table(path, verbose=False)).splitlines()[1:]
    return {line.split()[0]: " ".join(line.split()[1:]) for line in lines}


def test_a_runs_end_says_score_bytes_and_time_alone(tmp_path):
    run(tmp_path, "sent", 1, 0.7, size=2_000_000, seconds=0.5)
    assert ended(tmp_path, "sent") == {
        "score": "test accuracy 70.00 % at the best validation (50.00 %, epoch 1)",
        "sent": "2.000 MB per epoch after the first, 4.0 MB in all",
        "time": "0.5000 s per epoch",
    }
    run(tmp_path, "little", 1, 0.7, size=6_000)
    assert ended(tmp_path, "little")["sent"] == "0.006 MB per epoch after the first, 0.012 MB in all"


def test_a_runs_end_says_what_it_is_beside_exact_training(tmp_path):
    runs(tmp_path, "exact", [0.70, 0.60, 0.80], size=2_000_000, seconds=0.5, role="reference")
    runs(tmp_path, "coded", [0.69, 0.59, 0.79], size=1_000_000, seconds=0.4)
    run(tmp_path, "once", 1, 0.72, size=500_000)
    assert "exact" not in ended(tmp_path, "exact")
    assert ended(tmp_path, "coded")["beside"] == (
        "exact -1.00 points (told apart), 0.500 of its bytes, 0.80 of its time; exact, 3 seeds"
    )
    assert ended(tmp_path, "once")["beside"].startswith("exact +2.00 points (one seed), 0.250 of its bytes")


def test_exact_training_at_another_setting_is_not_beside_a_run(tmp_path):
    run(tmp_path, "exact", 1, 0.7, role="reference", model__hidden=128)
    run(tmp_path, "coded", 1, 0.7)
    assert "beside" not in ended(tmp_path, "coded")


@pytest.mark.parametrize(
    "file, content",
    [
        ("config.yaml", {"no": "config"}),
        ("shards.json", []),
        ("summary.json", {"epochs": 2, "diverged": None, "files": {"resolved.json": "of another file"}}),
    ],
)
def test_a_damaged_run_beside_one_does_not_keep_its_end_from_being_told(tmp_path, file, content):
    run(tmp_path, "exact", 1, 0.7, role="reference")
    run(tmp_path, "coded", 1, 0.7)
    path = next(tmp_path.glob("exact1*")) / file
    if path.suffix == ".yaml":
        files.write_yaml_atomic(path, yaml.safe_dump(content))
    else:
        files.write_json_atomic(path, content)
    assert set(ended(tmp_path, "coded")) == {"score", "sent", "time"}


def test_damaged_repeats_beside_a_run_are_left_out_of_its_end(tmp_path):
    for name, role in (("exact", "reference"), ("coded", "")):
        runs(tmp_path, name, [0.7, 0.7], role=role)
        (next(tmp_path.glob(f"{name}2*")) / "comm.parquet").write_text("damaged")
    assert "(one seed)" in ended(tmp_path, "coded")["beside"]
