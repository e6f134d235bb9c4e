"""A run replayed: its own epochs on its own machine, other clusters, crossovers, the command."""

from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.core.cluster import Cluster, Link
from harness.model.replay import crossover
from harness.model.replay.__main__ import main
from harness.model.replay.crossover import with_link
from harness.model.replay.settings import cluster_of, parse
from harness.model.replay.times import times_of
from harness.results import files
from harness.results.reader import Trace
from harness.results.report.groups import load
from tests import traces
from tests.recorded import APART, MB, recorded, replayed, timed

seconds = st.floats(1e-4, 0.1)


@given(
    st.integers(2, 4).flatmap(
        lambda P: st.lists(st.lists(seconds, min_size=P, max_size=P), min_size=1, max_size=4)
    ),
    st.floats(0, 0.01),
    st.floats(0, 0.002),
    st.booleans(),
)
@settings(max_examples=5, deadline=None)
def test_a_run_on_its_own_machine_takes_what_it_took(tmp_path_factory, work, tail, late, lag):
    """Epoch by epoch, whatever its workers waited for."""
    trace = Trace(recorded(tmp_path_factory.mktemp("run"), work, tail=tail, late=late, lag=lag, cores=2))
    timeline = replayed(trace.run_dir)
    assert times_of(timeline).epoch == pytest.approx(trace.summary["epoch_s"], rel=0.05, abs=1e-6)
    took = trace.epochs.pivot(index="worker", columns="epoch", values="train_s")
    for worker in range(len(work[0])):
        for e in range(len(work)):
            own = timeline.ends(worker, e) - timeline.begins[worker][e]
            assert own == pytest.approx(took.loc[worker, e], abs=1e-6)


def test_a_real_run_on_its_own_machine_takes_what_it_took(place):
    """Nothing here depends on how fast the machine is: both are times of the same run. Moments of operations
    that the system's own thread begins may lie a little beside those of the training thread."""
    ended = place.run("system=digest", "epochs=4")
    assert ended.code == 0, ended.err
    (run,) = place.runs()
    trace, timeline = Trace(run), replayed(run)
    workers = range(timeline.program.workers)
    took = trace.epochs.groupby("epoch")["train_s"].max()
    for index, number in enumerate(timeline.program.epochs):
        longest = max(timeline.ends(w, index) - timeline.begins[w][index] for w in workers)
        assert longest == pytest.approx(took[number], rel=0.05)


def test_an_operation_posted_when_its_wait_begins_and_ends_is_posted_first(tmp_path):
    """Clocks tick: a wait that took less than a tick has the moment of the posting."""
    trace = Trace(recorded(tmp_path / "run", [[0.01, 0.02]]))
    spans = trace.spans
    for worker in range(2):
        own = (spans["worker"] == worker) & (spans["name"] == "exchange")
        wait, flight = own & (spans["kind"] == "wait"), own & (spans["kind"] == "comm")
        begun = spans.loc[wait, "start_s"].item()
        spans.loc[wait, "end_s"] = spans.loc[flight, "start_s"] = begun
    _, replayer, _ = parse([str(trace.run_dir)])
    assert times_of(replayer.replay(trace)).epoch > 0


def test_another_cluster_has_its_own_waits(tmp_path):
    run = recorded(tmp_path / "run", [[0.01, 0.01], [0.01, 0.03]], size=4 * MB)
    first, second = timed(run, *APART, "clock=wall").workers
    # 4 MB at 1 GB/s take 4 ms from when the slower worker has posted; then 2 x 500 B of the sum.
    assert first.compute == pytest.approx(0.012) and second.compute == pytest.approx(0.032)
    assert first.idle == pytest.approx(0.018) and first.exposed == pytest.approx(0.004 + 1e-6, abs=1e-8)
    assert second.idle == pytest.approx(0.0) and second.exposed == pytest.approx(0.002 + 1e-6, abs=1e-8)
    assert first.epoch == second.epoch == pytest.approx(0.031 + 0.004 + 1e-6)


def test_cpu_seconds_count_where_workers_outnumbered_the_cores(tmp_path):
    run = Trace(recorded(tmp_path / "run", [[0.01, 0.01], [0.01, 0.03]], cores=1))
    _, replayer, _ = parse([str(run.run_dir), *APART])
    assert replayer.clock(run) == "cpu"
    assert times_of(replayer.replay(run)).workers[1].compute == pytest.approx(0.016)
    _, own, _ = parse([str(run.run_dir)])
    assert own.clock(run) == "wall" and times_of(own.replay(run)).workers[1].compute == pytest.approx(0.032)


def test_the_command_names_workers_the_critical_path_and_what_is_assumed(tmp_path, capsys):
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    words = ["cluster=cdfgnn", "per_host=1", "clock=wall"]
    assert main([str(run), *words, "--csv", str(tmp_path / "a.csv")]) == 0
    said = capsys.readouterr().out
    assert "modelled on cluster=cdfgnn" in said and "assumed" in said and "between.latency_us=0" in said
    assert "worker 1: forward, layer 0" in said and "host 0 to host 1" in said
    assert "wall times are too long; clock=cpu replays CPU seconds" in " ".join(said.split())
    rows = pd.read_csv(tmp_path / "a.csv")
    assert rows["worker"].tolist() == [0, 1] and rows["modelled"].all()
    assert rows["epoch_s"].tolist() == [pytest.approx(timed(run, *words).epoch)] * 2
    faster = recorded(tmp_path / "faster", [[0.001, 0.002]] * 3)
    assert main([str(run), str(faster), *words]) == 0
    said, _, last = capsys.readouterr().out.partition("modelled epoch, ms")
    assert said.count("mean over epochs without the first") == 2
    assert last.index(str(faster)) < last.index(str(run))
    assert main([str(recorded(tmp_path / "one", [[0.01, 0.02]])), *words]) == 0
    assert "the slowest worker's, of the one epoch (measured" in capsys.readouterr().out


@pytest.fixture(scope="module")
def crossing(tmp_path_factory) -> list[str]:
    """The words of a crossover of two runs. One computes 10 ms and sends 1 MB, the other 6 ms and 9 MB; both
    compute for 2 ms more while they send, and score 60 % on validation vertices from the first epoch on."""
    folder = tmp_path_factory.mktemp("crossing")
    lean = recorded(folder / "a", [[0.01, 0.01]] * 3, size=MB, label="lean")
    fat = recorded(folder / "b", [[0.006, 0.006]] * 3, size=9 * MB, label="fat")
    return ["crossover", str(lean), str(fat), *APART[:2], "clock=wall", "latency_us=1:10:2", "epochs=2"]


def test_crossovers_are_where_two_systems_take_the_same_time(crossing, tmp_path, capsys):
    """With B bytes per second between two hosts 10 ms + max(2 ms, 1 MB / B) = 6 ms + max(2 ms, 9 MB / B) at B
    = 1.5 GB/s: all else is alike."""
    table, out = tmp_path / "map.csv", tmp_path / "out"
    assert main([*crossing, "gbytes_per_s=0.1:10:7", "--csv", str(table), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "means over 2 epochs after the first" in said
    row = next(line for line in said.splitlines() if line.split()[1:3] == ["lean", "fat"])
    assert float(row.split()[3]) == pytest.approx(1.5, rel=0.02)
    found = pd.read_csv(table)
    fastest = found[found["fastest"] & (found["latency_us"] == 1.0)].set_index("gbytes_per_s")["label"]
    assert [*fastest] == ["lean" if bandwidth < 1.5 else "fat" for bandwidth in fastest.index]
    assert (out / "crossover-between.png").stat().st_size > 10_000
    slow = found[(found["label"] == "lean") & (found["latency_us"] == 1.0)]["epoch_s"]
    assert slow.is_monotonic_decreasing and len(fastest) == 7


def test_runs_that_have_not_begun_are_named_and_one_that_has_not_ended_says_so(tmp_path, capsys):
    run = recorded(tmp_path / "run", [[0.01, 0.01]] * 2)
    new = traces.prepare(tmp_path / "new")
    half = traces.prepare(tmp_path / "half")
    traces.stream(half, range(3))
    assert main([str(run), str(new), str(half), *APART]) == 0
    said = capsys.readouterr()
    assert f"left out {new}: it has not finished an epoch\n" == said.err
    assert f"2 workers, not finished: 3 epochs so far ({half})" in said.out
    assert f"2 workers ({run})" in said.out


def test_which_is_first_at_a_score(crossing, tmp_path, capsys, refused):
    words, table = [*crossing, "gbytes_per_s=0.1:10:3"], tmp_path / "map.csv"
    assert main([*words, "reaches=55", "epochs=10", "--csv", str(table)]) == 0
    said = capsys.readouterr().out
    assert "the first system at 55.00 % on validation vertices" in said
    assert "means over 2 epochs after the first" in said, "as many as the runs have"
    assert "seconds_to_score" in table.read_text().splitlines()[0]
    for reaches, told in (
        ("61", "is reached by all runs of 0 of 2 systems"),
        ("x", "is no score"),
        ("0", "is no score"),
        ("99%", "2 of the rows are exact training"),
    ):
        refused(main, [*words, f"reaches={reaches}"], told)


@pytest.mark.parametrize(
    "given", ["between.gbytes_per_s=1", "between.latency_us=1", "between={gbytes_per_s: 1}"]
)
def test_what_is_varied_is_not_given(crossing, refused, given):
    refused(main, [*crossing, f"cluster.{given}"], f"links between: leave cluster.{given} out, or")
    assert main([*crossing, f"cluster.{given}", "link=bridge"]) == 0


def test_a_link_that_no_message_crosses_is_refused_and_a_place_for_the_picture_first(
    crossing, tmp_path, refused
):
    refused(main, [*crossing, "link=inside"], "no time depends on links inside on cluster=")
    (tmp_path / "taken").write_text("")
    refused(main, [*crossing, "--out", str(tmp_path / "taken")], "give another --out")
    assert main([*crossing, "cluster.between.broadcast_gbytes_per_s=1"]) == 0


def test_a_score_on_validation_vertices_needs_no_test_vertices():
    epochs = pd.DataFrame({"epoch": [0, 1, 2], "worker": 0, "val_acc": [None, 0.5, 0.6], "test_acc": None})
    run = SimpleNamespace(trace=SimpleNamespace(epochs=epochs), summary={"score": "acc"}, path="run")
    assert crossover._validated(run).to_dict() == pytest.approx({2: 50.0, 3: 60.0})
    epochs["val_acc"] = None
    with pytest.raises(InputError, match="run has no validation score, by which reaches goes"):
        crossover._validated(run)


@pytest.fixture(scope="module")
def simple(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("simple") / "run", [[0.01, 0.02]])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cluster=cdfgn"], 'cluster="cdfgn" is not known; did you mean "cdfgnn"?'),
        (["cluster=8xh100"], 'did you mean "dgx_h100"?'),
        (["cluster=nowhere.yaml"], 'cluster="nowhere.yaml" does not exist'),
        (["cluster=my #2.yaml"], 'cluster="my #2.yaml" does not exist'),
        (["cluster=capgnn/x2"], "cluster.inside.gbytes_per_s=NUMBER"),
        (["cluster=measured"], "or cluster=traced for the machine that the run was made on"),
        (["cluster=cdfgnn", "cluster.betwen.latency_us=1"], "cluster.betwen is not a key of Cluster"),
        (["cluster=cdfgnn", "cluster.between.latency_us=-1"], "cluster.between.latency_us=-1"),
        (["cluster.between.latency_us=1"], "changes nothing of cluster=traced"),
        (["per_host=1"], "per_host=1 is for described clusters"),
        (["cluster=cdfgnn", "per_host=0"], "per_host=0 is out of range: give 1 to"),
        (["compute=roofline"], "compute=roofline is for described devices: name a cluster"),
        (["compute=guessed"], 'compute="guessed" is not known'),
        (["cluster=cdfgnn", "broadcast=star"], 'broadcast="star" is not known'),
        (["delay=1"], "delay=1 slows no worker: add straggler=N"),
        (["straggler=0"], "straggler=0 is as fast as it was: give a delay"),
        (["straggler=2", "delay=1"], "straggler=2 is not a worker"),
        (["straggler=1", "slowdown=0.5"], "slowdown=0.5 is out of range: give 1 to"),
        (["cluster=local"], "halobench cluster measure --out local.yaml"),
        (["cluster=cdfgnn", "efficiency=0.5"], "efficiency"),
        (["cluster=cdfgnn", "cores=0"], "cores=0"),
        (["cluster=cdfgnn", "cores=2", "clock=wall"], "cores=2 is for CPU seconds: leave out clock=wall"),
        (["cores=2"], "cores=2 is for described clusters"),
        (["broadcast=direct"], "broadcast=direct is for described clusters"),
        (["cluster=cdfgnn", "cluster.host_cores=2", "cluster.device_cores=3"], "more than host_cores=2"),
        (
            ["cluster=cdfgnn", "cluster.bridge.broadcast_gbytes_per_s=1"],
            "have a rate of their own inside and",
        ),
        (["--out", "pictures"], "--out pictures is for the picture of halobench replay crossover"),
        (["--csv", "/no/such/a.csv"], "csv=/no/such/a.csv is no place for a file"),
        (["efficiency=["], '"efficiency=[" cannot be read: give efficiency=VALUE, a number or a word'),
        (["efficiency=2001-99-99"], '"efficiency=2001-99-99" cannot be read: give efficiency=VALUE'),
        (["delay=!!bool x"], '"delay=!!bool x" cannot be read: give delay=VALUE'),
        # A word that is too long for the name of a file.
        (["cluster=cdfgnn", f"cluster.devices=[{'{kind: a}, ' * 40}]", "cores=0"], "cores=0 is out of range"),
        (["clok=wall"], '"clok=wall" cannot be given here; did you mean "clock"?'),
        (["crossover"], "name one, as cluster=NAME"),
        (["crossover", "cluster=cdfgnn"], "is the only system given"),
        (["crossover", "cluster=cdfgnn", "gbytes_per_s=1:x:3"], "gbytes_per_s=1:x:3 is no range"),
        (["crossover", "cluster=cdfgnn", "gbytes_per_s=1:2:3.7"], "gbytes_per_s=1:2:3.7 is no range"),
        (["crossover", "cluster=cdfgnn", "gbytes_per_s=1:1.00000000001:3"], "3 is no range: give LOW:HIGH"),
        (["crossover", "cluster=cdfgnn", "gbytes_per_s=10:1:3"], "give LOW:HIGH:POINTS"),
        (["crossover", "cluster=cdfgnn", "link=wire"], 'link="wire" is not known'),
        (["crossover", "cluster=cdfgnn", "compute=roofline", "fit=printed"], "that fit=printed gives"),
        (["crossover", "cluster=cdfgnn", "epochs=x"], "epochs=x is not a number of epochs"),
    ],
)
def test_bad_words_are_one_sentence(simple, refused, words, said):
    refused(main, [*words, str(simple)], said)


def test_broadcasts_change_with_the_bandwidth():
    made = Cluster("c", between=Link(gbytes_per_s=8, broadcast_gbytes_per_s=12), inside=Link(gbytes_per_s=8))
    assert with_link(made, "between", 4, 1).between.broadcast_gbytes_per_s == 6
    assert with_link(made, "inside", 4, 1).inside.broadcast_gbytes_per_s is None


@pytest.mark.parametrize("overlaps", [False, True])
def test_only_what_overlaps_in_its_paper_computes_while_messages_travel(tmp_path, overlaps):
    """10 ms of work, 1 of packing, an exchange of 1 MB at 1 GB/s beside 2 ms of work, and a sum of 1 kB."""
    run = recorded(tmp_path / "run", [[0.01, 0.01]] * 3, overlaps=overlaps)
    times = {how: timed(run, *APART, f"overlap={how}", "clock=wall") for how in ("ours", "published")}
    assert times["ours"].epoch == pytest.approx(0.013 + 1e-6, rel=1e-3)
    stops = 0.0 if overlaps else 0.001
    assert times["published"].epoch == pytest.approx(0.013 + stops + 1e-6, rel=1e-3)
    assert times["published"].workers[0].exposed == pytest.approx(stops + 1e-6, rel=1e-2)
    # A wait in a later epoch stays there.
    lagging = recorded(tmp_path / "lagging", [[0.01, 0.01]] * 3, lag=True, overlaps=overlaps)
    ours, published = (timed(lagging, *APART, f"overlap={how}", "clock=wall") for how in times)
    assert ours.epoch == pytest.approx(published.epoch)


def test_a_trace_that_does_not_say_whether_it_overlaps_is_refused(tmp_path, refused):
    run = recorded(tmp_path / "run", [[0.01, 0.01]])
    said = files.read_json(run / "resolved.json")
    files.write_json_atomic(run / "resolved.json", {k: v for k, v in said.items() if k != "overlaps"})
    said = "does not say whether its system's exchanges overlap in its paper"
    refused(main, [str(run), *APART, "overlap=published"], said)


@pytest.mark.parametrize("column, value", [
    ("start_s", float("nan")), ("end_s", float("nan")), ("worker", 7), ("epoch", 90), ("peers", None),
])  # fmt: skip
def test_spans_that_no_run_could_trace_are_one_sentence(tmp_path, column, value):
    """As in a folder that somebody gave; also where it is one of several whose systems are compared."""
    folders = [recorded(tmp_path / name, [[0.01, 0.02]], label=name) for name in ("other", "run")]
    _, replayer, _ = parse([str(folders[1])])
    _, apart, asked = parse([*map(str, folders), *APART[:2], "latency_us=1:2:2"], crossover.KEYS)
    groups, _ = load(folders)
    trace = groups[1].first.trace
    trace.spans[column] = [value] * len(trace.spans)
    for replay in (
        lambda: replayer.replay(trace),
        lambda: crossover.search(groups, apart, crossover.Grid.of(asked)),
    ):
        with pytest.raises(InputError, match=r"run cannot be replayed: its spans .*fresh=true") as told:
            replay()
        assert "\n" not in str(told.value)


def test_without_runs_or_keys_of_a_cluster_nothing_is_replayed(tmp_path):
    with pytest.raises(InputError, match="no run is given"):
        parse(["cluster=cdfgnn"])
    path = tmp_path / "mine.yaml"
    path.write_text("- [1\n")
    with pytest.raises(InputError, match=r"mine.yaml cannot be read \(.+\); mend it"):
        cluster_of(str(path))
    path.write_text("host_cores: !!bool x\n")
    with pytest.raises(InputError, match="mine.yaml cannot be read"):
        cluster_of(str(path))
    for text in ("- 1\n", "7\n"):
        path.write_text(text)
        with pytest.raises(InputError, match="mine.yaml holds no keys; mend it"):
            cluster_of(str(path))


def test_waits_of_several_hosts_are_not_replayed_on_their_own_machines(tmp_path):
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    found = files.read_json(run / "environment.json")
    files.write_json_atomic(
        run / "environment.json", {**found, "hosts": [{"workers": [0]}, {"workers": [1]}]}
    )
    _, replayer, _ = parse([str(run)])
    with pytest.raises(InputError, match="ran on several hosts, whose clocks do not compare"):
        replayer.replay(Trace(run))
