"""A run's spans in Chrome's trace event format, parsed back."""

import json
from collections import defaultdict

import pytest

from harness import cli
from harness.results.reader import Trace
from tests.recorded import recorded


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two workers, whose exchanges are waited for an epoch later: two operations are in flight at once."""
    folder = tmp_path_factory.mktemp("perfetto") / "run"
    return recorded(folder, [[0.010, 0.030]] * 4, lag=True, tail=0.02, late=0.001)


@pytest.fixture
def events(run, tmp_path, capsys):
    assert cli.main(["report", "perfetto", str(run), "--out", str(tmp_path / "x.json")]) == 0
    found = json.loads((tmp_path / "x.json").read_text())["traceEvents"]
    assert f"{len(found)} events" in capsys.readouterr().out
    return found


def test_every_span_is_there_once_on_its_workers_tracks_where_no_two_overlap(run, events):
    spans = Trace(run).spans.dropna(subset=["end_s"])
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == len(spans)
    for kind, own in spans.groupby("kind"):
        mine = [event for event in slices if event["cat"] == kind]
        seconds = (own["end_s"] - own["start_s"]).sum()
        assert sum(event["dur"] for event in mine) == pytest.approx(1e6 * seconds)
        assert sum(event["args"]["bytes"] for event in mine) == own["bytes"].sum()
    named = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert named == {"worker 0", "worker 1"}
    tracks = defaultdict(list)
    for event in slices:
        tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert {tid for _, tid in tracks} >= {0, 1, 2}
    for times in map(sorted, tracks.values()):
        assert all(end <= start + 1e-3 for (_, end), (start, _) in zip(times, times[1:]))


def test_arrows_join_slices_and_lead_forward_in_time(run, events):
    ends = defaultdict(dict)
    for event in events:
        if event["ph"] in ("s", "f"):
            ends[event["id"]][event["ph"]] = event
    slices = [event for event in events if event["ph"] == "X"]
    for arrow in ends.values():
        assert arrow["s"]["ts"] <= arrow["f"]["ts"]
    for event in (arrow["s"] for arrow in ends.values()):
        assert any(
            (each["pid"], each["tid"]) == (event["pid"], event["tid"])
            and each["ts"] <= event["ts"] <= each["ts"] + each["dur"]
            for each in slices
        )
    spans = Trace(run).spans.dropna(subset=["end_s"])
    sent = spans[spans["kind"] == "comm"]
    assert sum(arrow["s"]["name"] == "rows" for arrow in ends.values()) == sent["peers"].map(len).sum() > 0
    assert any(arrow["s"]["name"] == "waited for" for arrow in ends.values())


def test_some_epochs_alone(run, tmp_path):
    path = tmp_path / "some.json"
    assert cli.main(["report", "perfetto", str(run), "--out", str(path), "--epochs", "2-3"]) == 0
    slices = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {event["args"]["epoch"] for event in slices} == {1, 2}


def test_epochs_that_are_none_are_refused(run, tmp_path, refused):
    out = str(tmp_path / "x")
    for given, says in (
        ("3", '--epochs "3" names no epochs: give FIRST-LAST'),
        ("3-2", '--epochs "3-2" names no epochs'),
        ("0-2", '--epochs "0-2" names no epochs'),
        ("70-", "has no spans there; give some of 1-"),
    ):
        refused(cli.main, ["report", "perfetto", str(run), "--out", out, "--epochs", given], says)
