"""Traces of asynchronous runs: a worker's rounds, the run's epochs, and every number that is made of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm.recorder import Epoch
from harness.results import writer
from harness.results.asynchronous import AsynchronousTrace
from harness.results.reader import Trace
from harness.results.report import curves, groups, single
from harness.results.rounds import Rounds
from harness.results.schema import RUN, UPDATE
from tests import traces
from tests.reported import rendered, section_of

# Eight updates of two workers: 4 epochs. Worker 0 made 5 and a round that came too late, worker 1 made 3.
ORDER, LATE = [0, 0, 1, 0, 1, 0, 0, 1], [0]


def finished(folder, order=ORDER, late=LATE, composed=None):
    traces.apart(folder, order, late=late, composed=composed)
    return Trace(traces.close(folder))


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("uneven"))


def test_a_run_of_uneven_rounds_is_finalised_whole(trace):
    rounds = trace.epochs.groupby("worker")["epoch"].apply(list).to_dict()
    assert rounds == {RUN: [0, 1, 2, 3], 0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2]}
    read = Rounds.read(trace).epochs.sort_values(["worker", "epoch"])
    of_run = [None if np.isnan(e) else int(e) for e in read["of_run"]]
    assert of_run == [0, 0, 1, 2, 3, None, 1, 2, 3], "update u falls in epoch u // 2"


def test_means_are_per_epoch_of_the_run(trace):
    s = trace.summary
    assert (s["epochs"], s["rounds"], s["workers"], s["loss"]) == (4, [6, 3], 2, 0.25)
    # Six rounds after the workers' first made an update: 3 epochs. Worker 0 has four of them, worker 1 two
    # of twice the work.
    zero, one = 4 * 0.15, 2 * 0.25
    assert s["epoch_s"] == s["epoch_median_s"] == pytest.approx(max(zero, one) / 3)
    assert (s["compute_s"], s["exposed_s"]) == pytest.approx((4 * 0.1 / 3, 4 * 0.05 / 3))
    assert s["rest_s"] == pytest.approx(0, abs=1e-12)
    assert s["cpu_s"] == pytest.approx((4 * 0.1 + 2 * 0.2) / 3)
    assert s["cpu_slowest"]["epoch_s"] == pytest.approx(0.4 / 3) and s["cpu_slowest"]["wait_s"] == 0
    assert s["bytes_epoch"] == {"layer_0": 0, "hidden": 0, "other": pytest.approx(6 * 10 / 3)}
    assert s["flops_epoch"] == pytest.approx(6 * 30_000_000 / 3)
    # Of the whole run: what came too late was computed and sent too.
    assert (s["bytes_total"], s["bytes_first_epoch"]) == (200 + 7 * 10, 200)
    assert s["train_total_s"] == pytest.approx(max(6 * 0.15, 3 * 0.25))
    assert s["first_epoch_s"] == pytest.approx(0.25)
    assert (s["peak_rss_max"], s["peak_rss_sum"]) == (2**20, 2 * 2**20)
    assert (s["final"]["epoch"], s["best"]["test"]) == (3, 0.03)


def test_a_curve_goes_by_the_servers_updates(trace):
    curve = curves.curve(groups.Run(trace.run_dir), "acc")
    assert curve["epoch"].tolist() == [1, 2, 3, 4]
    assert curve["score"].tolist() == pytest.approx([0, 1, 2, 3])
    # Without each worker's first round. Epoch 0: worker 0's second; 1: both; 2: both; 3: worker 0's fifth,
    # worker 1's third.
    assert curve["seconds"].tolist() == pytest.approx([0.15, 0.3, 0.45, 0.6])
    assert curve["megabytes"].tolist() == pytest.approx(np.array([110, 220, 240, 260]) / 1e6)


def test_a_run_that_died_is_drawn_as_far_as_its_rounds_are_there(tmp_path):
    """Killed where the workers met: the run's epochs are written, and the rounds of worker 1 are not."""
    traces.apart(tmp_path, [0, 0, 1, 1, 1, 1, 0, 1])
    for path in (tmp_path / "stream").glob("*-worker1-*"):
        path.unlink()
    curve = curves.curve(groups.Run(tmp_path), "acc")
    assert curve["epoch"].tolist() == [1, 2, 3, 4]
    assert curve["seconds"].tolist() == pytest.approx([0.15, 0.15, 0.15, 0.3])
    assert curve["megabytes"].tolist() == pytest.approx(np.array([110, 110, 110, 120]) / 1e6)


def test_the_tables_say_that_a_run_is_asynchronous_and_how_many_rounds_its_workers_made(trace, tmp_path):
    shown = rendered(single.run_table(trace.run_dir))
    assert "asynchronous: workers made 6, 3 rounds, which are 4 epochs of 2 updates" in shown
    (said,) = [note for note in section_of(trace.run_dir).notes() if "asynchronous" in note]
    assert "a worker's whole time over the number of epochs" in said
    plain = section_of(traces.finished(tmp_path))
    assert not any("asynchronous" in note for note in plain.notes())


@settings(max_examples=6)
@given(order=st.lists(st.integers(0, 2), min_size=3, max_size=15))
def test_whatever_the_order_every_byte_is_counted_once(tmp_path_factory, order):
    order = [0, 1, 2, *order[: len(order) // 3 * 3]]
    trace = finished(tmp_path_factory.mktemp("run"), order, late=[1], composed=traces.config(gpus=3))
    s, sent = trace.summary, Rounds.read(trace).epochs.groupby("of_run")["bytes_sent"].sum()
    assert s["epochs"] == len(order) // 3 == len(sent)
    assert sent.sum() + 10 == s["bytes_total"]  # the round of worker 1 that came too late
    count = (len(order) - 3) / 3
    warm = s["bytes_total"] - s["bytes_first_epoch"] - 10
    assert sum(s["bytes_epoch"].values()) * count == pytest.approx(warm)
    seconds = Rounds.read(trace).cumulative("train_s")
    assert (np.diff(seconds) >= 0).all() and seconds.iloc[-1] == pytest.approx(s["epoch_s"] * count)


def test_a_later_attempt_goes_on_where_each_worker_stood(tmp_path):
    """The checkpoint was at 2 epochs; worker 0 had made three rounds by then, worker 1 one; what came after
    was lost."""
    traces.apart(tmp_path, [0, 0, 1, 0, 0, 0, 0])
    traces.apart(tmp_path, [1, 1, 0, 1], begin=[0, 0, 1, 0], attempt=1, late=[0])
    writer.finalise(tmp_path)
    trace = Trace(tmp_path)
    assert trace.epochs.groupby("worker").size().to_dict() == {RUN: 4, 0: 5, 1: 4}
    updates = trace.metrics[trace.metrics["name"] == UPDATE]
    assert updates[updates["worker"] == 1]["value"].tolist() == [2, 4, 5, 7]
    assert updates[updates["worker"] == 0]["value"].tolist() == [0, 1, 3, 6]


def test_a_worker_without_a_round_since_the_resume_shows_none_of_the_attempt_before(tmp_path):
    traces.apart(tmp_path, [0, 0, 1, 0, 1, 0])
    traces.apart(tmp_path, [0], begin=[0, 0, 1, 0], attempt=1)
    rows = Trace(tmp_path).epochs.groupby("worker")["epoch"].apply(list).to_dict()
    assert rows == {RUN: [0, 1], 0: [0, 1, 2, 3], 1: [0]}
    traces.apart(tmp_path, [1, 1, 0, 0], begin=[0, 0, 1, 0], attempt=2)  # went on from the same checkpoint
    rows = Trace(tmp_path).epochs.groupby("worker")["epoch"].apply(list).to_dict()
    assert rows == {RUN: [0, 1, 2, 3], 0: [0, 1, 2, 3, 4], 1: [0, 1, 2]}


@pytest.mark.parametrize(
    "damage, said",
    [
        ("epochs-worker1", "does not have every epoch of every worker"),
        ("epochs-run", "does not have every epoch of every worker"),
        ("a row of epochs-run", "does not have every epoch of every worker"),
        ("metrics-worker0", "does not have each of 8 updates of the weights once"),
        ("an update twice", "does not have each of 8 updates of the weights once"),
    ],
)
def test_a_trace_with_a_hole_is_refused(tmp_path, damage, said):
    traces.apart(tmp_path, ORDER)
    if damage == "a row of epochs-run":  # one of the run without those before it
        traces.write(tmp_path, [Epoch(number) for number in (0, 1, 3)], worker=RUN)
    elif damage == "an update twice":  # 1 is worker 0's, and update 7 has none then
        made = [traces.round_of(number, 1, update) for number, update in enumerate([2, 4, 1])]
        traces.write(tmp_path, made, worker=1)
    else:
        (tmp_path / "stream" / f"{damage}-attempt0.arrow").unlink()
    with pytest.raises(InputError, match=said) as refused:
        writer.finalise(tmp_path)
    assert "run it again with fresh=true" in str(refused.value) and not list(tmp_path.glob("*.parquet"))


def test_an_epochs_loss_is_the_mean_over_the_training_vertices_each_in_its_workers_latest_round(tmp_path):
    """Worker 0 has a quarter of the training vertices, and worker 1 the others."""
    shares, answers = (0.25, 0.75), []
    totals = [0.25, 1.0, 1.0], [1.0]  # of the training vertices whose workers had made a round, by epoch
    for rank, rounds in enumerate([[(0, 0.5), (1, 0.4), (3, 0.3), (None, 9.0)], [(2, 3.0), (6, 1.5)]]):
        folder = traces.prepare(tmp_path / str(rank))
        comm = SimpleNamespace(rank=rank, size=2, total=lambda values: totals[len(values) == 1])
        trace = AsynchronousTrace(folder, writer.TraceWriter(folder, rank, 0), comm, 0, 0, shares[rank])
        made = [(traces.round_of(number, rank, update), loss) for number, (update, loss) in enumerate(rounds)]
        epochs = trace.epochs(made, 0, 3, 2**20)
        assert [epoch.epoch for epoch, _ in epochs] == [0, 1, 2]
        answers.append([loss for _, loss in epochs])
        answers[-1] += [loss for _, loss in trace.epochs([], 3, 4, 2**20)]
        trace.close()
        written = Trace(folder).epochs
        assert written["loss"].tolist() == [loss for _, loss in rounds] and written["val_acc"].isna().all()
        assert (folder / "stream" / "epochs-run-attempt0.arrow").exists() == (rank == 0)
    # Of epoch 0 only worker 0 had made rounds; the round that came too late is in no epoch; update 6 is of
    # epoch 3.
    assert np.sum(answers, axis=0).tolist() == pytest.approx([0.4 / 0.25, 0.3 + 3.0, 0.3 + 3.0, 0.3 + 1.5])


def test_the_very_first_update_counts_and_without_any_the_loss_is_unknown(tmp_path):
    folder = traces.prepare(tmp_path)
    comm = SimpleNamespace(rank=0, size=2, total=list)
    for rounds, want in (([(0, 0.5)], 0.5), ([], None)):
        trace = AsynchronousTrace(folder, writer.TraceWriter(folder, 0, 0), comm, 0, 0, 1.0)
        ((epoch, loss),) = trace.epochs([(traces.round_of(0, 0, u), share) for u, share in rounds], 0, 1, 0)
        trace.close()
        assert (epoch.epoch, loss) == (0, want)
