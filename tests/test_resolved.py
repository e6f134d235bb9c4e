"""What a run became of what was asked for: it goes on with that, and tells of it."""

import signal

import pytest

from harness import cli
from harness.base.errors import InputError
from harness.results import files, resolved, schema
from harness.results.reader import Trace
from harness.run.train import held
from tests import traces
from tests.test_identity import run_of


def test_knobs_that_are_left_to_a_system_are_shown_with_what_they_became(place, capsys):
    done = place.run("system=pscgcn", "epochs=30")
    assert done.code == 0, done.err
    (run_dir,) = place.runs()
    assert cli.main(["runs", "show", str(run_dir)]) == 0
    assert "system.refresh=null (3)" in capsys.readouterr().out.split("\n", 1)[1].replace("\n", " ")
    assert resolved.read(run_dir)["knobs"] == {"refresh": 3}


def test_a_run_goes_on_with_what_it_began_with_and_over_nccl_with_nothing_else(place):
    """Where `auto` would become something else by now."""
    command = (*place.trouble, "kernel=auto", "threads=null", "transport=auto", "epochs=1000000")
    run = place.start(*command)
    run.until_epoch(4)
    run.interrupt()
    done = run.end()
    assert done.code == 128 + signal.SIGINT and "stopped by SIGINT; the same command goes on" in done.err
    (run_dir,) = place.runs()
    began = resolved.read(run_dir)
    began["attempts"][0].update(threads=2, kernel="torch")
    files.write_json_atomic(run_dir / "resolved.json", began)
    last = int((run_dir / "checkpoints" / "latest").read_text())
    run = place.start(*command)
    run.until_epoch(last + 4)
    run.interrupt()
    run.end()
    began = resolved.read(run_dir)
    second = began["attempts"][1]
    assert (second["threads"], second["kernel"], second["first_epoch"]) == (2, "torch", last)
    threads = Trace(run_dir).metrics.query("name == 'threads' and epoch > @last + 1").value
    assert set(threads) == {2.0}
    began["attempts"][-1]["transport"] = "nccl"
    files.write_json_atomic(run_dir / "resolved.json", began)
    done = place.run(*command)
    assert (done.code, done.err) == (
        2,
        f"error: {run_dir} goes on only with what it began with, for the same bits, but it began over"
        " transport nccl and would go on over memory; start the run anew with fresh=true\n",
    )


def test_nccl_adds_in_an_order_of_its_own():
    for one, other, alike in (("memory", "sockets", True), ("memory", "nccl", False), ("nccl", "nccl", True)):
        assert resolved.adds_alike(one, other) == resolved.adds_alike(other, one) == alike


def test_what_cannot_be_had_any_more_is_refused_in_one_sentence(tmp_path):
    run = run_of()
    (tmp_path / "checkpoints").mkdir()
    traces.resolve(tmp_path, 0, device="cuda", kernel="torch")
    assert held(run, tmp_path) is run, "nothing to go on from"
    (tmp_path / "checkpoints" / "latest").write_text("4")
    with pytest.raises(
        InputError,
        match="goes on only with what it began with, .* device=cuda but no CUDA device .*fresh=true",
    ) as refused:
        held(run, tmp_path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("lacking", ["first_epoch", *schema.AUTO])
def test_a_key_that_an_attempt_lacks_is_named(tmp_path, lacking):
    traces.resolve(tmp_path, 0)
    found = resolved.read(tmp_path)
    del found["attempts"][0][lacking]
    files.write_json_atomic(tmp_path / resolved.FILE, found)
    with pytest.raises(InputError, match=f"resolved.json is damaged: it lacks attempts.{lacking}; start"):
        resolved.read(tmp_path)


def test_a_file_of_another_schema_version_is_refused(tmp_path):
    traces.resolve(tmp_path, 0)
    found = resolved.read(tmp_path) | {"schema": schema.SCHEMA_VERSION + 1}
    files.write_json_atomic(tmp_path / resolved.FILE, found)
    with pytest.raises(InputError, match="resolved.json has trace schema 6, newer than this program's 5"):
        resolved.read(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"attempts": []}',
        '{"attempts": [{"device": "cpu"}]}',
        '{"attempts": [{"device": 1, "threads": 1, "transport": 1, "kernel": 1}]}',
    ],
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / resolved.FILE).write_text(text)
    with pytest.raises(InputError, match="resolved.json .*fresh=true"):
        resolved.read(tmp_path)
