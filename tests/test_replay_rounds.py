"""Replays of asynchronous runs, of runs with a straggler, and where a replay's scores are not known."""

import dataclasses
from itertools import accumulate
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm.recorder import Epoch, Span
from harness.core.cluster import Device
from harness.model.replay import rounds
from harness.model.replay.__main__ import main
from harness.model.replay.platform import platform_of
from harness.model.replay.program import Begin, Operation, Post, Program, Wait, Work
from harness.model.replay.settings import parse
from harness.model.replay.times import first_epoch, times_of
from harness.results import files, writer
from harness.results.reader import Trace
from harness.results.schema import UPDATE
from tests import traces
from tests.recorded import APART, MB, recorded, replayed, timed
from tests.test_replay_engine import cluster


def apart(folder: Path, work: list[float], epochs: int, *, name="update", late=0.0) -> Path:
    """An asynchronous run of given numbers: worker k begins k * late s after worker 0; its round computes
    work[k] s and hands the server an update of 1 MB, whose answer is there 2 ms later. It ends with update
    `epochs` x P; the rounds under way then are traced and not applied."""
    P, answer = len(work), 0.002
    moments = sorted((k * late + j * (own + answer), k) for k, own in enumerate(work) for j in range(1, 200))
    applied = moments[: epochs * P]
    number = {moment: at for at, moment in enumerate(applied)}
    traces.prepare(folder, traces.config(gpus=P, epochs=epochs), 2 * P, asynchronous=True)
    for k, own in enumerate(work):
        out = writer.TraceWriter(folder, k, 0)
        made = sum(worker == k for _, worker in applied)
        for j in range(made + 1):
            begin, each = 100 + k * late + j * (own + answer), Epoch(j)
            posted, end = begin + own, begin + own + answer
            id = f"{k}:{j}"
            each.spans = [
                Span("compute", "forward", 0, begin, posted, cpu=own),
                Span("wait", name, -1, posted, end, id=id, blocking=True),
                Span("comm", name, -1, posted, end, bytes=2 * MB, id=id, blocking=True, route="server",
                     peer_bytes=(MB, MB)),
            ]  # fmt: skip
            each.train, each.cpu = own + answer, own
            if (at := number.get((k * late + (j + 1) * (own + answer), k))) is not None:
                each.metrics[-1, "update"] = at
            out.write(each, loss=1.0, scores=None, peak_rss_bytes=2**20)
        out.close()
    run = writer.TraceWriter(folder, -1, 0)
    for number in range(epochs):
        run.write(Epoch(number), loss=1.0, scores=traces.scored(0.5, 0.6, 0.5), peak_rss_bytes=0)
    run.close()
    return traces.close(folder)


FAST = [Phase.explicit, Phase.generate]
paces = st.lists(st.integers(20, 40).map(lambda ms: ms / 1000), min_size=2, max_size=4)


@given(paces, st.integers(4, 6), st.sampled_from([0.0, 0.013]))
@settings(max_examples=6, deadline=None, phases=FAST)
def test_an_asynchronous_run_on_its_own_machine_takes_what_it_took(tmp_path_factory, work, epochs, late):
    trace = Trace(apart(tmp_path_factory.mktemp("run"), work, epochs, late=late))
    timeline = replayed(trace.run_dir)
    answered = [moment for moment, _ in rounds.updates(timeline)][: epochs * len(work)]
    moments = sorted(k * late + j * (own + 0.002) for k, own in enumerate(work) for j in range(1, 200))
    assert answered == pytest.approx(moments[: epochs * len(work)], abs=1e-6)
    ends = answered[len(work) - 1 :: len(work)]
    assert times_of(timeline).epoch == pytest.approx((ends[-1] - ends[0]) / (epochs - 1), rel=1e-3)
    # Put together, a worker's rounds make what the run's own summary says.
    slowest = max(own.epoch for own in times_of(timeline).workers)
    assert slowest == pytest.approx(trace.summary["epoch_s"], rel=1e-3)


@given(
    st.lists(st.integers(1, 9).map(lambda ms: ms / 1000), min_size=2, max_size=2),
    st.floats(0.01, 10),
    st.integers(2, 6),
)
@settings(max_examples=6, deadline=None, phases=FAST)
def test_elsewhere_its_workers_keep_another_pace(tmp_path_factory, work, rate, epochs):
    """Worker 0 shares the server's host and worker 1's updates cross a link of `rate` GB/s, so that worker 0
    makes more of the rounds than were traced of it. A round is its work, and 1 MB there and back."""
    run = apart(tmp_path_factory.mktemp("run"), work, epochs)
    _, replayer, _ = parse([str(run), *APART[:2], f"cluster.between.gbytes_per_s={rate}",
                            "cluster.between.latency_us=0", "cluster.inside.gbytes_per_s=1000"])  # fmt: skip
    timeline = replayer.replay(Trace(run))
    platform = timeline.platform
    pace = []
    for own, path in zip(work, (platform.path(0, 2), platform.path(1, 2))):
        slowest = min(platform.capacity[link] for link in path.links)
        pace.append(own + 2 * (path.latency + MB / slowest))
    moments = sorted(moment for each in pace for moment in accumulate([each] * (2 * epochs)))
    found = [moment for moment, _ in rounds.updates(timeline)][: 2 * epochs]
    assert found == pytest.approx(moments[: 2 * epochs], rel=1e-6)
    made = [sum(moment <= found[-1] + 1e-12 for moment in accumulate([each] * 999)) for each in pace]
    assert sum(made) - 2 * epochs in (0, 1)  # both may end with the last update
    assert [len(begins) for begins in timeline.begins] in (
        made,
        [made[0] - 1, made[1]],
        [made[0], made[1] - 1],
    )


@pytest.mark.parametrize(("meets", "made"), [(3, [3, 3]), (1, [5, 1])])
def test_workers_that_meet_in_all_their_rounds_make_as_many_as_were_traced(meets, made):
    """As of `digest_a` with `features=refetch`: the faster worker has no round of its own to repeat. Under
    `features=once` they meet in the first round alone."""
    operations, steps = [], [[], []]
    for epoch in range(3):
        meeting = len(operations)
        operations.append(Operation("exchange", 0, "pairs", {0: {1: 8}, 1: {0: 8}}))
        for k, lasts in enumerate((0.01, 0.03)):
            own = len(operations)
            operations.append(Operation(UPDATE, -1, "server", {k: {-1: 8, -2: 8}}))
            met = [Post(meeting), Wait(meeting, "exchange", 0)] if epoch < meets else []
            steps[k] += [Begin(epoch), *met, Work("compute", "forward", 0, lasts),
                         Post(own), Wait(own, UPDATE, -1)]  # fmt: skip
    program = Program(steps, operations, [0, 1, 2], updates=6)
    timeline = rounds.simulate(program, platform_of(cluster([0, 1]), 2), "ring")
    assert [len(begins) for begins in timeline.begins] == made


def test_it_is_printed_as_what_it_is(tmp_path, capsys):
    run = apart(tmp_path / "run", [0.01, 0.03], 4)
    assert main([str(run), *APART]) == 0
    said = capsys.readouterr().out
    assert "2 updates from whoever is first (rounds made: 6, 2)" in said
    assert "no worker waits for another" in said


def test_a_server_that_takes_updates_in_turn_is_not_modelled(tmp_path):
    run = apart(tmp_path / "run", [0.01, 0.01], 3, name="update in turn")
    with pytest.raises(InputError, match="takes its workers' updates in turn"):
        replayed(run, *APART)
    short = apart(tmp_path / "short", [0.01, 5.0], 3)
    with pytest.raises(InputError, match="fewer than two updates of worker 1"):
        replayed(short, *APART)


def test_a_real_asynchronous_run_is_replayed(place):
    assert place.run("system=digest_a", "system.order=arrival", "system.interval=2", "epochs=5").code == 0
    (run,) = place.runs()
    timeline = replayed(run)
    took = Trace(run).epochs.groupby("worker")["train_s"].apply(list)
    for worker, begins in enumerate(timeline.begins):
        # Where the last updates come in another order, a worker makes a round more than it did, which is one
        # of its others once more.
        for number, traced in enumerate(took[worker][: len(begins)]):
            lasts = timeline.ends(worker, number) - begins[number]
            assert lasts == pytest.approx(traced, rel=0.05)
    assert sum(map(len, timeline.begins)) == 10
    assert timed(run, *APART).epoch > 0


def test_runs_that_would_compute_something_else_there_reach_no_score(tmp_path, refused):
    exact = recorded(tmp_path / "run", [[0.01, 0.02]] * 3, label="exact")
    own = recorded(tmp_path / "own", [[0.01, 0.02]] * 3, label="own")
    files.write_json_atomic(
        own / "resolved.json", {**files.read_json(own / "resolved.json"), "devices": True}
    )
    free = apart(tmp_path / "apart", [0.01, 0.03], 4)
    words = [*APART[:2], "gbytes_per_s=0.1:10:2", "latency_us=1:2:2", "reaches=55"]
    for run, said in (
        (own, "went by the devices of cluster="),
        (free, "is asynchronous: where updates come in another order"),
    ):
        refused(main, ["crossover", str(exact), str(run), *words], said)


@pytest.mark.parametrize("said", ["all", "some", "elsewhere"])
def test_a_run_that_went_by_devices_has_its_scores_where_they_are_the_same(tmp_path, refused, said):
    """Those of its workers, of which its config may leave out what is not given."""
    device = dataclasses.asdict(Device("A800", memory_gb=80, memory_gbytes_per_s=1935, fp32_tflops=19.5))
    if said != "all":
        device = {key: value for key, value in device.items() if value is not None}
    devices = [device, {**device, "host": int(said == "elsewhere")}]
    exact = recorded(tmp_path / "exact", [[0.01, 0.02]] * 3, label="exact")
    own = recorded(
        tmp_path / "own", [[0.01, 0.02]] * 3, label="own", cluster={"name": "mine", "devices": devices}
    )
    facts = files.read_json(own / "resolved.json")
    files.write_json_atomic(own / "resolved.json", {**facts, "devices": True})
    words = ["crossover", str(exact), str(own), "cluster=cdfgnn", "gbytes_per_s=0.1:10:2", "reaches=55"]
    alike, others = ([], ["per_host=1"]) if said != "elsewhere" else (["per_host=1"], [])
    assert main([*words, *alike]) == 0
    told = "went by the devices of cluster=mine: with those of cluster=cdfgnn"
    refused(main, [*words, *others], told)


def test_who_slept_sleeps_under_any_clock(tmp_path):
    """Worker 1 in every epoch before the sum."""
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    before = timed(run, *APART, "clock=cpu").epoch
    trace = Trace(run)
    spans = trace.spans
    sums = (spans.worker == 1) & (spans.name == "all_reduce")
    begun = spans.start_s[sums & (spans.kind == "wait")]
    sleeps = spans.loc[begun.index].assign(
        kind="rest", name="straggle", cpu_s=1e-5, id="", end_s=begun + 0.05
    )
    spans.loc[sums, "start_s"] += 0.05
    spans.loc[sums & (spans.kind == "wait"), "end_s"] += 0.05
    trace.spans = pd.concat([spans, sleeps])
    for clock in ("cpu", "wall"):
        _, replayer, _ = parse([str(run), *APART, f"clock={clock}"])
        times = times_of(replayer.replay(trace))
        assert times.workers[1].rest >= 0.05
        assert clock == "wall" or times.epoch == pytest.approx(before + 0.05, rel=1e-3)


def test_a_straggler_can_be_had_of_any_run(tmp_path, capsys):
    run = recorded(tmp_path / "run", [[0.01, 0.02]] * 3)
    words = [*APART, "clock=wall"]
    before = timed(run, *words)
    late = timed(run, *words, "straggler=1", "delay=0.05")
    assert late.epoch == pytest.approx(before.epoch + 0.05, rel=1e-3)
    assert late.workers[0].idle == pytest.approx(before.workers[0].idle + 0.05, rel=1e-3)
    slow = timed(run, *words, "straggler=1", "slowdown=3")
    assert slow.workers[1].compute == pytest.approx(3 * before.workers[1].compute)
    assert slow.workers[0].compute == pytest.approx(before.workers[0].compute)
    for where in (words, []):  # on another cluster, and on its own machine
        assert main([str(run), *where, "straggler=1", "delay=0.05"]) == 0
        assert "worker 1 held up 0.05 s per epoch" in capsys.readouterr().out
    alone = apart(tmp_path / "apart", [0.01, 0.01], 4)
    made = [len(begins) for begins in replayed(alone, *APART, "straggler=0", "delay=0.1").begins]
    assert made[0] < made[1] and sum(made) == 8


def test_the_first_epoch_counts_without_what_compiling_took(tmp_path):
    cold = recorded(tmp_path / "cold", [[9.0, 9.0], [0.01, 0.02], [0.01, 0.02]])
    timeline = replayed(cold, *APART, "clock=wall")
    assert first_epoch(timeline) < 0.04 and times_of(timeline).epoch < 0.04
