"""What tables say of scores: which one leads, what diverged, what the control shows."""

import csv
import io
import math

import pytest

from harness.papers.figures import panels
from harness.results import reader, summary
from harness.results.report import (
    columns,
    compare,
    curves,
    formats,
    groups,
    plot,
    single,
    style,
    table,
)
from harness.results.report.estimate import estimate
from tests import reported, traces
from tests.reported import read_once, rendered, rows, rows_of, run_markdown, scored_run, section_of

TWO = {
    "graph": "cora",
    "classes": 2,
    "multilabel": False,
    "majority": {"train": 0.5, "val": 0.6, "test": 0.75},
}


TURNING = [  # accuracy is best in epoch 0, AUC in epoch 1
    traces.scored(0.9, 0.8, 0.78, val_auc=0.5, test_auc=0.51, val_balanced=0.5, test_balanced=0.52),
    traces.scored(0.9, 0.7, 0.70, val_auc=0.9, test_auc=0.88, val_balanced=0.6, test_balanced=0.62),
    traces.scored(0.9, 0.6, 0.60, val_auc=0.8, test_auc=0.77, val_balanced=0.7, test_balanced=0.72),
]


@pytest.fixture(autouse=True)
def each_run_once():
    """A test shows the same runs as text, as a picture and as a table, and changes none that it has shown."""
    with read_once():
        yield


@pytest.mark.parametrize(
    "classes, leads, at, headings, scores",
    [
        (2, "AUC", 1, "test AUC %, last AUC %, test acc %", ["88.00", "77.00", "70.00", "62.00", "75.00"]),
        (
            3,
            "accuracy",
            0,
            "test acc %, last acc %, test AUC %",
            ["78.00", "60.00", "51.00", "52.00", "75.00"],
        ),
    ],
)
def test_two_classes_are_led_by_auc_and_more_by_accuracy(
    tmp_path, capsys, classes, leads, at, headings, scores
):
    run = scored_run(tmp_path, TURNING, stats={**TWO, "classes": classes})
    s = reader.Trace(run).summary
    assert (s["score"], s["best"]["epoch"], s["final"]["epoch"]) == (leads.lower()[:3], at, 2)
    assert s["majority"] == TWO["majority"]
    (shown,) = rows(run_markdown(capsys, run))
    headings = [*headings.split(", "), "balanced acc %", "majority %"]
    assert list(shown.items())[5:10] == list(zip(headings, scores))
    told = " ".join(rendered(single.run_table(run)).split())
    for said in (
        f"test {leads} {scores[0]} %",
        f", epoch {at + 1})",
        f"{scores[1]} % at the last epoch (3)",
        f"balanced accuracy {scores[3]} %",
        "the same answer for every vertex: 75.00 %",
    ):
        assert said in told


def test_dot_label_and_table_are_the_mean_of_each_seeds_best(tmp_path):
    """Seeds that are best in different epochs: the curve of means goes past below."""
    for seed, scores in enumerate((TURNING, TURNING[::-1])):
        scored_run(tmp_path / str(seed), scores, traces.config(gpus=1, epochs=3, seed=seed))
    section = section_of(tmp_path)
    figure = curves.accuracy_over(curves.AXES[2], section, ["x"], style.strokes_of(section.groups))
    drawn, shown = figure.axes[0], table.estimate_of(section.groups[0], columns.ACCURACY).mean
    assert shown == pytest.approx(78) and max(drawn.lines[0].get_ydata()) == pytest.approx(70)
    assert drawn.lines[1].get_xdata() == [2] and drawn.lines[1].get_ydata() == pytest.approx([shown])
    assert drawn.texts[-1].get_text() == "x  78.0 %"


def test_repeats_of_a_seed_are_one_sample_of_a_curve(tmp_path):
    for name, seed, scores in (("a", 0, TURNING), ("b", 0, TURNING), ("c", 1, TURNING[::-1])):
        scored_run(tmp_path / name, scores, traces.config(gpus=1, epochs=3, seed=seed))
    (group,) = section_of(tmp_path).groups
    assert list(curves.band(group, "acc")["score"]) == pytest.approx([69, 70, 69])


def lines_of(figure) -> dict[str, list[float]]:
    """What a picture's lines show, by label; dots at the best validation left out."""
    drawn = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    return {label: values for label, values in drawn.items() if len(values) > 1}


def test_a_run_without_a_score_does_not_decide_which_score_leads(tmp_path, capsys):
    """One that diverged before its first evaluation, or was never evaluated, of a graph with two classes."""
    scored_run(tmp_path / "a", TURNING, stats=TWO)
    for label, loss in (("diverged", math.nan), ("blind", 1.0)):
        composed = traces.config(gpus=1, epochs=3, label=label)
        scored_run(tmp_path / label, [None] * 3, composed, [loss] * 3, stats=TWO)
    shown = rows_of(capsys, tmp_path)
    assert sorted(row["test AUC %"].strip("* ") for row in shown) == ["-", "-", "88.00"]
    assert list(shown[0])[5:7] == ["test AUC %", "last AUC %"]


def test_a_picture_draws_the_score_that_its_axis_names(tmp_path):
    """Beside a run without AUC, whose test vertices have one label, accuracy is drawn of all."""
    scored_run(tmp_path / "new", TURNING, stats=TWO)
    plain = [{name: each[name] for name in ("train_acc", "val_acc", "test_acc")} for each in TURNING]
    scored_run(tmp_path / "old", plain, traces.config(gpus=1, epochs=3, label="old"), stats=TWO)
    compared, _ = groups.load([tmp_path])
    (section,) = table.sections(compared)
    strokes = style.strokes_of(compared)
    figure = curves.accuracy_over(curves.AXES[2], section, style.names_of(compared), strokes)
    assert figure.axes[0].get_ylabel() == "test accuracy, %"
    assert lines_of(figure) == {name: pytest.approx([78, 70, 60]) for name in ("old", "plain")}
    new, _ = groups.load([tmp_path / "new"])
    figure = panels.accuracy_panels(new, "Accuracy", ("epoch",), lambda group: group.label)
    assert figure.axes[0].get_ylabel() == "test AUC, %"
    assert lines_of(figure) == {"plain": pytest.approx([51, 88, 77])}


def test_labels_of_several_classes_are_scored_by_f1(tmp_path, capsys):
    run = scored_run(tmp_path, TURNING, stats={**TWO, "multilabel": True})
    assert list(rows_of(capsys, run)[0])[5:7] == ["test F1 %", "last F1 %"]
    assert "test F1 78.00 %" in " ".join(rendered(single.run_table(run)).split())


def test_logits_that_are_not_finite_are_a_divergence(tmp_path):
    made = [traces.epoch(number) for number in range(3)]
    made[2].metrics[-1, "not_finite_logits"] = 4
    run = traces.write(traces.prepare(tmp_path, traces.config(gpus=1)), made, scores=TURNING)
    assert summary.summarise(run)["diverged"] == 2


def test_a_run_that_diverged_says_so_and_has_no_accuracy(tmp_path, capsys):
    lost = [*TURNING[:2], traces.scored(math.nan, math.nan, math.nan)]
    for seed, scores, loss in ((1, TURNING, 1.0), (2, lost, math.nan)):
        composed = traces.config(gpus=1, epochs=7, seed=seed)
        scored_run(tmp_path / str(seed), scores, composed, [1.0, 1.0, loss])
    s = reader.Trace(tmp_path / "2").summary
    assert s["diverged"] == 2 and any("diverged: from epoch 3 on" in note for note in s["notes"])
    assert reader.Trace(tmp_path / "1").summary["diverged"] is None
    text = run_markdown(capsys, tmp_path)
    (shown,) = rows(text)
    assert [shown[name] for name in ("test acc %", "last acc %", "test AUC %", "balanced acc %")] == ["-"] * 4
    assert shown["by seed"] == "78.0 diverged" and shown["epochs"] == "3 of 7"
    assert "plain (metis, 1 worker) diverged (seed 2 in epoch 3): its loss or its logits were no" in text
    assert all(column.value(s) is None for column in columns.ALL.values() if column.scored)
    section = section_of(tmp_path)
    drawn = curves.accuracy_over(curves.AXES[2], section, ["x"], style.strokes_of(section.groups)).axes[0]
    assert drawn.texts[-1].get_text() == "x  diverged"
    assert list(drawn.lines[0].get_xdata()) == [1, 2], "only the epochs that every seed was evaluated in"
    panel = panels.accuracy_panels(section.groups, "Accuracy", ("epoch",), lambda group: "x").axes[0]
    assert [text.get_text() for text in panel.get_legend().get_texts()] == ["x (diverged)"]
    told = rendered(single.run_table(tmp_path / "2"))
    assert "diverged" in told and "%" not in told.split("note")[0].split("epoch ")[0]
    (row,) = csv.DictReader(io.StringIO(formats.csv(section.groups)))
    assert row["diverged"] == "1" and row["test_acc_percent"] == "" and row["by_seed"] == "78.0 diverged"


def control_runs(folder, reference, control, **changes):
    for role, values in (("reference", reference), ("control", control)):
        for seed, value in values.items():
            composed = traces.config(gpus=1, epochs=1, seed=seed, system___target_=f"a.{role}.S", **changes)
            scores = [traces.scored(0.5, 0.5, value)]
            scored_run(folder / f"{role}{seed}{len(changes)}", scores, composed, role=role)


@pytest.mark.parametrize("control, says", [
    ({1: 0.5, 2: 0.52, 3: 0.51}, None),
    ({1: 0.80, 2: 0.72, 3: 0.79}, "cannot tell"),
    ({1: 0.81, 2: 0.70, 3: 0.80}, "cannot tell"),
    ({1: 0.809, 2: 0.699, 3: 0.799}, None),
    ({2: 0.5}, "1 seed in common says nothing"),
])  # fmt: skip
def test_a_table_says_where_the_control_is_as_good(tmp_path, capsys, control, says):
    reference = {1: 0.81, 2: 0.70, 3: 0.80}
    control_runs(tmp_path, reference, control)
    text = run_markdown(capsys, tmp_path)
    for note in ("cannot tell", "1 seed in common says nothing"):
        assert (note in text) == (note == says)
    if says == "cannot tell":
        ahead = estimate(100 * (reference[seed] - control[seed]) for seed in reference)
        assert f"reference minus the control control is {ahead:.2f} points over 3 seeds" in text


def test_the_control_is_compared_under_its_own_setting_only(tmp_path):
    control_runs(tmp_path, {1: 0.8, 2: 0.8}, {})
    control_runs(tmp_path, {}, {1: 0.8, 2: 0.8}, partition___target_="harness.data.partition.assign.Random")
    compared, _ = groups.load([tmp_path])
    assert compare.cannot_tell(compared, columns.ACCURACY) == []


@pytest.mark.parametrize("stopped", ["reference", "control"])
def test_what_has_not_finished_is_compared_with_nothing(tmp_path, capsys, stopped):
    control_runs(tmp_path, {1: 0.8, 2: 0.8}, {1: 0.8, 2: 0.8})
    for path in tmp_path.glob(f"{stopped}*/summary.json"):
        path.unlink()
    text = run_markdown(capsys, tmp_path)
    assert "cannot tell" not in text
    less = {row["system"]: row["minus exact"] for row in rows(text)}
    assert less["control" if stopped == "reference" else "reference"] == ""


def test_a_difference_over_fewer_seeds_than_the_row_has_says_so(tmp_path, capsys):
    control_runs(tmp_path, {1: 0.81}, {1: 0.80, 2: 0.72, 3: 0.79})
    shown = {row["system"]: row["minus exact"] for row in rows_of(capsys, tmp_path)}
    assert shown["control"] == "-1.00 (1 of 3 seeds)"


def test_a_row_says_what_it_is_ahead_of_exact_training_by(tmp_path, capsys):
    control_runs(tmp_path, {1: 0.81, 2: 0.70, 3: 0.80}, {1: 0.80, 2: 0.72, 3: 0.79})
    shown = {row["system"]: row["minus exact"] for row in rows_of(capsys, tmp_path)}
    assert shown["control"].lstrip("+-") == f"{estimate([-1, 2, -1]):.2f}" and shown["reference"] == ""
    # With exact training on another partition, sending all rows, and with that on its own where it is there.
    for reference, less in (({}, -27.0), ({1: 0.4, 2: 0.4, 3: 0.4}, 10.0)):
        control_runs(
            tmp_path,
            reference,
            {1: 0.5, 2: 0.5, 3: 0.5},
            partition___target_="harness.data.partition.assign.Random",
            rows="needed",
        )
        shown = {(row["system"], row["partition"]): row["minus exact"] for row in rows_of(capsys, tmp_path)}
        assert float(shown["control", "random"].split(" ± ")[0]) == pytest.approx(less)


def test_at_the_end_of_each_run_of_a_sweep_a_finished_one_is_read_once(tmp_path, monkeypatch):
    """And again where it has been made anew; the table after the sweep reads none."""
    read, whole = [], compare.Run
    monkeypatch.setattr(compare, "Run", lambda path: read.append(path) or whole(path))
    reported.runs(tmp_path, "exact", [0.8, 0.7, 0.6], role="reference")
    reported.runs(tmp_path, "other", [0.7, 0.6, 0.5])
    for path in sorted(tmp_path.glob("other*")):
        assert "-10.00 points (" in rendered(single.run_table(path, verbose=False))
    assert len(read) == len(set(read)) == 6
    reported.run(tmp_path, "other", 3, 0.6)
    assert "-6.67 ± 14.34 points" in rendered(single.run_table(path, verbose=False))
    assert read[6:] == [path]
    monkeypatch.setattr(groups, "Run", None)
    table, _ = single.swept_table(["seed"], [({}, each) for each in tmp_path.glob("other*")])
    assert table.row_count == 1 and len(read) == 7


@pytest.mark.parametrize("diverged", ["reference", "control"])
def test_where_a_seed_diverged_there_is_no_difference_to_exact_training(tmp_path, capsys, diverged):
    """The mean over the other seeds would be of fewer, and flatter."""
    control_runs(tmp_path, {1: 0.8, 2: 0.7, 3: 0.8}, {1: 0.8, 2: 0.7, 3: 0.8})
    composed = traces.config(gpus=1, epochs=1, seed=3, system___target_=f"a.{diverged}.S")
    scored_run(tmp_path / f"{diverged}30", [None], composed, [math.nan], role=diverged)
    assert {row["minus exact"] for row in rows_of(capsys, tmp_path)} == {""}
    compared, _ = groups.load([tmp_path])
    assert not list(compare.ahead_of_controls(compared, columns.ACCURACY))


def test_asynchronous_training_is_compared_with_exact_training_too(tmp_path, capsys):
    """How often it is saved belongs to an asynchronous run, and to no synchronous one."""
    for role, value in (("reference", 0.8), ("other", 0.7)):
        for seed in (1, 2):
            target = {"system___target_": f"a.{role}.S"}
            composed = traces.config(gpus=1, epochs=1, seed=seed, checkpoint_every=20, **target)
            scored_run(tmp_path / f"{role}{seed}", [traces.scored(0.5, 0.5, value)], composed, role=role,
                       asynchronous=role == "other")  # fmt: skip
    shown = {row["system"]: row["minus exact"] for row in rows_of(capsys, tmp_path)}
    assert shown == {"other": "-10.00", "reference": ""}


@pytest.mark.parametrize("values, said, seeds", [
    ([(10, 0.114), (2, 0.5), (1, 0.9)], "90.0 50.0 11.4", [90, 50, 11.4]),
    ([(1, 0.5), (1, 0.6), (2, 0.8)], "55.0 80.0", [55, 80]),  # several runs of a seed are one sample
])  # fmt: skip
def test_values_by_seed_stand_beside_their_mean(tmp_path, capsys, values, said, seeds):
    for number, (seed, value) in enumerate(values):
        composed = traces.config(gpus=1, epochs=1, seed=seed)
        scored_run(tmp_path / str(number), [traces.scored(0.5, 0.5, value)], composed)
    (shown,) = rows_of(capsys, tmp_path)
    assert (shown["by seed"], shown["test acc %"]) == (said, f"{estimate(seeds):.2f}")


def test_in_a_picture_of_many_long_names_none_is_cut_or_lies_on_another(tmp_path):
    many = 14
    for number in range(many):
        knobs = {"a_rather_long_knob": f"variation_{number}", "another_knob": number / 7}
        traces.finished(
            tmp_path / str(number), traces.config(gpus=1, system={"_target_": "somewhere.plain.P", **knobs})
        )
    section = section_of(tmp_path)
    names = style.names_of(section.groups)
    figure = curves.accuracy_over(curves.AXES[0], section, names, style.strokes_of(section.groups))
    bars = plot.breakdown(section, names)
    for drawn, texts in ((figure, figure.axes[0].texts), (bars, bars.axes[0].get_yticklabels())):
        drawn.draw_without_rendering()
        boxes = sorted((t.get_window_extent() for t in texts if t.get_text()), key=lambda box: box.y0)
        assert len(boxes) == many
        assert all(below.y1 <= above.y0 + 1 for below, above in zip(boxes, boxes[1:]))
        width, height = drawn.bbox.width, drawn.bbox.height
        assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)
