"""DIGEST-A: the server takes updates as they come or in turn, workers run apart, and what it costs."""

import dataclasses
import json
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.comm import parameters, server
from harness.comm.comm import Comm
from harness.comm.recorder import Recorder
from harness.comm.server import ParameterServer, Settings
from harness.comm.service import ServiceLost
from harness.results.reader import Trace
from harness.results.schema import RUN, UPDATE
from tests import jobs, systems, traces
from tests.oracles.samples import random_graph
from tests.systems import Settings as How

MODEL = systems.small("gcn", 3, 6)


class Waits(Exception):
    pass


def serving(monkeypatch, order: str, **more) -> tuple[ParameterServer, list[float]]:
    """A server of two workers, whose clock stands at the first of the numbers; it raises Waits where it would
    block."""

    def wait(timeout=None):
        raise Waits

    now = [100.0]
    monkeypatch.setattr(server, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made = ParameterServer(Settings(2, order, 1.0, "float64", **{"adam": None, "updates": 10**6, **more}))
    monkeypatch.setattr(made.changed, "wait", wait)
    made.load(0, 2.5, np.zeros(3))
    return made, now


def test_updates_after_the_last_are_answered_and_not_applied(monkeypatch):
    made, _ = serving(monkeypatch, "arrival", updates=4)
    for epoch in range(4):
        made.update(1, epoch, epoch, np.ones(3))
    for rank in (0, 1):
        version, delay, weights = made.update(rank, 0, 0, np.ones(3))
        assert (version, delay, weights.tolist()) == (4, None, [4.0] * 3)
    assert made.snapshot(1)[2].tolist() == [4.0] * 3 and sorted(made.snapshots) == [0, 1]


ADAM = {"lr": st.floats(1e-4, 0.5), "beta1": st.floats(0.5, 0.95), "beta2": st.floats(0.9, 0.9999),
        "eps": st.sampled_from([1e-8, 1e-4]), "weight_decay": st.sampled_from([0.0, 5e-4, 0.1])}  # fmt: skip


@given(
    adam=st.fixed_dictionaries(ADAM),
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 12),
    stop=st.integers(0, 12),
    scale=st.sampled_from([1.0, 0.25]),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_the_servers_adam_is_torchs_to_rounding_and_its_state_is_all(adam, seed, steps, stop, scale, dtype):
    rng = np.random.default_rng(seed)
    start, sizes = rng.standard_normal(7).astype(dtype), 10.0 ** rng.integers(-4, 3, 7)
    parameter = torch.nn.Parameter(torch.from_numpy(start.copy()))
    theirs = {key: adam[key] for key in ("lr", "eps", "weight_decay")}
    optimiser = torch.optim.Adam([parameter], betas=(adam["beta1"], adam["beta2"]), **theirs)
    settings = Settings(1, "arrival", scale, dtype, adam, 10**6)
    made = ParameterServer(settings)
    made.load(0, 0, np.concatenate([start, np.zeros(14, dtype)]))
    for t in range(steps):
        if t == stop:
            version, _, state = made.read()
            made = ParameterServer(settings)
            made.load(version, 0, state)
        gradient = (rng.standard_normal(7) * sizes).astype(dtype)
        parameter.grad = torch.from_numpy(scale * gradient)
        optimiser.step()
        weights = made.update(0, t, t, gradient)[2]
        assert weights.dtype == dtype
        # Every step is rounded, and is about a learning rate long: weights that cancel keep that much of it.
        rounding = 50 * np.finfo(dtype).eps
        theirs = parameter.detach().numpy()
        np.testing.assert_allclose(weights, theirs, rtol=rounding, atol=rounding * (t + 1))


def test_in_rotation_a_worker_waits_for_its_turn(monkeypatch):
    made, _ = serving(monkeypatch, "rotation")
    for epoch in range(2):
        with pytest.raises(Waits):
            made.update(1, epoch, made.version, np.ones(3))
        for rank in (0, 1):
            made.update(rank, epoch, made.version, np.ones(3))
        with pytest.raises(Waits):
            made.update(1, epoch, made.version, np.ones(3))


def test_the_servers_clock_counts_seconds_from_the_first_update_and_on_from_where_it_stopped(monkeypatch):
    made, now = serving(monkeypatch, "arrival")
    now[0] = 107.0
    assert made.elapsed() == 2.5
    made.update(0, 0, 0, np.ones(3))
    now[0] = 110.0
    made.update(1, 0, 0, np.ones(3))
    now[0] = 111.0
    assert made.elapsed() == 2.5 + 4
    version, when, weights = made.snapshot(0)
    assert (version, when, weights.tolist()) == (2, 2.5 + 3, [2.0] * 3)


def test_the_server_ends_without_a_word_when_its_workers_hang_up_before_worker_0_lets_go_of_it(tmp_path):
    settings = json.dumps(dataclasses.asdict(Settings(1, "arrival", 1.0, "float32", None, 1)))
    command = [sys.executable, "-m", "harness.comm.server", str(tmp_path / "socket"), settings]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"ready\n"
        with socket.socket(socket.AF_UNIX) as worker:
            worker.connect(str(tmp_path / "socket"))
        assert (process.wait(60), process.stderr.read()) == (0, b"")


# As the interpreter that runs `-m harness.comm.server ADDRESS SETTINGS`, where no thread can be started.
THREADLESS = """#!{python}
import runpy, sys, threading

def none(thread):
    raise RuntimeError("can't start new thread")

threading.Thread.start = none
sys.argv[1:3] = []
runpy.run_module("harness.comm.server", run_name="__main__")
"""


def test_a_server_that_gets_no_thread_says_so_in_one_sentence(tmp_path, monkeypatch, capfd):
    python = tmp_path / "python"
    python.write_text(THREADLESS.format(python=sys.executable))
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    worker = object.__new__(parameters.Parameters)
    worker.settings = Settings(2, "arrival", 1.0, "float32", None, 1)
    with pytest.raises(ServiceLost, match="could not be started: no more processes or threads can be"):
        worker._start(str(tmp_path / "socket"))
    assert capfd.readouterr() == ("", "")


def assert_served() -> None:
    alone = Comm(0, 1, torch.device("cpu"), Recorder())
    worker = parameters.Parameters(alone, torch.arange(3.0), "arrival", 1.0, None, 1)
    assert worker.read()[0].tolist() == [[0.0, 1.0, 2.0]]
    worker.close()


def test_a_server_is_reached_in_a_folder_whose_path_is_longer_than_a_sockets_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * 120)))
    os.mkdir(tempfile.tempdir)
    assert_served()


def test_a_server_is_not_that_of_another_program_in_the_folder_where_one_works(tmp_path, monkeypatch):
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    assert_served()


@pytest.mark.parametrize("whole", [True, False], ids=["before its answer", "inside a message"])
def test_a_worker_that_hangs_up_is_no_error_of_the_server(monkeypatch, whole):
    made, _ = serving(monkeypatch, "arrival")
    worker, connection = multiprocessing.Pipe()
    if whole:
        worker.send(("update", (0, 0, 0, np.ones(3))))
    else:
        os.write(worker.fileno(), struct.pack("!i", 16) + b"half of")
    worker.close()
    made.serve(connection)
    assert made.version == whole and connection.closed


@pytest.mark.parametrize(
    "order, features, update", [("arrival", "once", "gradient"), ("rotation", "refetch", "delta")]
)
def test_bytes_are_the_closed_form(pool, order, features, update):
    """Every round an update and the weights, 8 bytes of version each way; pushes and pulls as in DIGEST, and
    8 bytes an owner where its newest push is asked for."""
    graph = random_graph(6, vertices=30)
    knobs = {"interval": 2, "order": order, "features": features, "update": update}
    how = How(MODEL, dtype="float32", epochs=5)
    outcome = systems.run(pool, graph, systems.block("digest_a", **knobs), 4, "random", how)
    (halo,) = {rows for (_, _, purpose), (rows, _) in outcome.sent(0).items() if purpose == "features"}
    f0, f1, f2, _ = outcome.widths
    weights = sum(w.size for w in outcome.weights[0].values())
    for epoch in range(5):
        want = {
            (-1, way, purpose): (0, 4 * size)
            for way, purpose, size in [
                ("backward", update, 4 * weights),
                ("backward", "stamps", 8),
                ("forward", "weights", 4 * weights),
                ("forward", "stamps", 8),
            ]
        }
        if epoch == 0 or features == "refetch":
            want[0, "forward", "features"] = (halo, halo * f0 * 4)
        for layer, width in ((1, f1), (2, f2)):
            if epoch % 2 == 1:
                want[layer, "forward", "push"] = (30, 30 * width * 4)
            else:
                want[layer, "forward", "pull"] = (halo, halo * width * 4)
                if order == "arrival":
                    want[layer, "forward", "stamps"] = (0, 4 * 3 * 8)
        assert outcome.sent(epoch) == want
    for worker in outcome.workers:
        assert [metrics.get((-1, "store_bytes")) for metrics in worker["metrics"]] == [
            30 * (f1 + f2) * 4,
            *[None] * 4,
        ]


def prepared(folder: Path, epochs: int, pace: int, meeting: int, checkpoint_every: int = 0) -> Path:
    """The folder of a run of two workers, of which worker 1 is behind (`tests.jobs.Behind`)."""
    own = {"pace": pace, "meeting": meeting, "_target_": "tests.jobs.Behind"}
    block = systems.block("digest_a", interval=2) | own
    composed = traces.config(
        system=block,
        epochs=epochs,
        checkpoint_every=checkpoint_every,
        threads=1,
        kernel="numba",
        evaluate={"every": 1},
        model__hidden=4,
        optimiser={"lr": 0.01, "weight_decay": 0.0},
    )
    return systems.ready(folder, composed)


def rounds_of(trace: Trace) -> dict[int, list[int]]:
    """The rounds of every worker, and the epochs of the run under RUN."""
    return trace.epochs.groupby("worker")["epoch"].apply(list).to_dict()


def test_a_run_ends_with_its_last_update_and_until_then_every_worker_goes_on(pool, tmp_path):
    """After its first round worker 1 stands still until the server has had every update, 4 epochs of 2."""
    folder = prepared(tmp_path, 4, pace=8, meeting=8)
    pool.run(jobs.work, 2, folder)
    trace = Trace(folder)
    assert rounds_of(trace) == {0: list(range(7)), 1: [0, 1], RUN: list(range(4))}
    updates = trace.metrics[trace.metrics["name"] == UPDATE]
    assert sorted(updates["value"]) == list(range(8))
    assert updates[updates["worker"] == 1]["epoch"].tolist() == [0], "its second round came too late"
    run = trace.epochs[trace.epochs["worker"] == RUN]
    assert run["val_acc"].notna().all() and np.isfinite(run["loss"]).all()
    assert trace.epochs[trace.epochs["worker"] != RUN]["val_acc"].isna().all()
    s = trace.summary
    assert (s["epochs"], s["rounds"], s["final"]["epoch"], s["workers"]) == (4, [7, 2], 3, 2)
    assert s["bytes_total"] == trace.comm["bytes"].sum() == trace.epochs["bytes_sent"].sum()
    # Whoever sends them: every update is a gradient up and the weights down.
    width = trace.comm[trace.comm["purpose"] == "gradient"]["bytes"].iloc[0]
    for purpose in ("gradient", "weights"):
        assert s["bytes_epoch_by_purpose"][purpose]["other"] == 2 * width


def test_a_run_is_resumed_where_its_workers_stood_at_different_rounds(pool, tmp_path):
    """Worker 1 makes a round per four updates; the checkpoint is at 4 epochs of 2 updates, the end at 8."""
    folder = prepared(tmp_path, 8, checkpoint_every=4, pace=4, meeting=8)
    ahead, behind = pool.run(jobs.work_until_saved, 2, folder)
    assert ahead >= 6 and 2 <= behind <= 3
    stopped = rounds_of(Trace(folder))
    assert stopped == {0: list(range(ahead)), 1: list(range(behind)), RUN: list(range(4))}
    pool.run(jobs.work, 2, folder)
    trace = Trace(folder)  # its update numbers were checked as it was made: each of 16 is there once
    resumed = rounds_of(trace)
    assert resumed[RUN] == list(range(8))
    assert resumed[0] == list(range(len(resumed[0]))) and resumed[1] == list(range(len(resumed[1])))
    assert len(resumed[0]) > ahead and behind < len(resumed[1]) < len(resumed[0])
    assert np.isfinite(trace.epochs["loss"]).all() and trace.summary["final"]["epoch"] == 7
    when = trace.metrics[trace.metrics["name"] == "server_s"].set_index("epoch")["value"]
    assert when.index.tolist() == list(range(8)) and (np.diff(when) > 0).all()
    # Worker 1's rounds are few: their number says nothing of the age of what it reads, counted in updates.
    own = trace.metrics[trace.metrics["worker"] != RUN]
    metrics = own.pivot(index=["worker", "epoch"], columns=["name", "layer"], values="value")
    read, update = metrics["staleness", 1], metrics[UPDATE, -1]
    assert read.notna().all()
    # Round r > 0 began with the weights after the worker's update before.
    began = (update.groupby("worker").shift() + 1).fillna(0)
    assert (read <= began / 2).all() and (read > -16 / 2).all(), "at most all updates"
    # Worker 0 pulls in its third round what worker 1 has pushed last: only the start yet, all updates ago.
    assert read[0, 2] == began[0, 2] / 2
