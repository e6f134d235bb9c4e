"""Tables where somebody looks at them: no number is cut, and plain text where nobody does."""

from __future__ import annotations

import re

import pytest

from harness.base.terminal import counted
from harness.results.reader import Trace
from harness.results.report import columns, formats, groups, single
from harness.results.report.__main__ import main
from tests import traces
from tests.reported import rendered


@pytest.mark.parametrize("width", [80, 160])
def test_on_a_terminal_no_figure_is_cut(tmp_path, width):
    for number, staleness in enumerate(("epoch_fixed", "variation_gap")):
        for seed in (1, 2):
            composed = traces.config(seed=seed, system__staleness=staleness)
            traces.finished(tmp_path / f"{number}-{seed}", composed, speed=seed, size=10**9)
    compared, _ = groups.load([tmp_path])
    text = "".join(rendered(part, width) for part in formats.rich_tables(compared, width))
    assert "…" not in text and max(map(len, text.splitlines())) <= width
    for column in (columns.ACCURACY, columns.LAST, *columns.times("wall"), *columns.BYTES):
        e = compared[0].estimate(column.value)
        assert f"{e.mean:{column.digits}}" in text
    assert "staleness=variation_gap" in text


def test_plain_text_where_nobody_looks(tmp_path, capsys):
    traces.finished(tmp_path)
    assert main(["table", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert (
        text.startswith("cora; Test CPU, 4 cores\nsystem  workers  partition")
        and "\x1b" not in text
        and "│" not in text
    )


@pytest.mark.parametrize(
    "number, told", [(1, "1 run"), ("1", "1 run"), (0, "0 runs"), ("2 of 5", "2 of 5 runs")]
)
def test_what_is_counted_has_its_plural(number, told):
    assert counted(number, "run") == told


def test_the_run_table_says_where_time_and_bytes_went(tmp_path):
    text = rendered(single.run_table(traces.finished(tmp_path, size=10**6)))
    assert "plain on cora, 2 workers, metis, seed 1" in text
    assert (
        "0.5800 s = 0.3300 s compute (57 %) + 0.2000 s exposed communication (34 %) + 0.0500 s rest (9 %)"
        in text
    )
    assert re.search(r"halo +2\.000 +4\.000 +0\.000 +6\.000", text)
    best = Trace(tmp_path).summary["best"]
    assert f"{100 * best['test']:.2f} % at the best validation" in text
