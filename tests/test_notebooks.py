"""The notebooks run from top to bottom, and are kept without what they print."""

import ast
import json
import re

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure

from tests.conftest import ROOT
from tests.test_api import forked  # noqa: F401

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SHORTEST = "explore_run"  # one run; the others are sweeps, and take the night
assert SHORTEST in {path.stem for path in NOTEBOOKS}


def cells(path) -> list[dict]:
    return json.loads(path.read_text())["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_calls_what_is_there(path):
    for cell in cells(path):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ast.parse("".join(cell["source"]))
    import harness.api as halobench

    code = "".join("".join(cell["source"]) + "\n" for cell in cells(path) if cell["cell_type"] == "code")
    assert set(re.findall(r"halobench\.(\w+)", code)) <= set(halobench.__all__)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == SHORTEST else pytest.mark.nightly(60))
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path, place, forked, monkeypatch):  # noqa: F811
    """Each cell, whose last line, as a notebook shows it, is something."""
    monkeypatch.syspath_prepend("")  # the working directory, as a notebook has it
    backend = matplotlib.get_backend()
    matplotlib.use("agg")
    names: dict = {}
    shown = []
    for number, cell in enumerate(cells(path)):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}, cell {number}", "exec"), names)
        if last is not None:
            shown.append(eval(compile(last, f"{path.name}, cell {number}", "eval"), names))
    matplotlib.use(backend)
    assert len(forked) == 1 and any(isinstance(each, Figure) for each in shown)
    tables = [each for each in shown if isinstance(each, pd.DataFrame)]
    assert tables and all(len(each) for each in tables) and not any(each is None for each in shown)
