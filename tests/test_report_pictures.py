"""Pictures: curves add up, bands hold every seed, and colours, names and bars say what the tables say."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from harness.results import summary
from harness.results.reader import Trace
from harness.results.report import columns, curves, groups, plot, plot_data, style, sweep_plots
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


def test_a_picture_says_that_a_line_ends_with_its_first_seed_where_seeds_differ_in_that(tmp_path):
    for seed in (1, 2):
        traces.finished(tmp_path / str(seed), traces.config(seed=seed))
    section = section_of(tmp_path)
    names, strokes = style.names_of(section.groups), style.strokes_of(section.groups)
    for epochs, told in ((5, False), (4, True)):
        section.groups[0].runs[0].summary["epochs"] = epochs
        figure = curves.accuracy_over(curves.AXES[0], section, names, strokes)
        said = " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))
        assert ("a line ends where its first seed stops" in said) == told


def test_plot_draws_four_pictures_a_dataset_whose_names_latex_takes(tmp_path, capsys):
    for seed in (1, 2):
        traces.of(tmp_path / f"a{seed}", "plain", seed=seed, dataset__name="a b.c")
    traces.of(tmp_path / "b", "plain", dataset__name="dblp")
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "figures")]) == 0
    files = sorted((tmp_path / "figures").iterdir())
    assert [f.name for f in files] == [
        f"{name}-{what}.png"
        for name in ("a-b-c", "dblp")
        for what in ("accuracy-over-bytes", "accuracy-over-epochs", "accuracy-over-time", "breakdown")
    ]
    assert sorted(capsys.readouterr().out.split()) == sorted(map(str, files))
    for file in files:
        picture = Image.open(file)
        assert min(picture.size) > 300 and len(picture.getcolors(1 << 24)) > 20


def test_clocks_and_machines_have_pictures_of_their_own(tmp_path):
    """None is written over another."""
    ways = {"wall": {"cores": 4}, "cpu": {"cores": 1}, "other": {"cores": 4, "ran_on": {"machine": "Other"}}}
    for name, how in ways.items():
        composed = traces.config(cluster__name=name)
        traces.finished(tmp_path / name, composed, **{"ran_on": {"machine": "Test"}, **how})
    made = plot.draw(groups.load([tmp_path])[0], tmp_path / "figures", lambda section: {"one": Figure()})
    assert len(set(made)) == 3


def test_values_beside_curves_and_lengths_of_bars_are_the_tables(tmp_path):
    for bound in (1, 2):
        traces.finished(tmp_path / str(bound), traces.config(system__bound=bound), speed=bound)
    section = section_of(tmp_path)
    names, strokes = style.names_of(section.groups), style.strokes_of(section.groups)
    (ax,) = curves.accuracy_over(curves.AXES[0], section, names, strokes).axes
    lines = [line for line in ax.lines if len(line.get_xdata()) > 1]
    assert [line.get_color() for line in lines] == [strokes[style.row_of(g)]["color"] for g in section.groups]
    told = {f"{g.label}  {g.estimate(columns.ACCURACY.value).mean:.1f} %" for g in section.groups}
    assert {text.get_text() for text in ax.texts if text.get_text()} == told
    bars = plot.breakdown(section, names).axes[0].containers
    widths = [sum(bar[i].get_width() for bar in bars[:3]) for i in range(2)]
    assert widths == pytest.approx([g.first.summary["epoch_s"] for g in section.groups])


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
    for titled in (True, False):
        for figure in plot.pictures(section, style.strokes_of(section.groups), titled).values():
            named = " ".join(text.get_text().replace("\n", " ") for text in figure.findobj(Text))
            assert ("5 epochs unless named otherwise" in named) == titled
            assert (f"alpha {usual} 5 epochs" in named) == (not titled)
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


SYSTEMS = st.dictionaries(
    st.text("abcdefgh", min_size=1, max_size=4), st.integers(1, 4), min_size=1, max_size=10
)


def _rows(systems):
    """Groups as far as strokes look at them: so many rows of each system."""
    return [
        SimpleNamespace(
            first=SimpleNamespace(keys={"system._target_": f"systems.{name}.S"}),
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
def test_no_two_rows_of_a_picture_have_the_same_line_and_marker(systems):
    looks = [(str(each["linestyle"]), each["marker"]) for each in style.strokes_of(_rows(systems)).values()]
    assert max(Counter(looks).values()) <= -(-len(looks) // style.LOOKS)


def test_of_many_rows_those_that_matter_are_coloured_and_the_others_named_below(tmp_path):
    run(tmp_path, "exact", 1, 0.8, role="reference")
    run(tmp_path, "nothing", 1, 0.9, size=0, role="control")
    run(tmp_path, "frugal", 1, 0.7, size=10)
    for number in range(sweep_plots.MANY - 2):
        run(tmp_path, f"worse{number}", 1, 0.6, size=500, seconds=1.0)
    section = section_of(tmp_path)
    strokes = sweep_plots.strokes_in(section, style.strokes_of(section.groups))
    coloured = {group.label for group in section.groups if strokes[style.row_of(group)] != style.BACKGROUND}
    assert coloured == {"exact", "nothing", "frugal"}
    for cost in section.compared[1:]:
        front = [section.groups[i].label for i in sweep_plots.front_of(cost, section)]
        assert "nothing" not in front and "exact" in front
    figure = curves.accuracy_over(curves.AXES[1], section, style.names_of(section.groups), strokes)
    assert any(text.get_text().startswith("grey: worse0 60.0 %, worse1") for text in figure.texts)
    few = replace(section, groups=section.groups[: sweep_plots.MANY])
    assert style.BACKGROUND not in sweep_plots.strokes_in(few, style.strokes_of(few.groups)).values()


def test_where_workers_outnumber_cores_a_curve_goes_by_cpu_seconds(tmp_path):
    run = groups.Run(traces.finished(tmp_path, cores=1))
    assert curves.curve(run, "acc")["seconds"].to_numpy() == pytest.approx(0.43 * np.arange(5))
