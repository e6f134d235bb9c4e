"""A run prepared by one command and trained by another's launcher: `launch=prepare`, then torchrun."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal

from harness.results import files, resolved
from harness.run.prepare import locked
from tests.launching import losses


@pytest.fixture
def prepared(place):
    """The folder of a prepared run, and the command that was printed to train it; Python started from
    scratch.
    """
    done = place.truly("-m", "harness", *place.arguments("launch=prepare", "progress=auto"))
    assert (done.returncode, done.stderr) == (0, "")
    (run_dir,) = place.runs()
    return run_dir, shlex.split(done.stdout)


def test_what_prepare_prints_trains_as_the_local_launcher_does(place, prepared):
    run_dir, printed = prepared
    path = run_dir / "environment.json"
    elsewhere = json.loads(path.read_text())
    files.write_json_atomic(path, {**elsewhere, "processor": "Login node", "code": "of then"})
    assert printed == ["torchrun", "--nproc-per-node", "2", "-m", "harness.run.worker", str(run_dir)]
    own = run_dir / "secret"
    secret = own.read_text().strip()
    assert own.stat().st_mode & 0o777 == 0o600 and secret not in shlex.join(printed)
    done = place.truly("-m", "torch.distributed.run", *printed[1:])
    assert done.returncode == 0, done.stderr
    left = [path.read_text(errors="replace") for path in run_dir.rglob("*") if path.is_file()]
    assert not own.exists() and not any(secret in text for text in (done.stdout, done.stderr, *left))
    assert f"{run_dir}: 2 workers on 1 host (2), on cpu" in done.stderr and "epoch 1/" in done.stderr
    assert "test acc" in done.stdout and done.stdout.endswith(f"{run_dir}\n")
    assert json.loads(path.read_text())["processor"] == elsewhere["processor"]
    (attempt,) = resolved.read(run_dir)["attempts"]
    assert (attempt["machine"], attempt["code"]) == (resolved.machine(elsewhere), elsewhere["code"])
    trained = losses(run_dir)
    again = place.run("fresh=true")
    assert again.code == 0 and f"{run_dir}.old1" in again.out
    assert_frame_equal(trained, losses(run_dir), check_exact=True)


@pytest.mark.nightly(20)
def test_another_number_of_workers_is_refused(place, prepared):
    run_dir, _ = prepared
    done = place.truly(
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "1",
        "-m",
        "harness.run.worker",
        str(run_dir),
    )
    assert done.returncode != 0
    assert (
        f"error: workers=2 in {run_dir}/config.yaml but 1 worker started; start as many as workers says"
        in done.stderr
    )
    assert place.run().code == 0  # the run is as it was


@pytest.mark.nightly(20)
def test_what_one_worker_lacks_is_told_by_all_before_they_train(place, prepared):
    run_dir, printed = prepared
    shard = Path(files.read_json(run_dir / "shards.json")["folder"]) / "worker-1.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-9])
    done = place.truly("-m", "torch.distributed.run", *printed[1:])
    shard.write_bytes(content)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert said and set(said) == {
        f"error: worker 1: {shard} is damaged: its checksum is not that of its content; delete the folder"
        f" {shard.parent} and run again to rebuild it"
    }, done.stderr


@pytest.mark.nightly(25)
def test_workers_that_torchrun_started_have_the_run_to_themselves(place, prepared):
    run_dir, printed = prepared
    with locked(run_dir):
        done = place.truly("-m", "torch.distributed.run", *printed[1:])
    assert done.returncode != 0
    assert f"error: worker 0: {run_dir} is in use: the same run is going on" in done.stderr
