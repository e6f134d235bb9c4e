"""Tables: read from traces alone, repeats found, nothing mixed that does not belong together, the best of
each column marked, and the clock that they show.
"""

import io
import math
import re
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.base.errors import InputError
from harness.results import files, summary
from harness.results.reader import Trace
from harness.results.report import columns, groups, plot, single
from harness.results.report.__main__ import main
from harness.results.report.estimate import Estimate, estimate
from tests import traces
from tests.reported import rendered, rows, rows_of, run_markdown, scored_run, section_of


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=9))
def test_the_interval_is_scipys(values):
    e = estimate(values)
    if np.ptp(values) == 0:
        assert e.half == 0
        return
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    assert (e.mean - e.half, e.mean + e.half) == pytest.approx((low, high), rel=1e-9, abs=1e-6)


def test_one_seed_has_no_interval_and_missing_values_do_not_count():
    assert estimate([2.5]) == Estimate(2.5, None, 1)
    assert estimate([None, 3.0, float("nan")]) == Estimate(3.0, None, 1)
    assert f"{estimate([2.5]):.2f} {estimate([1.0, 1.0]):.1f} {estimate([]):.1f}" == "2.50 1.0 -"
    assert f"{estimate([1.0, 2.0]):.2f}" == f"1.50 ± {stats.t.ppf(0.975, 1) * 0.5:.2f}"


@pytest.mark.parametrize("cores", [4, 1], ids=["wall", "cpu"])
def test_someone_who_distrusts_us_recomputes_every_column(tmp_path, capsys, monkeypatch, cores):
    run = traces.uneven(tmp_path / "RUN", cores)
    (shown,) = rows_of(capsys, run)
    epochs, comm, spans = (pd.read_parquet(run / f"{table}.parquet") for table in ("epochs", "comm", "spans"))
    best = epochs.loc[epochs["val_acc"].idxmax()]
    warm, sent = epochs[epochs["epoch"] > 0], comm[comm["epoch"] > 0]
    count = warm["epoch"].nunique()
    slowest = warm.loc[warm.groupby("epoch")["train_s"].idxmax()]
    busiest = warm.loc[warm.groupby("epoch")["cpu_s"].idxmax()]
    thread = spans[spans["kind"] != "comm"].merge(busiest[["epoch", "worker"]])
    cpu = {
        kind: thread[thread["kind"] == kind]["cpu_s"].sum() / count for kind in ("compute", "wait", "rest")
    }
    whole = busiest["cpu_s"].mean()
    megabytes = {
        "MB layer 0": sent["layer"] == 0,
        "MB hidden": sent["layer"] > 0,
        "MB other": sent["layer"] < 0,
        "MB per epoch": sent["layer"] > -2,
    }
    times = {
        "epoch s": slowest["train_s"].mean(),
        "compute s": slowest["compute_s"].mean(),
        "exposed comm s": slowest["exposed_s"].mean(),
        "rest s": slowest["rest_s"].mean(),
    }
    if cores == 1:
        communicating = cpu["wait"] + whole - sum(cpu.values())
        times = {
            "epoch CPU s": whole,
            "compute CPU s": cpu["compute"],
            "comm CPU s": communicating,
            "rest CPU s": cpu["rest"],
            "exposed wall s": slowest["exposed_s"].mean(),
        }
    scores = {
        "test acc %": 100 * best["test_acc"],
        "last acc %": 100 * epochs["test_acc"].iloc[-1],
        "test AUC %": 100 * best["test_auc"],
        "balanced acc %": 100 * best["test_balanced"],
    }
    expected = {
        **scores,
        **times,
        "CPU s all workers": warm.groupby("epoch")["cpu_s"].sum().mean(),
        "GFLOP per epoch": warm.groupby("epoch")["flops"].sum().mean() / 1e9,
        **{name: sent[rows_of]["bytes"].sum() / 1e6 / count for name, rows_of in megabytes.items()},
        "MB per run": comm["bytes"].sum() / 1e6,
    }
    assert [*expected] == [name for name in list(shown)[5:] if name != "majority %"] and len(
        set(expected.values())
    ) == len(expected), "no two columns could be mistaken"
    assert {name: float(value) for name, value in shown.items() if name in expected} == pytest.approx(
        expected, abs=6e-4
    )
    # And as docs/trace.md says to.
    page = (Path(__file__).resolve().parents[1] / "docs" / "trace.md").read_text()
    code = textwrap.dedent(page[page.index("    import json, pandas\n") :].split("\n\n")[0])
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/trace.md", "exec"), {})
    assert f"{float(capsys.readouterr().out):.4f}" == shown["epoch s" if cores == 4 else "epoch CPU s"]


def test_the_first_epoch_is_left_out_of_means_and_counted_in_totals(tmp_path):
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    made = [
        traces.epoch(
            number,
            segments=[("compute", "forward", long)],
            sent={(0, "forward", "features", 1): (1, int(long) * 10)},
        )
        for number, long in enumerate((10.0, 1.0, 2.0))
    ]
    s = summary.summarise(traces.write(run, made, peak=2**20))
    assert (s["epoch_s"], s["epoch_median_s"], s["first_epoch_s"], s["train_total_s"]) == (1.5, 1.5, 10, 13)
    assert (s["bytes_epoch"]["layer_0"], s["bytes_first_epoch"], s["bytes_total"]) == (15, 100, 130)
    assert (s["rows_total"], s["peak_rss_max"], s["peak_rss_sum"]) == (3, 2**20, 2**20)
    assert any("means over epochs 2 to 3: the first" in note for note in s["notes"])
    assert s["final"] is None and s["best"] is None


def test_where_there_is_one_epoch_the_note_says_that_values_are_of_it(tmp_path, capsys):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(1), close=False)
    assert any("of one epoch, the first, which compiles" in note for note in summary.summarise(run)["notes"])
    assert main(["table", "--all", str(tmp_path)]) == 0
    assert "those of a run with one epoch, and its MB, are of that epoch" in capsys.readouterr().out


def test_where_no_vertex_validates_the_last_evaluation_counts_and_where_none_tests_no_score(tmp_path, capsys):
    scores = [traces.scored(0.5, float("nan"), 0.1 * number) for number in range(2)]
    run = scored_run(tmp_path / "a", [*scores, None])
    s = Trace(run).summary
    assert s["best"]["epoch"] == s["final"]["epoch"] == 1 and s["best"]["test"] == pytest.approx(0.1)
    assert s["best"]["val"] is None and "10.00 % at the best validation (none, epoch 2)" in rendered(
        single.run_table(run)
    )
    run = scored_run(tmp_path / "b", [traces.scored(0.5, 0.5, float("nan"))])
    assert rows_of(capsys, run)[0]["test acc %"] == "-"


@pytest.mark.parametrize(
    "scores, leads",
    [
        ({"val": 0.5, "val_auc": 0.6, "test_auc": 0.7}, "auc"),
        ({"val": 0.5, "val_auc": 0.6}, "acc"),
        ({"val": 0.5, "test_auc": 0.7}, "acc"),
        ({"val": math.nan, "test_auc": 0.7}, "auc"),  # no vertex validates
    ],
)
def test_two_classes_are_led_by_auc_where_each_split_with_vertices_has_one(tmp_path, scores, leads):
    scores = {"val_auc": math.nan, "test_auc": math.nan, **scores}
    given = [traces.scored(0.5, scores.pop("val"), 0.5, **scores)]
    assert Trace(scored_run(tmp_path, given, stats={"classes": 2})).summary["score"] == leads


def test_nothing_traced_is_one_sentence(tmp_path, capsys):
    with pytest.raises(InputError, match="holds no finished epoch"):
        summary.summarise(traces.prepare(tmp_path / "a"))
    for path, said in (
        (tmp_path, "no run has finished an epoch in .*; let one run longer"),
        (tmp_path / "nowhere", ".*nowhere does not exist; give .*"),
    ):
        assert main(["table", str(path)]) == 2
        assert re.fullmatch(f"error: {said}\n", capsys.readouterr().err)


def test_beside_mini_batches_stand_training_vertices_per_second(tmp_path, capsys):
    """Of each epoch but the first the seeds of all workers; of full batches all training vertices."""
    full = traces.finished(tmp_path / "full", stats={"train": 140}, ran_on={"steps": 1})
    assert "train vertices" not in run_markdown(capsys, full), "alone it has no such column"
    composed = traces.config(system={"_target_": "somewhere.batched.Batched"})
    batched = traces.prepare(tmp_path / "batched", composed, stats={"train": 140}, steps=3)
    for worker, seeds in enumerate(([900, 60, 62], [900, 70, 70])):
        made = [
            traces.epoch(number, worker=worker, metrics={(-1, "seeds"): value})
            for number, value in enumerate(seeds)
        ]
        traces.write(batched, made, worker=worker)
    traces.close(batched)
    text = run_markdown(capsys, tmp_path)
    shown = {row["system"].split()[0]: row for row in rows(text)}
    assert "(3 steps per epoch)" in shown["batched"]["system"]
    for name, seeds in (("batched", (130 + 132) / 2), ("plain", 140)):
        rate, seconds = (shown[name][heading] for heading in ("train vertices / s", "epoch s"))
        assert float(rate.strip("* ")) == pytest.approx(seeds / float(seconds.strip("* ")), rel=0.01)
    assert "*" in shown["plain"]["train vertices / s"], "the most is the best"
    assert "compare over time, bytes and steps, and not over epochs" in text


def test_any_other_difference_makes_another_row_and_stands_in_its_name_or_column(tmp_path, capsys):
    plain = ("plain features=refetch model.hidden=64", "2", "metis", "5")
    changes = {
        plain: {},
        ("plain features=once model.hidden=64", *plain[1:]): {"system__features": "once"},
        ("plain features=refetch model.hidden=16", *plain[1:]): {"model__hidden": 16},
        (plain[0], "3", "metis", "5"): {"gpus": 3},
        (plain[0], "2", "random", "5"): {"partition___target_": "harness.data.partition.assign.Random"},
        (plain[0], "2", "metis", "3"): {"epochs": 3},
        ("ours model.hidden=64", *plain[1:]): {"label": "ours"},
        ("mine model.hidden=64", *plain[1:]): {"system___target_": "elsewhere.mine.Mine"},
    }
    for number, change in enumerate(changes.values()):
        traces.finished(tmp_path / str(number), traces.config(**change))
    shown = rows_of(capsys, tmp_path)
    assert {(r["system"], r["workers"], r["partition"], r["epochs"]) for r in shown} == set(changes)


def test_rows_are_ordered_by_the_numbers_in_their_names(tmp_path, capsys):
    for hidden in (100, 9, 16):
        traces.finished(tmp_path / str(hidden), traces.config(model__hidden=hidden))
    named = [row["system"].rpartition("=")[2] for row in rows_of(capsys, tmp_path)]
    assert named == ["9", "16", "100"]


def test_a_twin_says_so_everywhere(tmp_path, capsys):
    twin = {"dataset__name": "reddit", "dataset__source": "twin", "dataset__scale": 0.05}
    run = traces.finished(tmp_path / "twin", traces.config(**twin))
    traces.finished(tmp_path / "real", traces.config(dataset__name="reddit"))
    assert Trace(run).summary["twin"] is True
    text = run_markdown(capsys, tmp_path)
    assert "**twin/reddit scale=0.05 (twin: a synthetic graph);" in text and "**reddit;" in text
    assert len(re.findall(r"^\| plain", text, re.M)) == 2  # and each in a table of its own
    figure = plot.breakdown(section_of(run), ["x"])
    assert any("twin/reddit scale=0.05 (twin: a synthetic graph)" in t.get_text() for t in figure.texts)
    assert "(twin)" in rendered(single.run_table(run))


def test_unfinished_runs_are_marked_and_never_averaged(tmp_path, capsys):
    traces.finished(tmp_path / "a", traces.config(seed=1))
    run = traces.prepare(tmp_path / "b", traces.config(seed=2))
    traces.stream(run, range(2), speed=5.0, close=False)
    traces.prepare(tmp_path / "c", traces.config(seed=3))
    assert main(["table", "--format", "markdown", "--all", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.err == f"left out {tmp_path / 'c'}: it has not finished an epoch\n"
    assert "Unfinished runs stand in rows of their own" in said.out
    done, going = rows(said.out)
    assert (done["system"], done["epochs"], done["seeds"], done["epoch s"]) == ("plain", "5", "1", "0.5800")
    assert (going["system"], going["epochs"], going["epoch s"]) == ("plain (unfinished)", "2 of 5", "2.9000")


def test_spans_are_let_go_of_once_the_summary_is_made(tmp_path):
    """They are most of a run's memory, and hundreds of runs may stand in one report."""
    traces.finished(tmp_path / "run", traces.config())
    ((group,), _) = groups.load([tmp_path])
    trace = group.first.trace
    assert "spans" not in vars(trace) and "epochs" in vars(trace)
    assert trace.spans["flops"].sum() == trace.epochs["flops"].sum()


def test_a_metric_that_a_system_records_is_a_column_by_its_name(tmp_path, capsys, refused):
    values = [{(0, "gap"): 9.0}, {(0, "gap"): 1.0, (1, "gap"): 2.0}, {(0, "gap"): 3.0, (1, "gap"): 6.0}]
    traces.measured(tmp_path / "of", values, traces.config(gpus=1, epochs=3, label="with"))
    traces.measured(tmp_path / "no", [{}, {}, {}], traces.config(gpus=1, epochs=3, label="without"))
    assert main(["table", str(tmp_path), "--format", "csv", "--metric", "gap"]) == 0
    shown = pd.read_csv(io.StringIO(capsys.readouterr().out)).set_index("system")["metric_gap"]
    assert shown["with"] == 3 and np.isnan(shown["without"])
    assert main(["table", "--format", "markdown", str(tmp_path), "--metric", "gap"]) == 0
    shown = {row["system"]: row["gap"] for row in rows(capsys.readouterr().out)}
    assert shown == {"with": "3", "without": "-"}
    refused(main, ["table", str(tmp_path), "--metric", "gab"], '--metric="gab" is not known')


ROLES = {"exact": "reference", "none": "control", "frugal": "", "good": ""}


def test_the_best_is_marked_and_bytes_are_told_as_a_ratio(tmp_path):
    measured = {"exact": (0.8, 1000), "none": (0.5, 1), "frugal": (0.6, 100), "good": (0.9, 500)}
    for name, (target, size) in measured.items():
        traces.of(tmp_path / name, name, target=target, size=size, ran_on={"role": ROLES[name]})
    traces.stream(traces.prepare(tmp_path / "half", traces.config()), range(2), target=1.0, size=1)
    section = section_of(tmp_path)
    names = [group.first.name for group in section.groups]
    mb = columns.ALL["mb_epoch"]
    for column, winner in ((columns.ACCURACY, "good"), (mb, "frugal")):
        assert [name for name, best in zip(names, section.best(column)) if best] == [winner]
    assert not any(section.best(columns.MAJORITY))
    cells = section.cells()
    headings, rows = list(cells.text), cells.marked("*").to_numpy().tolist()
    ratio = headings.index("MB / exact")
    assert ratio == headings.index("MB per epoch") + 1 and any(ratio in block for block in cells.blocks)
    exact = section.groups[names.index("exact")].estimate(mb.value).mean
    for group, row in zip(section.groups, rows):
        ours = group.estimate(mb.value).mean
        assert row[ratio] == f"{ours / exact:.3f}"
        assert row[ratio - 1] == f"{ours:.3f}{' *' if group.first.name == 'frugal' else ''}"
    assert any("* marks the best" in note for note in section.notes())


def test_what_is_not_told_apart_from_the_best_is_marked_too(tmp_path):
    scores = {"first": (0.9, 0.86), "near": (0.85, 0.89), "behind": (0.5, 0.51)}
    for name, targets in scores.items():
        for seed, target in enumerate(targets):
            traces.of(tmp_path / f"{name}{seed}", name, target=target, seed=seed, size=1000)
    section = section_of(tmp_path)
    marked = dict(zip((group.first.name for group in section.groups), section.best(columns.ACCURACY)))
    assert marked == {"first": True, "near": True, "behind": False}


def test_one_seed_beside_several_is_not_the_best(tmp_path):
    for name, seeds in (("lone", 1), ("whole", 3)):
        for seed in range(seeds):
            traces.of(tmp_path / f"{name}{seed}", name, target=0.9 if name == "lone" else 0.5, seed=seed)
    assert section_of(tmp_path).best(columns.ACCURACY) == [False, False]


def test_without_exact_training_there_is_no_ratio_and_of_equals_no_best(tmp_path):
    for name in ("one", "two"):
        traces.of(tmp_path / name, name)
    cells = section_of(tmp_path).cells()
    assert "MB / exact" not in cells.text and not cells.best.to_numpy().any()


def test_exact_training_that_fetches_features_alike_is_the_measure(tmp_path):
    for features, size in (("once", 10), ("refetch", 1000)):
        how = {"size": size, "ran_on": {"role": "reference"}}
        traces.of(tmp_path / features, "exact", system__features=features, **how)
    section = section_of(tmp_path)
    assert [section.ratio(group) for group in section.groups] == [1.0, 1.0]


def test_runs_of_unlike_length_are_told_and_have_no_best_sum(tmp_path):
    for name, epochs, size in (("long", 5, 1000), ("short", 3, 900)):
        traces.of(tmp_path / name, name, epochs=epochs, size=size)
    section = section_of(tmp_path)
    assert section.best(columns.ALL["mb_epoch"]) == [False, True]
    assert section.best(columns.ALL["mb_run"]) == [False, False]
    assert any("rows of unlike numbers of epochs are compared" in note for note in section.notes())
    assert not any("unlike numbers" in note for note in section_of(tmp_path / "long").notes())


def test_where_workers_outnumber_cores_cpu_seconds_are_shown_apart(tmp_path, capsys):
    crowded = traces.finished(tmp_path / "crowded", traces.config(), cores=1)
    traces.finished(tmp_path / "roomy", traces.config(), cores=2)
    s = Trace(crowded).summary
    assert s["clock"] == "cpu" and any("2 workers outnumber 1 core:" in note for note in s["notes"])
    text = run_markdown(capsys, tmp_path)
    first, second = text.split("\n\n**")
    cpu, wall = (first, second) if "1 cores" in first else (second, first)
    assert "epoch CPU s" in cpu and "epoch s" not in cpu and "workers outnumber cores" in cpu
    assert "epoch s" in wall and not any(
        f"{part} CPU s" in wall for part in ("epoch", "compute", "comm", "rest")
    )
    assert rows(cpu)[0]["epoch CPU s"] == "0.4300"
    figure = plot.breakdown(section_of(crowded), ["x"])
    assert "CPU s (workers outnumber cores)" in figure.axes[0].get_xlabel()


def test_a_machine_busy_with_something_else_is_told(tmp_path, capsys):
    run, made = traces.prepare(tmp_path, traces.config(gpus=1)), [traces.epoch(number) for number in range(3)]
    for each in made:
        each.spans[0].cpu = 0.3  # of 0.5 s
    s = summary.summarise(traces.write(run, made))
    assert s["core_share"] == pytest.approx(0.6) and any("had a core for 60 %" in note for note in s["notes"])
    assert "In 1 run other programs took a share of the cores: its wall time is too long" in run_markdown(
        capsys, run
    )
    assert "core" not in "".join(summary.summarise(traces.finished(tmp_path / "alone"))["notes"])


def test_on_a_gpu_the_wall_clock_stands(tmp_path):
    run = traces.prepare(tmp_path, traces.config(device="auto"), cores=1)
    files.write_json_atomic(run / "environment.json", {**traces.ENVIRONMENT, "cores": 1, "gpus": ["X"]})
    traces.stream(run, range(2))
    s = summary.summarise(run)
    assert s["clock"] == "wall" and any("2 workers shared 1 GPU" in note for note in s["notes"])


@pytest.mark.parametrize("told, sampled", [(0.02, 0.02), (7.0, 0.05)])
def test_cpu_of_threads_that_sample_beside_the_training_is_no_communication(tmp_path, told, sampled):
    """It stands with the rest; what was sampled before the epoch began is not in the epoch's seconds."""
    run = traces.prepare(tmp_path, traces.config(gpus=1))
    metrics = {(-1, "sampler_s"): told}
    made = [traces.epoch(number, transport_cpu=0.05, metrics=metrics) for number in range(3)]
    s = summary.summarise(traces.write(run, made))
    cpu = s["cpu_slowest"]
    assert (cpu["sampler_s"], cpu["other_threads_s"]) == pytest.approx((sampled, 0.05 - sampled))
    assert columns.ALL["comm_cpu_s"].value(s) == pytest.approx(0.05 - sampled)
    assert columns.ALL["rest_cpu_s"].value(s) == pytest.approx(0.1 + sampled)
