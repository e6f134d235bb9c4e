"""Pictures: curves add up, bands hold every seed, and colours, names and bars say what the tables say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from harness.results import summary
from harness.results.reader import Trace
from harness.results.report import columns, curves, groups, plot, plot_data, style, sweep_plots, table
from harness.results.report.__main__ import main
from tests import traces
from tests.reported import run, section_of


def test_curves_add_up_over_epochs(tmp_path):
    run = groups.Run(traces.finished(tmp_path, size=10**6))
    c = curves.curve(run, "acc")
    epochs = Trace(tmp_path).epochs
    assert c["epoch"].tolist() == [1, 2, 3, 4, 5]
    assert c["seconds"].to_numpy() == pytest.approx(0.58 * np.arange(5))  # from the end of the first epoch
    assert c["megabytes"].to_numpy() == pytest.approx(6.00002 * np.arange(1, 6))
    assert c["score"].to_numpy() == pytest.approx(100 * epochs[epochs["worker"] == 0]["test_acc"].to_numpy())


def test_an_epoch_takes_as_long_as_its_own_slowest_worker(tmp_path):
    """Worker 0 is slow in odd epochs and worker 1 in even ones: whoever is fast waits for the other."""
    run = traces.prepare(tmp_path)
    for worker in range(2):
        lasts = [("compute", "forward", 3.0 if number % 2 != worker else 1.0) for number in range(4)]
        made = [traces.epoch(at, worker=worker, segments=[each]) for at, each in enumerate(lasts)]
        traces.write(run, made, worker=worker, scores=traces.scored(0.1, 0.1, 0.1))
    assert curves.curve(groups.Run(run), "acc")["seconds"].tolist() == pytest.approx([0, 3, 6, 9])
    assert summary.summarise(run)["epoch_s"] == pytest.approx(3)


def test_curves_of_a_dying_run_end_with_its_slowest_worker(tmp_path):
    run = traces.prepare(tmp_path)
    ahead, behind = traces.stream(run, range(2), close=False)
    ahead.write(traces.epoch(2), loss=0, scores=traces.scored(0.1, 0.1, 0.1), peak_rss_bytes=0)
    assert curves.curve(groups.Run(run), "acc")["epoch"].tolist() == [1, 2]


def test_bands_reach_from_the_lowest_to_the_highest_seed_and_stand_in_a_pictures_data(tmp_path):
    for seed in (1, 2, 3):
        traces.finished(tmp_path / str(seed), traces.config(seed=seed), target=0.1 * seed, speed=seed)
    section = section_of(tmp_path)
    (group,) = section.groups
    b, each = curves.band(group, "acc"), [curves.curve(run, "acc") for run in group.runs]
    stacked = np.array([c["score"] for c in each])
    for name, expected in (("low", stacked.min(0)), ("high", stacked.max(0)), ("score", stacked.mean(0))):
        assert np.allclose(b[name], expected)
    assert np.allclose(b["seconds"], np.mean([c["seconds"] for c in each], axis=0))
    names, strokes = style.names_of(section.groups), style.strokes_of(section.groups)
    data = plot_data.drawn(curves.accuracy_over(curves.AXES[0], section, names, strokes))
    for bound in ("low", "high"):
        found = data[data["kind"] == bound]
        assert set(found["label"]) == {"plain"}
        assert np.allclose(found[["x", "y"]].to_numpy(float), b[["seconds", bound]].to_numpy())


def test_the_data_of_a_picture_are_its_points_and_the_lengths_of_its_bars(tmp_path):
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 2], [3.5, 4.5], label="line")
    left.fill_between([1, 2, 3], [3, 4, 2], [5, 6, 7], label="band")
    left.scatter([7], [8], label="dots")
    left.set_xlabel("epoch")
    right.bar([0, 2], [5, 6], label="up")
    right.barh([1], [2.25], left=[10], label="along")
    right.set_title("bars", loc="left")
    read = pd.read_csv(plot_data.write(figure, tmp_path / "picture.png"), keep_default_na=False)
    points = [
        [row.panel, row.title, row.x_axis, row.kind, row.label, row.x, row.y] for row in read.itertuples()
    ]
    assert points == [
        [0, "", "epoch", "line", "line", 1, 3.5], [0, "", "epoch", "line", "line", 2, 4.5],
        *([0, "", "epoch", "low", "band", x, y] for x, y in ((1, 3), (2, 4), (3, 2))),
        *([0, "", "epoch", "high", "band", x, y] for x, y in ((1, 5), (2, 6), (3, 7))),
        [0, "", "epoch", "dots", "dots", 7, 8],
        [1, "bars", "", "bar", "up", 0, 5], [1, "bars", "", "bar", "up", 2, 6],
        [1, "bars", "", "bar", "along", 1, 2.25],
    ]  # fmt: skip


def test_clocks_and_machines_have_pictures_of_their_own(tmp_path):
    """None is written over another."""
    ways = {"wall": {"cores": 4}, "cpu": {"cores": 1}, "other": {"cores": 4, "ran_on": {"machine": "Other"}}}
    for name, how in ways.items():
        composed = traces.config(cluster__name=name)
        traces.finished(tmp_path / name, composed, **{"ran_on": {"machine": "Test"}, **how})
    made = plot.draw(groups.load([tmp_path])[0], tmp_path / "figures")
    assert len(made) == len(set(made)) == 3 * 4


def test_plot_draws_four_pictures_a_dataset(tmp_path, capsys):
    for name in ("cora", "dblp"):
        for seed in (1, 2):
            composed = traces.config(seed=seed, dataset__name=name, system__bound=seed)
            traces.finished(tmp_path / f"{name}{seed}", composed)
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "figures")]) == 0
    files = sorted((tmp_path / "figures").iterdir())
    assert [f.name for f in files] == [
        f"{name}-{what}.png"
        for name in ("cora", "dblp")
        for what in ("accuracy-over-bytes", "accuracy-over-epochs", "accuracy-over-time", "breakdown")
    ]
    assert sorted(capsys.readouterr().out.split()) == sorted(map(str, files))
    for file in files:
        picture = Image.open(file)
        assert min(picture.size) > 300 and len(picture.getcolors(1 << 24)) > 20


def test_a_label_has_one_colour_in_all_pictures_and_bars_are_the_tables(tmp_path):
    for number, bound in enumerate((1, 2, 3)):
        for name in ("cora", "dblp") if bound > 1 else ("cora",):
            traces.finished(
                tmp_path / f"{name}{number}",
                traces.config(dataset__name=name, system__bound=bound),
                speed=bound,
            )
    compared, _ = groups.load([tmp_path])
    strokes = style.strokes_of(compared)
    for name, count in (("cora", 3), ("dblp", 2)):
        members = [g for g in compared if g.dataset == name]
        (section,) = (section for section in table.sections(compared) if section.dataset == name)
        figure = curves.accuracy_over(curves.AXES[0], section, style.names_of(members), strokes)
        lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
        assert [line.get_color() for line in lines] == [
            strokes[style.row_of(g)]["color"] for g in members
        ] and len(lines) == count
        labels = [t.get_text() for t in figure.axes[0].texts if t.get_text()]
        told = {g.label: f"{g.estimate(columns.ACCURACY.value).mean:.1f} %" for g in members}
        assert sorted(labels) == sorted(f"{label}  {value}" for label, value in told.items())
    bars = plot.breakdown(section, style.names_of(members)).axes[0].containers
    widths = [sum(bar[i].get_width() for bar in bars[:3]) for i in range(2)]
    assert widths == pytest.approx([g.first.summary["epoch_s"] for g in members])


def test_what_stands_above_a_picture_is_inside_it_and_above_its_axes(tmp_path):
    for seed in (1, 2):
        composed = traces.config(
            seed=seed, dataset__name="reddit", dataset__source="twin", dataset__scale=0.05
        )
        traces.finished(tmp_path / str(seed), composed)
    section = section_of(tmp_path)
    strokes = style.strokes_of(section.groups)
    for name, figure in plot.pictures(section, strokes).items():
        figure.draw_without_rendering()
        axes = figure.axes[0].get_window_extent()
        for text in figure.texts:
            box = text.get_window_extent()
            assert box.x1 <= figure.bbox.width and box.y0 >= axes.y1, (name, text.get_text())


def test_a_picture_names_what_is_unusual_and_says_the_rest_once(tmp_path):
    """Of one row with fewer epochs, and one with another partition, 25 names would repeat the usual ones."""
    rows = {
        "alpha": {},
        "beta": {},
        "gamma": {"epochs": 3},
        "delta": {"partition___target_": "harness.data.partition.assign.Random"},
    }
    for name, keys in rows.items():
        traces.of(tmp_path / name, name, **keys)
    section = section_of(tmp_path)
    usual = section.groups[0].partition
    assert style.names_of(section.groups) == ["alpha", "beta", "delta random", "gamma 3 epochs"]
    assert style.unsaid(section.groups) == f"{usual}, 5 epochs unless named otherwise"
    assert style.told_apart(section.groups)[0] == f"alpha {usual} 5 epochs"
    for figure in plot.pictures(section, style.strokes_of(section.groups)).values():
        assert any("unless named otherwise" in text.get_text() for text in figure.texts)
    halves = [g for g in section.groups if g.label in ("alpha", "delta")]
    assert style.names_of(halves) == [f"alpha {usual}", "delta random"] and not style.unsaid(halves)


def test_what_has_not_finished_says_so_however_many_have_not(tmp_path):
    for name in ("alpha", "beta", "gamma"):
        composed = traces.config(system___target_=f"somewhere.{name}.S")
        if name == "alpha":
            traces.finished(tmp_path / name, composed)
        else:
            traces.stream(traces.prepare(tmp_path / name, composed), range(2), close=False)
    compared, _ = groups.load([tmp_path])
    going = "(unfinished, 2 of 5 epochs)"
    assert style.names_of(compared) == ["alpha", f"beta {going}", f"gamma {going}"]
    assert style.names_of(compared[1:]) == [f"beta {going}", f"gamma {going}"]
    assert not style.unsaid(compared) and not style.unsaid(compared[1:])


def test_without_a_title_names_say_all(tmp_path):
    for name, epochs in (("alpha", 5), ("beta", 5), ("gamma", 3)):
        traces.of(tmp_path / name, name, epochs=epochs)
    section = section_of(tmp_path)
    strokes = style.strokes_of(section.groups)
    for titled in (True, False):
        for figure in plot.pictures(section, strokes, titled).values():
            named = " ".join(text.get_text() for text in figure.findobj(Text))
            assert ("5 epochs unless named otherwise" in named) == titled
            assert ("alpha 5 epochs" in named.replace("\n", " ")) == (not titled)


def test_curves_in_the_background_are_named_below_and_far_ends_stand_on_a_logarithmic_axis(tmp_path):
    for name, size in {"near": 10**4, "far": 10**7, "behind": 10**6}.items():
        traces.of(tmp_path / name, name, size=size)
    section = section_of(tmp_path)
    rows = {group.label: style.row_of(group) for group in section.groups}
    strokes = {**style.strokes_of(section.groups), rows["behind"]: style.BACKGROUND}
    names = style.names_of(section.groups)
    for axis, scale in zip(curves.AXES, ("linear", "log", "linear")):
        figure = curves.accuracy_over(axis, section, names, strokes)
        (ax,) = figure.axes
        assert ax.get_xscale() == scale
        told = sorted(text.get_text().split()[0] for text in ax.texts if text.get_text())
        assert told == ["far", "near"]
        (below,) = [text for text in figure.texts if text.get_text().startswith("grey:")]
        (group,) = [group for group in section.groups if group.label == "behind"]
        assert below.get_text() == f"grey: behind {group.estimate(columns.ACCURACY.value).mean:.1f} %"
        figure.draw_without_rendering()
        edge = ax.get_tightbbox().y0
        assert below.get_window_extent().y1 <= edge and below.get_window_extent().y0 >= 0


SYSTEMS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=4), st.integers(1, 4), min_size=1, max_size=10
)


def _rows(systems, package="systems"):
    """Groups as far as strokes look at them: so many rows of each system."""
    return [
        SimpleNamespace(
            first=SimpleNamespace(keys={"system._target_": f"{package}.{name}.S"}),
            label=f"{name} k={at}", workers=4, partition="metis",
            finished=True,
        )
        for name, count in systems.items() for at in range(count)
    ]  # fmt: skip


@given(SYSTEMS, SYSTEMS)
def test_a_colour_is_its_systems_whatever_stands_beside_it(systems, others):
    alone = style.strokes_of(_rows(systems))
    beside = style.strokes_of(_rows({**others, **systems}))
    for row, stroke in alone.items():
        assert beside[row]["color"] == stroke["color"]
    for name, count in systems.items():
        own = {alone[style.row_of(group)]["color"] for group in _rows({name: count})}
        assert len(own) == count


@given(SYSTEMS)
def test_a_system_of_ones_own_has_a_colour_that_no_other_has_while_there_are_some(systems):
    few = dict(list(systems.items())[: len(style.COLOURS) - 1])
    strokes = style.strokes_of(_rows(dict.fromkeys(few, 1)) + _rows({"mine": 1}, "my_ideas"))
    (mine,) = _rows({"mine": 1})
    others = {stroke["color"] for row, stroke in strokes.items() if row != style.row_of(mine)}
    assert strokes[style.row_of(mine)]["color"] not in others


@given(SYSTEMS)
def test_no_two_rows_of_a_picture_have_the_same_line_and_marker(systems):
    looks = [(str(each["linestyle"]), each["marker"]) for each in style.strokes_of(_rows(systems)).values()]
    assert max(Counter(looks).values()) <= -(-len(looks) // style.LOOKS)


def test_of_many_rows_those_that_matter_are_coloured(tmp_path):
    run(tmp_path, "exact", 1, 0.8, role="reference")
    run(tmp_path, "nothing", 1, 0.9, size=0, role="control")
    run(tmp_path, "frugal", 1, 0.7, size=100)
    for number in range(sweep_plots.MANY - 2):
        run(tmp_path, f"worse{number}", 1, 0.6, size=500, seconds=1.0)
    section = section_of(tmp_path)
    strokes = sweep_plots.strokes_in(section, style.strokes_of(section.groups))
    coloured = {group.label for group in section.groups if strokes[style.row_of(group)] != style.BACKGROUND}
    assert coloured == {"exact", "nothing", "frugal"}
    for cost in section.compared[1:]:
        front = [section.groups[i].label for i in sweep_plots.front_of(cost, section)]
        assert "nothing" not in front and "exact" in front
    (legend,) = sweep_plots.pareto(section).legends
    assert " ".join(legend.get_texts()[-1].get_text().split()).startswith("others: worse0, worse1")
    few = replace(section, groups=section.groups[: sweep_plots.MANY])
    assert style.BACKGROUND not in sweep_plots.strokes_in(few, style.strokes_of(few.groups)).values()
