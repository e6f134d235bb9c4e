"""What goes wrong while a run is going on, each by really doing it: kill, interrupt, raise, damage,
resume.
"""

import json
import re
import signal
from pathlib import Path

from filelock import FileLock
from pandas.testing import assert_frame_equal

from harness.results.reader import Trace
from harness.results.schema import LOCK
from harness.run import launch
from tests.launching import losses
from tests.memory import exchanges_through_memory, shared_memory

LONG = "epochs=1000000"


def test_killed_worker_ends_the_run_and_leaves_a_readable_trace_and_no_shared_memory(place):
    run = place.start("system=digest", "model.layers=3", LONG)
    run.until_epoch(4)
    mapped = {path for process in run.family for path in shared_memory(process)}
    assert len(mapped) == 2, "a store without a name of each worker"
    assert sum(map(exchanges_through_memory, run.family)) == 2
    workers = [p for p in run.family if p.ppid() == run.process.pid]
    assert len(workers) == 2
    workers[1].kill()
    done = run.end()
    assert done.code == 128 + signal.SIGKILL
    assert "worker 1 was killed by SIGKILL" in done.err
    assert "Traceback" not in done.err and "worker 0" not in done.err
    assert run.survivors() == []  # memory without a name goes with the last process that has it
    epochs = Trace(place.runs()[0]).epochs
    for worker in (0, 1):
        traced = epochs[epochs["worker"] == worker]["epoch"].tolist()
        assert traced == list(range(len(traced))) and len(traced) >= 4


def test_a_worker_that_crashes_is_one_sentence(place):
    """Python's dump of what each thread was doing is for who asks for it."""
    done = place.run(*place.trouble, "system.how=crash", "progress=false")
    assert done.code == 128 + signal.SIGABRT
    assert re.fullmatch("error: worker 1 was killed by SIGABRT; .*PYTHONFAULTHANDLER=1 .*\n", done.err)


def test_a_worker_that_the_c_library_ends_lacked_memory(tmp_path):
    error = launch._failure(0, 127, tmp_path / "none")
    assert error.code == 127 and "exit code 127 for want of memory; the same command" in str(error)


def test_a_run_in_which_nobody_moves_ends_after_its_patience(place):
    done = place.run(*place.trouble, "system.how=hang", "progress=false", "patience=5")
    assert done.code == 1 and done.err.count("\n") == 1
    assert done.err.startswith("error: no worker has made progress for patience=5 s (worker")
    assert "in epoch 4);" in done.err
    assert Trace(place.runs()[0]).epochs["epoch"].max() == 2


def test_a_sweep_that_is_killed_takes_its_workers_along_and_ends_complete(place):
    """No finished run is run again, and no epoch before the last checkpoint computed twice."""
    sweep = ("-m", place.more, "system=held_vanilla", "seed=1,2", "epochs=40", "checkpoint_every=10")
    assert place.run(*(word.replace("1,2", "1") for word in sweep)).code == 0
    (first,) = place.runs()
    finished = (first / "summary.json").stat().st_mtime_ns
    place.hold.touch()
    run = place.start(*sweep)
    run.until(lambda: len(place.runs()) == 2)
    (second,) = set(place.runs()) - {first}
    reached = second / "checkpoints" / "latest"
    run.until(lambda: reached.exists() and int(reached.read_text()) == 30)
    run.family = run.process.children(recursive=True)
    assert len(run.family) >= 2
    run.process.kill()
    run.end()
    assert run.survivors() == []
    place.hold.unlink()
    again = place.run(*sweep)
    assert again.code == 0 and again.out.count("finished before") == 1, again.err
    assert (first / "summary.json").stat().st_mtime_ns == finished
    attempts = json.loads((second / "resolved.json").read_text())["attempts"]
    assert [each["first_epoch"] for each in attempts] == [0, 30]
    assert sorted(Trace(second).epochs["epoch"]) == sorted([*range(40)] * 2)


def test_stopped_run_ends_cleanly_and_goes_on_from_what_is_whole_as_one_never_stopped(place):
    """A damaged checkpoint is left for the one before it, a damaged shard is made again."""
    command = (place.more, "system=held_vanilla", "epochs=60", "checkpoint_every=10", "evaluate.every=25",
               "model.hidden=512")  # fmt: skip
    place.hold.touch()  # it cannot end before it is told to
    run = place.start(*command)
    run.until_epoch(20)
    run.process.send_signal(signal.SIGTERM)
    done = run.end()
    place.hold.unlink()
    assert done.code == 128 + signal.SIGTERM and run.survivors() == []
    assert done.err == "stopped by SIGTERM; the same command goes on from the last checkpoint\n"
    (run_dir,) = place.runs()
    assert not (run_dir / "summary.json").exists()
    assert_refuses_another_graph(place, command)
    latest = int((run_dir / "checkpoints" / "latest").read_text())
    assert 20 <= latest <= 30
    shard = Path(json.loads((run_dir / "shards.json").read_text())["folder"], "worker-1.safetensors")
    shard.write_bytes(shard.read_bytes()[:-9])
    damaged = run_dir / "checkpoints" / f"epoch-{latest:06d}" / "worker-1.pt"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 4
    damaged.write_bytes(content)
    went_on, went_on_at = place.run(*command, "progress=auto"), latest - 10
    assert went_on.code == 0 and f"note: {shard.parent} is damaged" in went_on.err, went_on.err
    (said,) = [line for line in went_on.err.splitlines() if str(damaged) in line]
    assert said.endswith(f"goes on from the checkpoint before it, after {went_on_at} epochs")
    assert re.search(rf": resumed from epoch {went_on_at}\n.*: epoch \d+/60, loss \d", went_on.err)
    resumed = losses(run_dir)
    ours = resumed[resumed["worker"] == 0].set_index("epoch")["bytes_sent"]
    whole, since = (f"{ours[first:].sum() / 1e6:.1f} MB sent by worker 0" for first in (0, went_on_at))
    assert whole != since and went_on.err.rstrip().endswith(whole), "what it had sent before counts"
    again = place.run(*command, "fresh=true", "checkpoint_every=0")
    assert again.code == 0 and f"{run_dir}.old1" in again.out
    assert_frame_equal(resumed, losses(run_dir), check_exact=True)
    assert len(resumed) == 120 and resumed["loss"].nunique() > 50
    for split in ("train_acc", "val_acc", "test_acc"):
        assert sorted(set(resumed["epoch"][resumed[split].notna()])) == [0, 25, 50, 59]
    assert json.loads((run_dir / "summary.json").read_text())["final"]
    # The checkpoint did the work: the resumed attempt traced no epoch before it.
    assert Trace(f"{run_dir}.old1").finished and not (run_dir / "checkpoints").exists()


def assert_refuses_another_graph(place, command) -> None:
    place.write_graph(60, seed=4)
    try:
        done = place.run(*command)
    finally:
        place.write_graph(60)
    assert done.code == 2 and "the graph has changed" in done.err and "fresh=true" in done.err


def test_sweep_survives_a_failing_job_names_it_and_runs_only_what_is_missing(place):
    """A worker that raises shows its traceback once."""
    sweep = (*place.trouble, "system.how=nothing,raise", "seed=1,2", "-m")
    done = place.run(*sweep)
    assert done.code == 1
    assert done.err.count("Traceback") == done.err.count("ZeroDivisionError: told to fail") == 2
    assert "worker 1 failed" in done.err and "KeyError" not in done.err and "worker 0" not in done.err
    traced = [Trace(run) for run in place.runs()]
    assert sorted((trace.finished, trace.epochs["epoch"].max()) for trace in traced) == [
        *[(False, 2)] * 2, *[(True, 5)] * 2
    ]  # fmt: skip
    listed = done.err[done.err.index("2 of the sweep's jobs failed") :].splitlines()[1:]
    assert len(listed) == 2 and all("system.how=raise" in line for line in listed)
    assert [next(w for w in line.split() if w.startswith("seed=")) for line in listed] == ["seed=1", "seed=2"]
    assert listed[1].endswith(": the same"), "a reason is told once"
    place.mend("raise")
    before = {p: p.stat().st_mtime_ns for p in place.results.glob("graph/*/summary.json")}
    again = place.run(*sweep)
    after = {p: p.stat().st_mtime_ns for p in place.results.glob("graph/*/summary.json")}
    assert again.code == 0 and len(after) == 4 and before.items() <= after.items()
    assert again.out.count("finished before") == 2


def test_a_sweep_waits_for_a_run_that_another_process_has_and_shows_it(place):
    assert place.run("epochs=2", "seed=1").code == 0
    (other,) = place.runs()
    whole = (other / "summary.json").read_bytes()
    with FileLock(other / LOCK):
        (other / "summary.json").unlink()  # as if it were going on
        sweep = place.start("-m", "epochs=2", "seed=1,2")
        sweep.until(lambda: f"{other} is in use" in sweep.told())
        (other / "summary.json").write_bytes(whole)
    done = sweep.end()
    assert done.code == 0 and done.err.count("waiting for it to end") == 1, done.err
    assert done.out.count("finished before") == 1 and len(place.runs()) == 2
    assert (other / "summary.json").read_bytes() == whole
