"""The reports of README and the pages of docs/ are written, so many that every word of a command
is in one, from the runs of a folder that is as the page supposes; and every graph that they import is made.
"""

import functools
import itertools
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from harness import cli
from harness.papers.claims import __main__ as claims
from harness.papers.claims import reference
from tests.commands import ROOT, fewest, of
from tests.graphs import edge_list, random_graph
from tests.launching import Started


@pytest.fixture(scope="module")
def folder(launcher, tmp_path_factory):
    """A reader's folder: results/ with runs of two systems on "cora", of sweeps over a knob and over the
    model's width on "dblp"; tables of a graph of one's own.
    """
    here = tmp_path_factory.mktemp("reader")
    graph = random_graph(60, 6, seed=3)
    pairs = np.stack(edge_list(graph))
    splits = {name: getattr(graph, name) for name in ("train", "val", "test")}
    for name in ("cora", "dblp"):
        np.savez(here / f"{name}.npz", edges=pairs, features=graph.features, labels=graph.labels, **splits)
    pd.DataFrame(pairs.T, columns=["source", "target"]).to_csv(here / "edges.csv", index=False)
    for name, values in {"features": graph.features, "labels": graph.labels[:, None]}.items():
        table = pd.DataFrame(values, columns=[f"{name[0]}{j}" for j in range(values.shape[1])])
        table.insert(0, "id", range(len(table)))
        table.to_csv(here / f"{name}.csv", index=False)
    fixed = [f"results={here / 'results'}", f"cache={here / 'cache'}", "progress=false", "threads=1"]
    fixed += ["dataset=npz", "kernel=numba"]
    for name, sweep in (
        # A page asks for epochs 10 to 12 of a run, and for runs of four workers.
        ("cora", "-m system=vanilla,sancus system.bound=1 model.hidden=4 seed=1,2 workers=4 epochs=13"),
        ("dblp", "-m system=vanilla,sancus system.bound=1,2 model.hidden=4 workers=2 epochs=2"),
        ("dblp", "system=vanilla model.hidden=8 workers=2 epochs=2"),
    ):
        done = Started(launcher, [*sweep.split(), f"dataset.path={here / name}.npz", *fixed]).end()
        assert done.code == 0, done.err
    return here


@pytest.fixture(scope="module")
def decided():
    """The verdicts on the papers, decided once for all commands that print them: it takes seconds."""
    return functools.cache(reference.decided)


@pytest.fixture
def reader(folder, decided, tmp_path, monkeypatch):
    """A copy of that folder, in which the test is."""
    monkeypatch.setattr(claims, "decided", decided)
    shutil.copytree(folder, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    return tmp_path / "reader"


def filled_in(words: list[str]) -> list[str]:
    """The words, with runs that are there in place of those that a page makes up."""
    runs = {path.parent: yaml.safe_load(path.read_text()) for path in Path("results").glob("*/*/config.yaml")}
    sancus, vanilla = (
        next(str(run) for run, config in sorted(runs.items()) if run.match(f"cora/{name}-4w-seed1-*"))
        for name in ("sancus", "vanilla")
    )
    places = {
        "RUN_A": sancus,
        "RUN_B": vanilla,
        "RUN": vanilla,
        "results/cora/vanilla-4w-seed1-1a2b3c4d": vanilla,
    }
    if "model.hidden" in words:
        widths = {
            run: config["model"]["hidden"] for run, config in runs.items() if run.match("dblp/vanilla*")
        }
        places["RUN_A"], places["RUN_B"] = (
            next(str(run) for run, width in widths.items() if width == each) for each in (4, 8)
        )
    return [places.get(word, word) for word in words]


def written(words: list[str]) -> list[Path]:
    """The files and folders that a command says it writes."""
    options = ("--out", "--csv", "--json")
    return [Path(after) for word, after in itertools.pairwise(words) if word in options]


REPORTS = fewest(
    [*of("report", "report claims", "replay", "runs"), *of("report html", nightly=("docs/howto/page",))],
    lambda command: {(command.name, word) for word in command.rest},
)


@pytest.mark.parametrize("command", REPORTS)
def test_a_report_of_a_page_is_written(command, reader, capsys):
    words = filled_in([*command.name.split(), *command.rest])
    if "--figures" in words:
        Path("results/figures").mkdir()
        for suffix in ("png", "csv"):
            shutil.copy(ROOT / "docs" / "figures" / f"predicted_capgnn.{suffix}", "results/figures")
    if "crossover" in words and not any(word.startswith("epochs=") for word in words):
        words.append("epochs=1")  # of ten that are replayed at each point
    if command.name == "report claims":
        words += ["--reference", str(ROOT / reference.FOLDER)]
    code, (said, wrong) = cli.main(words), capsys.readouterr()
    assert code == 0 and said.strip(), wrong
    for path in written(words):
        assert path.is_file() or any(path.iterdir()), path


@pytest.mark.parametrize("command", of("import"))
def test_an_import_of_a_page_makes_a_graph(command, reader, capsys):
    words = [*command.name.split(), *command.rest]
    if "--labels" not in words:  # a column of the vertices' table has them
        features, labels = pd.read_csv("features.csv"), pd.read_csv("labels.csv")
        features.assign(label=labels["l0"]).to_csv("features.csv", index=False)
    assert cli.main(words) == 0, capsys.readouterr().err
    made = np.load("my_graph.npz")
    assert len(made["features"]) == len(made["labels"]) == 60
