"""Every experiment at its size `smoke`, whole: runs, pictures, verdicts, as `make figures` makes them."""

import re
from pathlib import Path

import pytest
from PIL import Image

from harness.papers.claims import experiment
from harness.papers.figures import __main__ as figures
from harness.papers.figures.make import available
from tests import experiments

# Each makes its own graphs where it is the first to need them.
SECONDS = {
    name: 30 + 120 * sizes["smoke"]["minutes"]
    for name, sizes in experiments.sizes().items()
    if "smoke" in sizes
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """One for all, for experiments share runs and graphs."""
    return tmp_path_factory.mktemp("smoke")


@pytest.mark.real
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.nightly(seconds)) for name, seconds in SECONDS.items()]
)
def test_an_experiment_runs_from_nothing_and_is_drawn_from_its_traces(name, folder, real_data, capsys):
    places = [f"--{each}={folder / each}" for each in ("results", "cache", "out", "keep")]
    assert figures.main([name, "--size", "smoke", f"--data-dir={real_data}", *places]) == 0
    said = capsys.readouterr()
    assert f"{name}: " in said.err and "error" not in said.err
    drawn = [Path(line) for line in said.out.splitlines() if line.endswith(".png")]
    figure = available(experiment.FOLDER, "smoke")[name]
    assert drawn or not figure.drawings  # only claims are drawn, and none may be on the graphs of this size
    for path in drawn:
        assert Image.open(path).convert("L").getextrema()[0] < 80, "something is drawn"
        assert path.with_suffix(".csv").stat().st_size and path.with_suffix(".pdf").stat().st_size
        kept = Image.open(folder / "keep" / name / path.name)
        assert kept.size == Image.open(path).size and kept.mode == "P", "in few colours"
    assert figures.main([name, "--size", "smoke", f"--data-dir={real_data}", *places]) == 0
    assert " 0 to start" in re.sub(r"\s+", " ", capsys.readouterr().err), "what has run is taken again"
