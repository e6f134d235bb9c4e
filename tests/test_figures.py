"""Figures: what they ask for can be run, what has run is reused, and every one draws from real traces."""

import re
import signal
import subprocess
import sys
import time

import pandas as pd
import psutil
import pytest

from harness.base.errors import InputError
from harness.base.terminal import Terminal
from harness.papers.claims.claim import Size
from harness.papers.claims.experiment import FOLDER, Experiment
from harness.papers.figures import __main__ as figures
from harness.papers.figures import make as make_figures
from harness.papers.figures.make import Figure, available
from harness.run import runner
from harness.run.runner import Places
from tests import traces
from tests.conftest import ROOT

TINY = "twin/flickr dataset.scale=0.005 dataset.split=random"


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> Places:
    folder = tmp_path_factory.mktemp("figures")
    return Places(folder / "results", folder / "cache", ROOT.parent / "shared" / "data")


def test_a_sweep_expands_as_hydra_expands_it():
    assert runner.expand("a=1,2 b=[1,2] c=x") == [["a=1", "b=[1,2]", "c=x"], ["a=2", "b=[1,2]", "c=x"]]
    assert len(runner.expand("system=vanilla,sancus seed=1,2,3")) == 6


def test_a_run_that_two_rows_share_is_started_once(places, monkeypatch, tmp_path, capsys):
    rows = {"first": "seed=7,8", "second": "seed=8,9"}
    plan = Experiment("shared", rows=rows, sizes={"small": Size([TINY], "gpus=2", 1)})
    asked = []
    monkeypatch.setattr(runner, "start", lambda *given: asked.append(len(given[2])))
    monkeypatch.setattr(make_figures, "_draw", lambda *given: [])
    make_figures.make(Figure(plan, "small", []), [TINY], places, tmp_path, Terminal(stderr=True))
    assert asked == [2, 1] and "3 runs on twin/flickr, 3 to start" in capsys.readouterr().err


def test_a_sweeps_run_that_fails_is_told_and_the_next_goes_on_in_the_commands_folders(places):
    """However much the others say after it."""
    sweep = f"dataset={TINY} gpus=1 seed=3,4,5 epochs=1"
    first, *others = runner.folders(sweep, places)
    first.mkdir(parents=True)
    (first / "config.yaml").write_text("seed: [")
    with pytest.raises(InputError, match=f"a run failed: (?s:.*){first}: .*config.yaml"):
        runner.start(sweep, places)
    assert runner.finished(others) == others
    with pytest.raises(InputError, match='system="vanila" is not known'):
        runner.start(f"system=vanila dataset={TINY}", places)


@pytest.mark.nightly(30)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_runs_that_were_started_end_with_who_started_them(tmp_path, number):
    """Told to stop it passes this on, says so, and the run has its last checkpoint; killed it can say
    nothing."""
    code = (
        "import sys; from pathlib import Path; from harness.run import process, runner;"
        "here = Path(sys.argv[1]); places = runner.Places(here, here / 'cache', here);"
        f"sweep = 'dataset={TINY} gpus=2 epochs=1000000 evaluate.every=0 checkpoint_every=5';"
        "sys.exit(process.until_stopped(lambda: runner.start(sweep, places)))"
    )
    started = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 120
        while not any(tmp_path.glob("*/*/checkpoints/latest")):
            assert started.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        family = psutil.Process(started.pid).children(recursive=True)
        started.send_signal(number)
        said = started.communicate(timeout=60)[1].decode()
        _, left = psutil.wait_procs(family, timeout=60)
        assert not left
    finally:
        started.kill()
    if number == signal.SIGTERM:
        assert started.returncode == 128 + number and "goes on from the last checkpoint" in said


def test_a_graph_of_ones_own_is_drawn_by_its_name(tmp_path, monkeypatch):
    def trained(sweep, places, made):
        for run in made:
            traces.finished(run.directory, run.composed)

    graph = f"npz dataset.path={tmp_path / 'g.npz'} dataset.name=mine"
    (tmp_path / "g.npz").touch()
    sizes = {"smoke": Size([TINY], "gpus=2 epochs=2 kernel=numba", 1)}
    plan = Experiment("systems", rows={"vanilla": "system=vanilla"}, sizes=sizes)
    drawn = available(FOLDER, "smoke")["systems"].drawings
    monkeypatch.setattr(figures, "available", lambda *_: {"systems": Figure(plan, "smoke", drawn)})
    monkeypatch.setattr(runner, "start", trained)
    assert (
        figures.main(["systems", "--graph", graph, "--out", str(tmp_path), "--results", str(tmp_path / "r")])
        == 0
    )
    data = pd.read_csv(tmp_path / "systems-mine-accuracy-over-epochs.csv")
    assert {path.suffix for path in tmp_path.glob("systems-mine-*")} == {".png", ".pdf", ".csv"}
    assert data.x_axis.unique().tolist() == ["epoch"] and len(data[data.kind == "line"]) == 3


def test_a_graph_that_is_not_here_is_left_out_and_said(tmp_path, monkeypatch, capsys, refused):
    made = []
    monkeypatch.setattr(figures, "make", lambda figure, graphs, *_: made.append((figure.name, graphs)))
    small = ["--size", "small", "--data-dir", str(tmp_path), "--out", str(tmp_path / "figures")]
    assert figures.main(["pscgcn_hits", "systems", *small]) == 0
    assert made == [("systems", ["twin/reddit dataset.scale=0.02"])]
    said = " ".join(capsys.readouterr().err.split())
    assert f"systems: amazon-photo is not in {tmp_path}, left out" in said
    assert f"pscgcn_hits: amazon-computers is not in {tmp_path}, left out" in said
    assert "2 figures of size small, from nothing: about " in said
    refused(figures.main, ["systems", "--graph", "dlbp"], 'did you mean "dblp"?')


PLAN = """
title: what one's own drawing shows
rows:
  mine: system=vanilla
sizes:
  smoke: {graphs: ["%s"], runs: gpus=2 seed=1, minutes: 1}
"""


def test_a_folder_of_ones_own_is_listed_and_what_it_lacks_is_named(tmp_path, capsys, refused):
    folder = tmp_path / "my_figures"
    given = ["--from", folder]
    refused(figures.main, given, "is not a folder: give one with exp")
    folder.mkdir()
    refused(figures.main, given, "holds no experiment: put NAME.yaml")
    (folder / "mine.yaml").write_text(PLAN % TINY + "draw:\n  losses: {}\n")
    (folder / "_shared.py").write_text("no figure")
    refused(figures.main, given, 'mine.draw="losses" is not known')
    (folder / "losses.py").write_text("import nothing_there")
    refused(figures.main, given, "cannot be imported: ModuleNotFoundError")
    (folder / "losses.py").write_text("def drawn(groups):\n    pass\n")
    refused(figures.main, given, "losses.py has no function draw(groups): write one")
    (folder / "losses.py").write_text("def draw(groups, over):\n    pass\n")
    refused(figures.main, given, "losses: missing a required argument: 'over'; give the options of draw in")
    (folder / "mine.yaml").write_text(PLAN % TINY + "draw:\n  losses: {over: x, rows: [mine]}\n")
    refused(figures.main, given, "losses.rows=['mine']: give rows with their names in the picture")
    (folder / "mine.yaml").write_text(PLAN % TINY + "draw:\n  losses: {}\n")
    (folder / "losses.py").write_text("def draw(groups):\n    pass\n")
    assert figures.main(["--from", str(folder), "--list"]) == 0
    assert capsys.readouterr().out == "mine  what one's own drawing shows\n"
    refused(figures.main, [*given, "systems"], 'figure="systems" is not known; known: mine')
    refused(figures.main, [*given, "mime"], 'figure="mime" is not known; did you mean "mine"?')


@pytest.mark.parametrize(
    "name, size, says",
    [
        ("bytegnn_fig18", "smoke", "bytegnn_fig18 has no runs yet (CPU utilisation"),
        ("sancus_broadcasts", "paper", "has no runs of size paper: give --size smoke or small"),
    ],
)
def test_what_has_no_runs_says_what_it_waits_for(name, size, says, monkeypatch, refused):
    monkeypatch.setattr(runner, "start", lambda *given: pytest.fail("nothing is to be run"))
    refused(figures.main, [name, "--size", size], says)


@pytest.mark.parametrize("words, where", [((), "results/started"), (("--size", "small"), "results")])
def test_runs_of_size_smoke_stand_where_tables_and_pages_leave_them_out(
    words, where, tmp_path, monkeypatch, capsys
):
    given = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "here", lambda *_: ["cora"])
    monkeypatch.setattr(figures, "make", lambda figure, graphs, places, *_: given.append(places.results))
    assert figures.main(["systems", *words]) == 0
    assert [str(path) for path in given] == [where]
    assert figures.main(["systems", *words, f"--out={__file__}"]) == 2 and len(given) == 1
    assert f"{__file__} cannot be written: File exists; give another --out" in capsys.readouterr().err


def test_the_figure_of_the_page(tmp_path, place, monkeypatch, capsys):
    page = (ROOT / "docs" / "howto" / "figures.md").read_text()
    folder = tmp_path / "my_figures"
    folder.mkdir()
    for name, text in re.findall(r"`my_figures/(\S+)`:\n\n```\w+\n(.*?)```", page, re.S):
        short = text.replace("epochs=20", "epochs=3 kernel=numba threads=1 order=transform")
        (folder / name).write_text(short.replace("scale=0.02", "scale=0.005"))
    monkeypatch.setattr(runner, "start", place.sweep)
    places = {"from": folder, "out": tmp_path, "results": tmp_path / "r", "cache": tmp_path / "c"}
    assert figures.main([f"--{name}={path}" for name, path in places.items()]) == 0, capsys.readouterr().err
    data = pd.read_csv(tmp_path / "losses-twin-ogbn-arxiv.csv")
    assert data.groupby("label").size().to_dict() == {"digest": 3, "vanilla": 3}


def test_experiments_of_ones_own_are_run_at_the_smallest_size_they_have(tmp_path, monkeypatch, refused):
    made = []
    monkeypatch.setattr(figures, "make", lambda figure, *_: made.append((figure.name, figure.size)))
    (tmp_path / "larger.yaml").write_text(PLAN.replace("smoke:", "small:") % TINY)
    (tmp_path / "tiny.yaml").write_text(PLAN % TINY)
    assert figures.main(["--from", str(tmp_path)]) == 0
    assert made == [("larger", "small"), ("tiny", "smoke")]
    words = ["larger", "--from", tmp_path, "--size", "smoke"]
    refused(figures.main, words, "larger has no runs of size smoke: give --size small")


def test_a_row_of_ones_own_in_an_experiment_of_the_tree():
    figure = available(FOLDER, "smoke", rows=["mine=system=mine system.x=1"])["pscgcn_staleness"]
    assert figure.rows(TINY)["mine"].startswith(f"system=mine system.x=1 dataset={TINY} ")
    with pytest.raises(InputError, match='row="tau = 1=system=mine" '):
        available(FOLDER, "smoke", rows=["tau = 1=system=mine"])
    with pytest.raises(InputError, match="has the name of another row"):
        available(FOLDER, "smoke", rows=["vanilla=system=mine"])


def test_what_is_published_stands_for_the_experiments_that_decide_it(monkeypatch):
    made = []
    monkeypatch.setattr(figures, "make", lambda figure, *_: made.append(figure.name))
    monkeypatch.setattr(figures, "here", lambda figure, *_: figure.graphs)  # without the data too
    assert figures.main(["cdfgnn_fig7", "cdfgnn_cache"]) == 0
    assert made == ["cdfgnn_cache"]
