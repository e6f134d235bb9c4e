"""A loss that is no finite number ends the run, and is told wherever the run is shown."""

import json

import numpy as np

from harness.results.reader import Trace
from harness.results.rounds import epochs_of_run

WILD = "optimiser.lr=1e36"  # the first step overflows


def assert_stopped(run_dir) -> None:
    trace = Trace(run_dir)
    last = epochs_of_run(trace.epochs)["epoch"].max()
    assert trace.finished and trace.summary["diverged"] <= last < 6 and trace.summary["epochs"] == last + 1
    assert not (run_dir / "checkpoints").exists()


def test_workers_that_do_not_wait_for_each_other_stop_where_their_run_diverges(place):
    done = place.run("system=digest_a", WILD, "epochs=40", "checkpoint_every=2")
    assert done.code == 0 and "diverged: from epoch" in done.out, done.err
    assert "test accuracy" not in done.out
    assert_stopped(place.runs()[0])


def test_a_sweep_goes_on_behind_a_run_that_diverged(place):
    done = place.run("-m", "optimiser.lr=1e36,0.01", "epochs=7", "checkpoint_every=2")
    assert done.code == 0, done.err
    assert "optimiser.lr=1e+36 diverged (seed 1 in epoch" in done.out, done.out
    wild, calm = sorted(place.runs(), key=lambda path: Trace(path).summary["diverged"] is None)
    assert_stopped(wild)
    assert Trace(calm).summary["diverged"] is None


def test_nothing_is_written_behind_the_epoch_that_diverged(place):
    """Whose loss is read when the next one has been trained, where workers meet for a checkpoint."""
    assert place.run(WILD, "epochs=40", "evaluate.every=0", "checkpoint_every=3").code == 0
    trace = Trace(place.runs()[0])
    assert trace.summary["diverged"] == trace.epochs["epoch"].max() == 1


def test_a_run_goes_on_where_asked_and_is_still_told(place):
    done = place.run(WILD, "epochs=6", "diverged=go_on")
    assert done.code == 0 and "diverged: from epoch" in done.out
    (run_dir,) = place.runs()
    epochs = Trace(run_dir).epochs
    assert epochs["epoch"].max() == 5 and not np.isfinite(epochs["loss"].iloc[-1])
    assert json.loads((run_dir / "summary.json").read_text())["loss"] is None
    again = place.run(WILD, "epochs=6", "diverged=go_on")
    assert "finished before" in again.out and "diverged: from epoch" in again.out


def test_weights_that_the_last_step_spoilt_are_seen_in_the_evaluation(place):
    """Its loss, taken before the step, was fine."""
    assert place.run(WILD, "epochs=1").code == 0
    (run_dir,) = place.runs()
    trace = Trace(run_dir)
    assert np.isfinite(trace.epochs["loss"]).all() and trace.summary["diverged"] == 0
    assert (trace.metrics.query("name == 'not_finite_logits'").value > 0).all() and trace.epochs[
        "test_acc"
    ].isna().all()
