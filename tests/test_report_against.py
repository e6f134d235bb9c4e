"""Pictures against a swept knob and against cost: the tables' values, names apart, files that LaTeX takes."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from harness.results.report import columns, plot, plot_data, style, sweep_plots, table
from harness.results.report.__main__ import main
from harness.results.report.estimate import estimate
from tests import traces
from tests.reported import read_once, run, runs, section_of


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Two systems over three values of a knob with two seeds, and one without it."""
    folder = tmp_path_factory.mktemp("sweep")
    for system in ("alpha", "beta"):
        for bound in (1, 2, 8):
            for seed in (1, 2):
                target = 0.5 + 0.02 * bound + 0.01 * seed + 0.003 * (system == "beta")
                measured = {"target": target, "size": 100 * (10 - bound)}
                path = folder / f"{system}{bound}{seed}"
                traces.of(path, system, seed=seed, system__bound=bound, speed=bound, **measured)
    traces.of(folder / "exact", "exact", size=5000)
    with read_once():
        yield folder


def test_a_line_per_system_with_the_values_of_the_tables(sweep):
    section = section_of(sweep, x="system.bound")
    assert {group.label for group in section.groups} == {"alpha", "beta", "exact"}
    figure = sweep_plots.over_knob("system.bound", section)
    (legend,) = figure.legends
    assert sorted(text.get_text() for text in legend.get_texts()) == ["alpha", "beta", "exact"]
    data = plot_data.drawn(figure)
    data = data[data["kind"] == "line"]
    assert set(data["x_axis"]) == {"bound"}
    shown = (columns.ACCURACY, columns.ALL["mb_epoch"], columns.TIMES["wall"][0])
    for panel, column in enumerate(shown):
        for group in section.groups:
            bound, value = group.first.keys.get("system.bound"), table.estimate_of(group, column).mean
            there = data[(data["panel"] == panel) & (data["label"] == group.label)]
            there = there[there["x"] == bound] if bound else there
            assert any(there["y"].sub(value).abs() < 1e-9), (column, group.label)


def test_a_sweep_ticks_at_its_values_and_a_system_with_one_of_them_is_a_point_that_says_so(tmp_path):
    """A level line without a word would be read as measured at every value. Two seeds far apart have an
    interval that is longer than their mean."""
    for bound in (1, 2, 8):
        for seed, target in ((1, 0.05), (2, 0.6)):
            traces.of(tmp_path / f"{bound}{seed}", "alpha", seed=seed, system__bound=bound, target=target)
    traces.of(tmp_path / "one", "beta", system__bound=2)
    traces.of(tmp_path / "exact", "exact")
    figure = sweep_plots.over_knob("system.bound", section_of(tmp_path, x="system.bound"))
    (legend,) = figure.legends
    named = sorted(" ".join(text.get_text().split()) for text in legend.get_texts())
    assert named == ["alpha", "beta, only bound=2", "exact"]
    for ax in figure.axes:
        assert list(ax.get_xticks()) == [1, 2, 8] and ax.get_xlabel() == "bound"
        assert ax.get_ylim()[0] >= 0
        dotted = [list(line.get_xdata()) for line in ax.lines if line.get_linestyle() == ":"]
        assert dotted == [[0, 1], [2]]  # of the panel's width, and of the key's axis
        assert [line.get_label() for line in ax.lines].count("exact") == 1


def test_of_values_of_a_sweep_that_are_close_those_that_fit_side_by_side_have_a_tick(tmp_path):
    for number, value in enumerate((0.1, 0.5, 0.9, 0.95, 0.99)):
        traces.of(tmp_path / str(number), "alpha", system__share=value)
    figure = sweep_plots.over_knob("system.share", section_of(tmp_path, x="system.share"))
    figure.draw_without_rendering()
    for ax in figure.axes:
        boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in zip(boxes, boxes[1:]))
        assert list(ax.get_xticks()) == [0.1, 0.5, 0.99]
    assert sweep_plots.apart([10, 100, 105, 1000], log=True) == [10, 100, 1000]


def test_a_key_of_words_or_of_workers_is_an_axis_too(tmp_path):
    for number, (norm, workers) in enumerate((("max", 1), ("mean", 1), ("max", 2), ("mean", 2))):
        composed = traces.config(workers=workers, system__norm=norm)
        composed.pop("gpus")
        traces.finished(tmp_path / str(number), composed, target=0.5 + number / 10)
    by_norm = sweep_plots.over_knob("system.norm", section_of(tmp_path, x="system.norm"))
    assert [label.get_text() for label in by_norm.axes[0].get_xticklabels()] == ["max", "mean"]
    assert sorted(t.get_text() for t in by_norm.legends[0].get_texts()) == [
        "plain 1 worker",
        "plain 2 workers",
    ]
    by_workers = plot_data.drawn(sweep_plots.over_knob("workers", section_of(tmp_path, x="workers")))
    assert set(by_workers[by_workers["kind"] == "line"]["x"]) == {1, 2}


def test_a_key_that_was_not_swept_is_refused(sweep, tmp_path, refused):
    words = ["plot", str(sweep), "--out", str(tmp_path / "made"), "--x"]
    refused(main, [*words, "model.hidden"], "all runs that have this key have the value 64")
    refused(main, [*words, "seed"], "--x seed: values are means over seeds; give another key")
    assert not (tmp_path / "made").exists()


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(points):
    found = sweep_plots.front(points)
    beaten = [p for p in points if any(q != p and q[0] <= p[0] and q[1] >= p[1] for q in points)]
    assert set(found) == set(points) - set(beaten) and found == sorted(found)


def test_accuracy_against_cost_has_a_point_per_row_of_the_table(sweep):
    section = section_of(sweep)
    data = plot_data.drawn(sweep_plots.pareto(section))
    for panel, cost in enumerate((columns.ALL["mb_epoch"], columns.TIMES["wall"][0])):
        points = data[(data["panel"] == panel) & (data["label"] != "Pareto front")]
        for group in section.groups:
            x, y = (table.estimate_of(group, column) for column in (cost, columns.ACCURACY))
            own = points[points["label"].str.startswith(group.label)]
            found = own[(own["x"].sub(x.mean).abs() < 1e-9) & (own["y"].sub(y.mean).abs() < 1e-9)]
            assert "line" in set(found["kind"]), group.label
            ends = own[own["kind"].isin(("low", "high"))].query("x == @x.mean or y == @y.mean")
            assert y.half is None or {y.mean - y.half, y.mean + y.half} <= set(ends["y"]), group.label


def test_without_a_score_there_is_no_front_and_the_title_names_the_score_as_axes_do(sweep, monkeypatch):
    """These runs have no AUC, as runs that diverged have no score."""
    for module in (columns, table):
        monkeypatch.setattr(module, "leading", lambda groups: "auc")
    figure = sweep_plots.pareto(section_of(sweep))
    assert "Test AUC against its cost" in [text.get_text() for text in figure.texts]
    (legend,) = figure.legends
    assert "Pareto front" not in {text.get_text() for text in legend.get_texts()}


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_formats_and_names_that_latex_takes(tmp_path, sweep, ending):
    given = ["--x", "system.bound", "--pareto", "--format", ending, "--out", str(tmp_path)]
    assert main(["plot", str(sweep), *given]) == 0
    made = sorted(tmp_path.iterdir())
    assert [path.name for path in made] == [f"cora-over-system-bound.{ending}", f"cora-pareto.{ending}"]
    for path in made:
        assert path.read_bytes()[:5] == {"png": b"\x89PNG\r", "pdf": b"%PDF-", "svg": b"<?xml"}[ending]


def test_without_a_title_its_room_goes_too(tmp_path, sweep):
    section = section_of(sweep)
    front, bars = sweep_plots.pareto(section), plot.breakdown(section, ["x"] * len(section.groups))
    style.save(front, tmp_path / "front.png", titled=False)
    assert not front.texts and front.axes[0].get_position().y1 > 0.9
    bare = style.save(bars, tmp_path / "bars.png", titled=False)
    assert Image.open(bare).size[1] < 150 * bars.get_size_inches()[1] - 30


def test_graphs_whose_runs_lack_the_key_are_named_and_the_others_drawn(tmp_path, capsys):
    for bound in (1, 2):
        traces.of(tmp_path / f"a{bound}", "alpha", system__bound=bound)
    traces.of(tmp_path / "z", "exact", dataset__name="dblp")
    out = tmp_path / "figures"
    assert main(["plot", str(tmp_path), "--x", "system.bound", "--pareto", "--out", str(out)]) == 0
    assert "--x system.bound has no two values there" in capsys.readouterr().err
    names = sorted(path.name for path in out.glob("*.png"))
    assert len([name for name in names if "over-system-bound" in name]) == 1
    assert len([name for name in names if "pareto" in name]) == 2


def test_the_front_names_what_the_lines_have_on_their_axis(sweep):
    figure = sweep_plots.pareto(section_of(sweep, x="system.bound"), "system.bound")
    (legend,) = figure.legends
    shown = {text.get_text() for text in legend.get_texts()}
    assert shown == {
        "Pareto front",
        "exact",
        *(f"{name} bound={bound}" for name in ("alpha", "beta") for bound in (1, 2, 8)),
    }


def test_no_two_things_in_a_picture_have_one_id(tmp_path, sweep):
    section = section_of(sweep)
    sweep_plots.pareto(section).savefig(tmp_path / "front.svg")
    ids = re.findall(r'id="([^"]*-row\d+)"', (tmp_path / "front.svg").read_text())
    assert len(ids) == len(set(ids)) == 2 * len(section.groups)


def test_a_point_at_the_edge_of_a_panel_is_whole(tmp_path):
    run(tmp_path, "nothing", 1, 0.6, size=0)
    runs(tmp_path, "exact", [0.7, 0.8])
    for ax in sweep_plots.pareto(section_of(tmp_path)).axes:
        points = [container.lines[0] for container in ax.containers]
        assert len(points) == 2 and not any(point.get_clip_on() for point in points)


def test_the_interval_of_two_seeds_far_apart_does_not_make_the_other_points_one(tmp_path):
    runs(tmp_path, "steady", [0.60, 0.61], size=[2000, 2010], seconds=[0.2, 0.21])
    runs(tmp_path, "varying", [0.3, 0.8], size=[1000, 2000], seconds=[0.1, 0.2])
    section = section_of(tmp_path)
    for ax, cost in zip(sweep_plots.pareto(section).axes, section.compared[1:]):
        for (low, high), column in ((ax.get_xlim(), cost), (ax.get_ylim(), section.compared[0])):
            means = [table.estimate_of(group, column).mean for group in section.groups]
            assert low < min(means) < max(means) < high
            assert high - low < 3 * max(np.ptp(means), 0.1 * max(means)) + 0.2 * max(means)


def test_a_logarithmic_axis_begins_above_0(tmp_path):
    runs(tmp_path, "few", [0.6, 0.7], size=[1, 21])
    runs(tmp_path, "many", [0.6, 0.7], size=[1000, 1010])
    ax = sweep_plots.pareto(section_of(tmp_path)).axes[0]
    assert ax.get_xscale() == "log" and 0 < ax.get_xlim()[0] < 11e-6


@pytest.mark.parametrize("value", [70.0, 0.0])
def test_the_axis_of_one_row_has_room_around_its_point(value):
    low, high = sweep_plots._reach([estimate([value])])
    assert low < value < high


@pytest.mark.parametrize("coloured", [3, 15])
def test_a_picture_is_as_high_as_the_names_beside_it(coloured):
    names = [f"a system of the number {number} and what else its name has to say" for number in range(60)]
    grey = names[coloured:]
    figure, (ax,) = sweep_plots._panels(1, names, grey)
    for name in names:
        ax.plot([1], [1], label=name)
    sweep_plots._legend(figure, ax, grey)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert legend.get_window_extent().height < figure.bbox.height
    assert legend.texts[-1].get_text() == f"{len(grey)} other rows"
