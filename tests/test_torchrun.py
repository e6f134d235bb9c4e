"""A run prepared by one command and trained by another's launcher: `launch=prepare`, then torchrun."""

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
    """The folder of a prepared run, and the command that was printed to train it."""
    done = place.run("launch=prepare", "progress=auto")
    assert (done.code, done.err) == (0, "")
    (run_dir,) = place.runs()
    return run_dir, shlex.split(done.out)


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


@pytest.mark.nightly(60)
def test_what_workers_of_torchrun_refuse_is_told_before_they_train(place, prepared):
    """Another number of them, what one of them lacks, and a run that another process has."""
    run_dir, printed = prepared

    def refused(*words: str) -> set[str]:
        done = place.truly("-m", "torch.distributed.run", *words)
        assert done.returncode != 0
        return {line for line in done.stderr.splitlines() if line.startswith("error: ")}

    too_few = ("--standalone", "--nproc-per-node", "1", "-m", "harness.run.worker", str(run_dir))
    assert refused(*too_few) == {
        f"error: workers=2 in {run_dir}/config.yaml but 1 worker started; start as many as workers says"
    }
    shard = Path(files.read_json(run_dir / "shards.json")["folder"]) / "worker-1.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-9])
    assert refused(*printed[1:]) == {
        f"error: worker 1: {shard} is damaged: its checksum is not that of its content; delete the folder"
        f" {shard.parent} and run again to rebuild it"
    }
    shard.write_bytes(content)
    with locked(run_dir):
        (said,) = refused(*printed[1:])
    assert said.startswith(f"error: worker 0: {run_dir} is in use: the same run is going on")
    assert place.run().code == 0, "the run is as it was"
