"""docs/tutorial.md, run as written: its file, its yaml, its commands, and what it says must hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from harness.trace.reader import Trace, find_runs
from tests.conftest import ROOT
from tests.launching import Started

PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def block(language: str) -> str:
    return re.search(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)[1]


@pytest.fixture(scope="module")
def ran(tmp_path_factory, launcher):
    """A folder in which the page was followed, with the period's exact value run beside."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "my_ideas" / "conf" / "system").mkdir(parents=True)
    (folder / "my_ideas" / "refresh.py").write_text(block("python"))
    (folder / "my_ideas" / "conf" / "system" / "refresh.yaml").write_text(block("yaml"))
    export, sweep, table = block("sh").strip().splitlines()
    assert export == "export PYTHONPATH=my_ideas"
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'my_ideas'}:{ROOT}"}
    outputs = []
    for line in (sweep, table):
        command = line.split()
        done = subprocess.run(
            [sys.executable, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    (launcher.folder / "modules" / "refresh.py").write_text(block("python"))
    exact = sweep.replace("-m system=vanilla,refresh", "system=refresh system.period=1")
    exact = exact.replace("my_ideas", str(folder / "my_ideas")).replace(
        "results=mine", f"results={folder / 'mine'}"
    )
    done = Started(launcher, exact.split()[3:]).end()
    assert done.code == 0, done.err
    runs = {}
    for path in find_runs([folder / "mine"]):
        trace = Trace(path)
        system = trace.config["system"]
        runs[system["_target_"].split(".")[0], system.get("period")] = trace
    return runs, outputs[-1]


def test_the_table_shows_it_beside_vanilla(ran):
    assert "refresh" in ran[1] and "vanilla" in ran[1]


def test_a_period_of_one_is_vanilla_and_five_is_not(ran):
    losses = {key: trace.epochs.groupby("epoch")["loss"].first().to_numpy() for key, trace in ran[0].items()}
    vanilla = losses["systems", None]
    np.testing.assert_allclose(losses["refresh", 1], vanilla, rtol=1e-5)
    assert not np.allclose(losses["refresh", 5], vanilla, rtol=1e-5)


def test_it_sends_only_when_it_fetches_and_the_trace_says_when(ran):
    trace = ran[0]["refresh", 5]
    halo = trace.comm[trace.comm["purpose"] == "halo"]
    assert sorted(halo["epoch"].unique()) == [0, 5, 10, 15]
    fetched = trace.metrics[trace.metrics["name"] == "fetched"].groupby("epoch")["value"].max()
    assert list(fetched[fetched == 1].index) == [0, 5, 10, 15]
