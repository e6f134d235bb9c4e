"""docs/tutorial.md, run as written: its file, its yaml, its commands, and what it says must hold."""

import re

import numpy as np
import pytest

from harness.results.reader import Trace, find_runs
from tests.conftest import ROOT
from tests.launching import Started

PAGE = (ROOT / "docs" / "tutorial.md").read_text()


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)[number]


def followed(folder, place):
    """The traces, by system and period, of a folder in which the page was followed, with the period's exact
    value run beside; and the table that it prints."""
    conf, mine = folder / "conf", folder / "mine"
    (conf / "system").mkdir(parents=True)
    (conf / "system" / "refresh.yaml").write_text(block("yaml"))
    export, sweep, table = block("sh").strip().replace(" \\\n  ", " ").splitlines()
    assert export == "export PYTHONPATH=my_ideas"
    (place.folder / "modules" / "refresh.py").write_text(block("python"))  # on the path of this place
    # One seed is enough for what is looked at, and so are the epochs until the third fetch.
    for page, here in (
        ("my_ideas/conf", conf),
        ("results=mine", f"results={mine}"),
        ("seed=1,2,3", "seed=1"),
        ("epochs=20", "epochs=11"),
    ):
        assert page in sweep
        sweep = sweep.replace(page, str(here))
    of_page, exact = "-m system=vanilla,zero_halo,refresh", "system=refresh system.period=1"
    assert of_page in sweep
    for command in (sweep, sweep.replace(of_page, exact)):
        done = Started(place, command.split()[1:]).end()
        assert done.code == 0, done.err
    assert table.split()[1:] == ["report", "table", "mine"]
    shown = Started(place, ["report", "table", str(mine)]).end()
    assert shown.code == 0, shown.err
    runs = {}
    for path in find_runs([mine]):
        trace = Trace(path)
        system = trace.config["system"]
        runs[system["_target_"].split(".")[-1], system.get("period")] = trace
    return runs, shown.out


def test_what_the_page_says_of_its_runs_holds(tmp_path, place):
    runs, table = followed(tmp_path, place)
    assert all(name in table for name in ("refresh", "vanilla", "zero_halo"))
    # A period of one is exact training, and five is not.
    losses = {key: trace.epochs.groupby("epoch")["loss"].first().to_numpy() for key, trace in runs.items()}
    vanilla = losses["Vanilla", None]
    np.testing.assert_allclose(losses["Refresh", 1], vanilla, rtol=1e-5)
    assert not np.allclose(losses["Refresh", 5], vanilla, rtol=1e-5)
    # It sends only when it fetches, and the trace says when.
    trace = runs["Refresh", 5]
    halo = trace.comm[trace.comm["purpose"] == "halo"]
    assert sorted(halo["epoch"].unique()) == [0, 5, 10]
    fetched = trace.metrics[trace.metrics["name"] == "fetched"].groupby("epoch")["value"].max()
    assert list(fetched[fetched == 1].index) == [0, 5, 10]
    # What the table compares is the idea, not the raw features that both could fetch once.
    ours, exact = (
        each.comm[each.comm["layer"] == 0].groupby("epoch")["bytes"].sum().to_dict()
        for each in (trace, runs["Vanilla", None])
    )
    assert ours == exact and list(ours) == [0]


def test_the_pages_system_that_sends_some_rows_sends_each_with_its_place(place):
    (place.folder / "modules" / "moved.py").write_text(block("python", 1))
    (place.folder / "conf" / "system" / "moved.yaml").write_text("_target_: moved.Moved\nbound: 0.1\n")
    done = [place.run(place.more, "system=moved", f"system.bound={bound}", "epochs=3") for bound in (0, 0.1)]
    assert [each.code for each in done] == [0, 0], [each.err for each in done]
    rows = {}
    for path in place.runs():
        trace = Trace(path)
        sent = trace.comm[(trace.comm.layer > 0) & (trace.comm.rows > 0)]
        ids, halo = (sent[sent.purpose == name].reset_index() for name in ("ids", "halo"))
        assert (ids.rows == halo.rows).all() and (ids.bytes == 8 * ids.rows).all()
        rows[trace.config["system"]["bound"]] = halo.groupby("epoch").rows.sum().to_dict()
    assert rows[0][0] == rows[0][2] > rows[0.1].get(2, 0)


@pytest.mark.nightly(90)
def test_the_pages_system_holds_every_check(place, tmp_path):
    """By the command that the page ends with."""
    (tmp_path / "my_ideas" / "conf" / "system").mkdir(parents=True)
    (tmp_path / "my_ideas" / "conf" / "system" / "refresh.yaml").write_text(block("yaml"))
    (place.folder / "modules" / "refresh.py").write_text(block("python"))
    command = block("sh", 1).replace("my_ideas", str(tmp_path / "my_ideas")).split()
    assert command[:2] == ["halobench", "check"] and len(re.findall("^```sh", PAGE, re.M)) == 2
    done = place.truly("-m", "harness", *command[1:])
    assert done.returncode == 0 and "16 passed" in done.stdout, done.stdout + done.stderr
