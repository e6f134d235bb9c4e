"""Tables where somebody looks at them: no number is cut, and plain text where nobody does."""

import re

import pytest
import yaml

from harness.base.terminal import counted
from harness.results import files
from harness.results.reader import Trace
from harness.results.report import columns, formats, groups, single
from harness.results.report.__main__ import main
from tests import traces
from tests.reported import rendered, run, runs


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
