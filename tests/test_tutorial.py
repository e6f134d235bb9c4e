"""docs/tutorial.md, run as written: its file, its yaml, its commands, and what it says must hold."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

from harness.core.cuts import halo_plan
from harness.data.partition.build import build_shards
from harness.results.reader import Trace, find_runs
from tests.conftest import ROOT
from tests.graphs import random_graph
from tests.launching import Started

PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)[number]


def followed(folder, launcher):
    """The traces, by system and period, of a folder in which the page was followed, with the period's exact
    value run beside; and the table that it prints."""
    (folder / "my_ideas" / "conf" / "system").mkdir(parents=True)
    (folder / "my_ideas" / "refresh.py").write_text(block("python"))
    (folder / "my_ideas" / "conf" / "system" / "refresh.yaml").write_text(block("yaml"))
    export, sweep, table = block("sh").strip().splitlines()
    assert export == "export PYTHONPATH=my_ideas"
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'my_ideas'}:{ROOT}"}
    outputs = []
    sweep = sweep.replace("seed=1,2,3", "seed=1")  # one seed is enough for what is looked at
    for line in (sweep, table):
        command = [sys.executable, "-m", "harness", *line.split()[1:]]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    (launcher.folder / "modules" / "refresh.py").write_text(block("python"))
    exact = sweep.replace("-m system=vanilla,zero_halo,refresh", "system=refresh system.period=1")
    exact = exact.replace("my_ideas", str(folder / "my_ideas")).replace(
        "results=mine", f"results={folder / 'mine'}"
    )
    done = Started(launcher, exact.split()[1:]).end()
    assert done.code == 0, done.err
    runs = {}
    for path in find_runs([folder / "mine"]):
        trace = Trace(path)
        system = trace.config["system"]
        runs[system["_target_"].split(".")[-1], system.get("period")] = trace
    return runs, outputs[-1]


def the_table_shows_it_beside_vanilla(runs, table):
    assert all(name in table for name in ("refresh", "vanilla", "zero_halo"))


def a_period_of_one_is_vanilla_and_five_is_not(runs, table):
    losses = {key: trace.epochs.groupby("epoch")["loss"].first().to_numpy() for key, trace in runs.items()}
    vanilla = losses["Vanilla", None]
    np.testing.assert_allclose(losses["Refresh", 1], vanilla, rtol=1e-5)
    assert not np.allclose(losses["Refresh", 5], vanilla, rtol=1e-5)


def it_sends_only_when_it_fetches_and_the_trace_says_when(runs, table):
    trace = runs["Refresh", 5]
    halo = trace.comm[trace.comm["purpose"] == "halo"]
    assert sorted(halo["epoch"].unique()) == [0, 5, 10, 15]
    fetched = trace.metrics[trace.metrics["name"] == "fetched"].groupby("epoch")["value"].max()
    assert list(fetched[fetched == 1].index) == [0, 5, 10, 15]


def both_systems_fetch_raw_features_alike(runs, table):
    """What the table compares is the idea, not the features that both could fetch once."""
    layer_0 = {}
    for key in (("Vanilla", None), ("Refresh", 5)):
        comm = runs[key].comm
        layer_0[key] = comm[comm["layer"] == 0].groupby("epoch")["bytes"].sum().to_dict()
    assert layer_0["Vanilla", None] == layer_0["Refresh", 5] and list(layer_0["Refresh", 5]) == [0]


def test_what_the_page_says_of_its_runs_holds(tmp_path, launcher):
    """One test: its runs take half a minute, and whoever shares a fixture makes it once per process."""
    found = followed(tmp_path, launcher)
    the_table_shows_it_beside_vanilla(*found)
    a_period_of_one_is_vanilla_and_five_is_not(*found)
    it_sends_only_when_it_fetches_and_the_trace_says_when(*found)
    both_systems_fetch_raw_features_alike(*found)


def test_the_pages_system_that_sends_some_rows_sends_each_with_its_place(place):
    (place.folder / "modules" / "moved.py").write_text(block("python", 1))
    (place.folder / "conf" / "system" / "moved.yaml").write_text("_target_: moved.Moved\nbound: 0.1\n")
    done = [
        place.run(place.more, "system=moved", f"system.bound={bound}", "epochs=3") for bound in (0, 0.1, 9)
    ]
    assert [each.code for each in done] == [0, 0, 0], [each.err for each in done]
    rows = {}
    for path in place.runs():
        trace = Trace(path)
        sent = trace.comm[(trace.comm.layer > 0) & (trace.comm.rows > 0)]
        ids, halo = (sent[sent.purpose == name].reset_index() for name in ("ids", "halo"))
        assert (ids.rows == halo.rows).all() and (ids.bytes == 8 * ids.rows).all()
        rows[trace.config["system"]["bound"]] = halo.groupby("epoch").rows.sum().to_dict()
    assert rows[0][0] == rows[0][2] > rows[0.1].get(2, 0) and rows[9] == {}


def checks(place, folder, *more: str):
    """The command that the page ends with, in `folder`, with `more` words."""
    (folder / "my_ideas" / "conf" / "system").mkdir(parents=True)
    (folder / "my_ideas" / "conf" / "system" / "refresh.yaml").write_text(block("yaml"))
    (place.folder / "modules" / "refresh.py").write_text(block("python"))
    command = block("sh", 1).replace("my_ideas", str(folder / "my_ideas")).split()
    assert command[:2] == ["halobench", "check"] and len(re.findall("^```sh", PAGE, re.M)) == 2
    return place.truly("-m", "harness", *command[1:], *more)


@pytest.mark.nightly(20)
def test_the_checks_take_a_system_from_outside_the_tree(place, tmp_path):
    done = checks(place, tmp_path, "-k", "partitions or (exact and gcn-2)")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly(90)
def test_the_pages_system_holds_every_check(place, tmp_path):
    done = checks(place, tmp_path)
    assert done.returncode == 0 and "16 passed" in done.stdout, done.stdout + done.stderr


def test_the_plan_of_the_page_is_the_one_that_there_is():
    graph, owners = random_graph(24, 6, seed=2), np.arange(24, dtype=np.int32) % 3
    shards = list(build_shards(graph, owners, 3))
    plans = [halo_plan(shard, torch.device("cpu")) for shard in shards]
    for rank, (plan, shard) in enumerate(zip(plans, shards)):
        assert plan.send_counts[rank] == plan.receive_counts[rank] == 0
        assert plan.num_halo == len(shard.halo) and sum(plan.send_counts) == len(plan.send_rows)
        parts = np.split(np.asarray(shard.halo), np.cumsum(plan.receive_counts)[:-1])
        assert all(np.all(np.diff(part) > 0) and set(owners[part]) <= {p} for p, part in enumerate(parts))
        sent = shard.inner[plan.send_rows.numpy()]
        for other, rows in enumerate(np.split(sent, np.cumsum(plan.send_counts)[:-1])):
            theirs = np.split(np.asarray(shards[other].halo), np.cumsum(plans[other].receive_counts)[:-1])
            assert rows.tolist() == theirs[rank].tolist(), "in the receiver's halo order"
