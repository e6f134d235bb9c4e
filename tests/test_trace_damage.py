"""A run folder that is not what the run wrote is no finished run, and never ends the table of the others."""

import resource
import shutil
import signal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm.recorder import Epoch
from harness.results import files, reader
from harness.results.batch import write_sealed
from harness.results.reader import Trace
from harness.results.report import groups
from harness.results.report.__main__ import main
from harness.results.schema import RUN
from tests import traces
from tests.reported import told_of


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return traces.sealed(traces.finished(tmp_path_factory.mktemp("whole") / "run"))


@pytest.fixture
def run(whole, tmp_path):
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture(scope="module")
def told_of_whole(whole):
    return told_of(whole)


@given(data=st.data())
def test_damage_to_any_file_is_one_sentence_or_changes_nothing(whole, told_of_whole, tmp_path_factory, data):
    run = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(whole, run)
    path = run / data.draw(st.sampled_from(sorted(p.name for p in whole.iterdir() if p.is_file())))
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "zeros", "empty", "missing"]))
    if how == "missing":
        path.unlink()
    else:
        if how == "flip":
            content[at] ^= 1 << data.draw(st.integers(0, 7))
        else:
            content[at:] = b"\0" * (len(content) - at) if how == "zeros" else b""
        path.write_bytes(b"" if how == "empty" else content)
    try:
        told = told_of(run)
    except InputError as error:
        assert "\n" not in str(error) and str(run) in str(error)
        return
    # Without a summary the run counts as one that has not finished; what was measured is the same.
    assert told == told_of_whole or (path.name == "summary.json" and not path.exists())


def unchecked(run) -> None:
    """A summary that has no checksums to tell by."""
    bare = {key: value for key, value in Trace(run).summary.items() if key != "files"}
    files.write_json_atomic(run / "summary.json", bare)


def rewritten(run, table: str, change) -> None:
    """Write a table anew, `unchecked`."""
    path = run / f"{table}.parquet"
    frame = pq.read_table(path)
    pq.write_table(change(frame).replace_schema_metadata(frame.schema.metadata), path)
    unchecked(run)


def put(table: pa.Table, column: str, value) -> pa.Table:
    """The table with `value` in the first row of a column."""
    at = table.schema.get_field_index(column)
    values = table[column].to_pylist()
    return table.set_column(at, table.schema.field(at), pa.array([value, *values[1:]], table[column].type))


MISSED = "comm does not add up to epochs.bytes_sent"  # it is looked at before the rows of epochs are
DAMAGE = {
    "a doubled row": ("epochs", lambda t: pa.concat_tables([t, t.slice(0, 1)]), "has a row twice"),
    "accuracy 7.5": ("epochs", lambda t: put(t, "test_acc", 7.5), "has a test_acc of 7.5"),
    "fewer bytes": ("comm", lambda t: put(t, "bytes", 1), "does not add up to epochs.bytes_sent"),
    "negative bytes": ("comm", lambda t: put(t, "bytes", -1), "has a bytes that is null or below 0"),
    "null time": ("epochs", lambda t: put(t, "train_s", None), "has a train_s that is null or below 0"),
    "null worker": ("epochs", lambda t: put(t, "worker", None), "or one of no epoch or worker"),
    "worker 9": ("epochs", lambda t: put(t, "worker", 9), "has a worker that is none of 2"),
    "a lost row": ("epochs", lambda t: t.slice(1), MISSED),
    "fewer operations": ("spans", lambda t: put(t, "flops", 5), "does not add up to epochs.flops"),
}


def last(t):
    return pc.equal(t["epoch"], pc.max(t["epoch"]))


LOST = {
    "the last epoch": last,
    "a worker's last epoch": lambda t: pc.and_(last(t), pc.equal(t["worker"], 1)),
    "an epoch in the middle": lambda t: pc.equal(t["epoch"], 2),
}


@pytest.mark.parametrize("table, change, says", DAMAGE.values(), ids=DAMAGE)
def test_a_table_that_cannot_be_is_named(table, change, says, run):
    rewritten(run, table, change)
    with pytest.raises(InputError, match=says) as caught:
        groups.load([run])
    assert str(run) in str(caught.value)
    assert f"its table {'comm' if says == MISSED else table} " in str(caught.value)


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_an_epoch_that_all_tables_lack_is_named(lost, run):
    for table in ("epochs", "comm", "spans"):
        rewritten(run, table, lambda t: t.filter(pc.invert(lost(t))))
    with pytest.raises(InputError, match="its table epochs does not have every epoch of every worker"):
        groups.load([run])


def test_an_epoch_that_the_summary_does_not_know_is_named(run):
    summary = Trace(run).summary
    epochs = summary["epochs"]
    files.write_json_atomic(run / "summary.json", {**summary, "epochs": epochs - 1})
    with pytest.raises(InputError, match=f"every worker: worker 0 has epoch {epochs} of {epochs - 1}"):
        groups.load([run])


def test_beside_a_damaged_run_the_others_are_shown(whole, tmp_path, capsys):
    for name in ("bad", "good"):
        shutil.copytree(whole, tmp_path / name)
    rewritten(tmp_path / "bad", "epochs", lambda table: put(table, "test_acc", 7.5))
    assert main(["table", str(tmp_path), "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith(f"left out: {tmp_path / 'bad'}") and shown.err.count("\n") == 1
    assert len(shown.out.splitlines()) == 2  # a heading, and the good run alone


def test_a_run_of_no_worker_is_left_out(whole, tmp_path, capsys):
    """A mean over its workers would be a division by zero."""
    shutil.copytree(whole, tmp_path / "whole")
    none = traces.prepare(tmp_path / "none", traces.config(gpus=0))
    traces.write(none, [Epoch(0)], worker=RUN)
    assert main(["table", str(tmp_path)]) == 0
    assert f"left out: {none} is damaged (ZeroDivisionError" in capsys.readouterr().err


def test_a_finished_run_without_a_table_is_refused(run):
    unchecked(run)
    for table in ("epochs", "comm", "spans", "metrics"):
        (run / f"{table}.parquet").unlink()
        with pytest.raises(InputError, match=f"{table}.parquet is missing, though the run has finished"):
            getattr(Trace(run), table)


@pytest.mark.parametrize("name", ["resolved.json", "shards.json"])
def test_a_finished_run_that_lost_what_it_ran_on_is_refused(name, tmp_path):
    run = traces.finished(tmp_path / "run", ran_on={"role": ""})
    (run / "shards.json").write_text('{"stats": {}}')
    (traces.sealed(run) / name).unlink()
    with pytest.raises(InputError, match=f"{name} cannot be read"):
        told_of(run)


def test_a_file_of_another_run_is_refused(run, tmp_path):
    shutil.copy(traces.finished(tmp_path / "other", traces.config(seed=2)) / "config.yaml", run)
    with pytest.raises(InputError, match="config.yaml is damaged: it is not what the run has written"):
        told_of(run)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", "{" * 9, "[" * 100_000])
def test_an_empty_or_mangled_summary_is_no_finished_run(text, run):
    (run / "summary.json").write_text(text)
    with pytest.raises(InputError, match=r"summary.json .*run it again with fresh=true"):
        Trace(run).finished


@pytest.mark.parametrize("name", ["environment.json", "shards.json", "config.yaml"])
def test_missing_keys_of_a_run_without_checksums_are_one_sentence(name, run):
    unchecked(run)
    (run / name).write_text("{}")
    with pytest.raises(InputError, match=name):
        told_of(run)


def test_a_trace_that_does_not_fit_is_one_sentence(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    traces.prepare(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            InputError, match=r"worker\d-attempt0.arrow cannot be written: File too large; give"
        ):
            traces.stream(tmp_path, range(1000))
        # What is in a buffer when the disk is full does not go out when the stream is closed either.
        (out,) = traces.stream(tmp_path, range(1), workers=1, attempt=1, close=False)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        with pytest.raises(InputError, match=r"worker0-attempt1.arrow cannot be written: File too large"):
            out.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


def test_a_table_of_more_rows_than_its_file_could_hold_is_refused_before_it_takes_memory(run, monkeypatch):
    """A file of kilobytes may say millions of equal rows."""
    monkeypatch.setattr(reader, "SPARED", 1 << 20)
    unchecked(run)
    table = pq.read_table(run / "comm.parquet")
    table = table.take(pa.array([0] * 1_000_000, pa.int8()))
    pq.write_table(table, run / "comm.parquet", compression="zstd")
    before = pa.total_allocated_bytes() + table.nbytes // 2
    with pytest.raises(
        InputError, match=r"comm.parquet is damaged \(its rows take more than .* MiB, too much"
    ):
        _ = Trace(run).comm
    assert pa.total_allocated_bytes() < before


def test_a_stream_of_more_rows_than_its_file_could_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "SPARED", 1 << 20)
    monkeypatch.setattr(reader, "EXPANSION", 2)
    traces.stream(traces.prepare(tmp_path), range(1), workers=1)
    (path,) = (tmp_path / "stream").glob("comm-*.arrow")
    schema = reader.TABLES["comm"]
    batch = pa.RecordBatch.from_pylist([{"epoch": 0, "worker": 0, "purpose": "x"}] * 100_000, schema)
    with pa.ipc.new_stream(path, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        write_sealed(stream, batch)
    with pytest.raises(InputError, match=r"comm-.*arrow is damaged \(its rows take more than 1 MiB"):
        _ = Trace(tmp_path).comm
