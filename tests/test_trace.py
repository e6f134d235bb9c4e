"""The run folder: what is written is what was measured, and stays readable whatever happens to the run."""

import json
import os
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.base.errors import InputError
from harness.comm import work
from harness.comm.recorder import Epoch, Recorder, Span
from harness.results import environment, files, reader, schema, writer
from tests import jobs, systems, traces

TIMES = st.integers(0, 40).map(float)
INTERVALS = st.lists(st.tuples(TIMES, TIMES).map(sorted), max_size=12)


@given(INTERVALS, TIMES, TIMES)
def test_covered_is_the_measure_of_the_union(intervals, a, b):
    begin, end = sorted((a, b))
    ticks = [t for t in np.arange(begin, end) if any(s <= t and t + 1 <= e for s, e in intervals)]
    assert writer.covered(intervals, begin, end) == len(ticks)
    assert writer.covered(intervals[::-1] * 2) == writer.covered(intervals, 0, 40)


def test_roundtrip_through_streams_and_through_parquet_files_that_say_what_they_are(tmp_path):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(3))
    while_running = reader.Trace(run)
    tables = {name: getattr(while_running, name) for name in schema.TABLES}
    writer.finalise(run)
    written = {"config.yaml", "environment.json", *(f"{name}.parquet" for name in schema.TABLES)}
    assert {path.name for path in run.iterdir()} == written
    for name, before in tables.items():
        after = getattr(reader.Trace(run), name)
        pd.testing.assert_frame_equal(before, after)
        assert list(after.columns) == schema.TABLES[name].names
        file = pq.read_schema(run / f"{name}.parquet")
        assert file.metadata[schema.VERSION_KEY] == b"5"
        assert json.loads(file.metadata[b"halobench_config"]) == reader.Trace(run).config
        assert json.loads(file.metadata[b"halobench_environment"])["processor"] == "Test CPU"
        assert all(file.field(column).metadata[b"meaning"] for column in file.names)
    assert len(tables["epochs"]) == 6 and len(tables["comm"]) == 18 and len(tables["spans"]) == 24
    first = tables["epochs"].iloc[0]
    assert (first.train_s, first.compute_s, first.exposed_s) == pytest.approx((0.55, 0.3, 0.2))
    assert (first.comm_s, first.cpu_s) == pytest.approx((0.3, 0.4))
    assert (first.bytes_sent, first.rows_sent, first.flops) == (64 + 128 + 10, 8, 30_000_000)
    assert first.peak_rss_bytes == 2**20
    assert [list(p) for p in tables["spans"].query("kind == 'comm'")["peers"]] == [[1], [0]] * 3


def test_the_breakdown_adds_up_to_the_epoch(tmp_path):
    """With the real Recorder: segments leave no gap, so compute + exposed + rest is the train clock."""
    recorder, run = Recorder(), traces.prepare(tmp_path)
    out = writer.TraceWriter(run, 0, 0)
    for number in range(3):
        recorder.begin_epoch(number)
        with recorder.train():
            for layer in range(3):
                recorder.segment("compute", "forward", layer)
                id = f"{number}:{layer}"
                flight = recorder.posted("exchange", layer, 100, {1: 100}, id, False, "pairs")
                recorder.count(layer, "forward", "halo", 1, 5, 100)
                with recorder.inside("wait", "exchange", layer, id=id):
                    flight.end = flight.start + 1e-7
        recorder.metric("hit_rate", 0.25, 1)
        out.write(recorder.epoch, loss=1.0, scores=None, peak_rss_bytes=1)
    out.close()
    trace = reader.Trace(run)
    e = trace.epochs
    assert np.allclose(e.compute_s + e.exposed_s + e.rest_s, e.train_s, rtol=1e-12)
    thread = trace.spans[trace.spans.kind != "comm"]
    seconds = (thread.end_s - thread.start_s).groupby([thread["epoch"], thread["kind"]]).sum().unstack()
    assert np.allclose(seconds.sum(axis=1), e.train_s, rtol=1e-9)
    assert np.allclose(seconds["rest"], e.rest_s, atol=1e-9) and np.allclose(seconds["wait"], e.exposed_s)
    assert (e.comm_s > 0).all() and (e.comm_s <= e.train_s).all()
    assert e.bytes_sent.tolist() == [300] * 3 and e.val_acc.isna().all()
    metrics = trace.metrics[["epoch", "layer", "name", "value"]].values.tolist()
    assert metrics == [[number, 1, "hit_rate", 0.25] for number in range(3)]


def test_two_operations_in_flight_at_once_count_once(tmp_path):
    flights = [(0.1, 0.3), (0.2, 0.4), (0.35, 0.38), (0.6, 9.0)]
    traces.write(traces.prepare(tmp_path), [traces.epoch(0, flights=flights)])
    # [0.1, 0.4] and [0.6, 0.8]: the train clock ends at 0.8
    assert reader.Trace(tmp_path).epochs["comm_s"].item() == pytest.approx(0.3 + 0.2)


def test_an_operation_across_epochs_counts_in_both_and_is_written_once(tmp_path):
    out = writer.TraceWriter(traces.prepare(tmp_path), 0, 0)
    first = traces.epoch(0, begin=100.0, flights=[(0.5, 0)])
    out.write(first, loss=0, scores=None, peak_rss_bytes=0)
    assert "comm" not in set(reader.Trace(tmp_path).spans["kind"])
    first.spans[-1].end = 101.25
    out.write(traces.epoch(1, begin=101.0, flights=[(0.7, 0)]), loss=0, scores=None, peak_rss_bytes=0)
    out.close()
    trace = reader.Trace(tmp_path)
    assert trace.epochs["comm_s"].tolist() == pytest.approx([0.3, 0.25 + 0.1])
    flights = trace.spans[trace.spans["kind"] == "comm"]
    assert flights["epoch"].tolist() == [0, 1]
    assert flights["end_s"].iloc[0] == 101.25 and np.isnan(flights["end_s"].iloc[1])


def test_of_an_operation_that_ended_before_its_epoch_was_written_the_next_has_its_part(tmp_path):
    """As where losses of several epochs are asked for at once."""
    out = writer.TraceWriter(traces.prepare(tmp_path), 0, 0)
    late = [traces.epoch(n, begin=100.0 + n, flights=[(0.7, 1.25)] if n < 2 else []) for n in range(4)]
    for each in late[:3]:
        out.write(each, loss=0, scores=None, peak_rss_bytes=0)
    out.settle()
    out.write(late[3], loss=0, scores=None, peak_rss_bytes=0)
    out.close()
    assert reader.Trace(tmp_path).epochs["comm_s"].tolist() == pytest.approx([0.1, 0.25 + 0.1, 0.25, 0.0])


def test_what_has_completed_since_is_written_before_a_checkpoint_and_once(tmp_path):
    out = writer.TraceWriter(traces.prepare(tmp_path), 0, 0)
    epoch = traces.epoch(0, begin=100.0, flights=[(0.5, 0), (0.6, 0)])
    out.write(epoch, loss=0, scores=None, peak_rss_bytes=0)
    epoch.spans[-2].end = 101.25
    out.settle()
    ends = reader.Trace(tmp_path).spans.query("kind == 'comm'")["end_s"]
    assert ends.tolist() == [101.25]
    out.close()
    ends = reader.Trace(tmp_path).spans.query("kind == 'comm'")["end_s"]
    assert ends.iloc[0] == 101.25 and len(ends) == 2 and np.isnan(ends.iloc[1])


def test_a_checkpoint_counts_once_the_operations_before_it_are_on_the_disk(pool, tmp_path):
    block = {"system": systems.block("pipegcn"), "epochs": 4, "checkpoint_every": 2, "threads": 1}
    given = {"evaluate": {"every": 1}, "optimiser": {"lr": 0.01, "weight_decay": 0.0}}
    composed = traces.config(**block, **given, kernel="numba", model__hidden=4)
    for spans, comm in pool.run(jobs.traced_when_saved, 2, systems.ready(tmp_path, composed)):
        assert spans == comm and set(comm) == {0, 1} and all(comm.values())


@pytest.fixture(scope="module")
def going(tmp_path_factory):
    """A worker's four epochs, and all tables of them."""
    run = traces.prepare(tmp_path_factory.mktemp("going"))
    traces.stream(run, range(4), workers=1, close=False)
    return run, {name: getattr(reader.Trace(run), name) for name in schema.TABLES}


@given(st.floats(0, 1))
def test_a_stream_cut_anywhere_is_read_up_to_the_last_whole_epoch(going, tmp_path_factory, share):
    whole, tables = going
    run = shutil.copytree(whole, tmp_path_factory.mktemp("cut") / "run")
    path = run / "stream" / "epochs-worker0-attempt0.arrow"
    os.truncate(path, int(share * path.stat().st_size))
    cut = reader.Trace(run)
    count = len(cut.epochs)
    assert count <= 4 and (count == 4) == (share == 1)
    # The other tables keep to the same epochs.
    for name, table in tables.items():
        pd.testing.assert_frame_equal(
            getattr(cut, name), table[table["epoch"] < count].reset_index(drop=True)
        )


def test_a_later_attempt_replaces_what_it_computed_again(tmp_path):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(5), attempt=0, size=64, close=False)
    traces.stream(run, range(3, 4), attempt=1, size=100, close=False)
    traces.stream(run, range(0), attempt=2, close=False)  # died before its first epoch was over
    running = reader.Trace(run)
    assert running.epochs["epoch"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    traces.stream(run, range(2, 6), attempt=3, size=1000)
    writer.finalise(run)
    sent = reader.Trace(run).comm.query("layer == 0 and worker == 1")
    assert sent["epoch"].tolist() == list(range(6))
    assert sent["bytes"].tolist() == [64, 64, 1000, 1000, 1000, 1000]


def test_an_attempt_after_finalising_goes_over_the_parquet_files(tmp_path):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(5))
    writer.finalise(run)
    traces.stream(run, range(3, 5), attempt=1, size=1000)
    for _ in range(3):  # the last time there is nothing more to do
        sent = reader.Trace(run).comm.query("layer == 0 and worker == 0")
        assert sent["bytes"].tolist() == [64, 64, 64, 1000, 1000]
        writer.finalise(run)


@pytest.mark.parametrize(
    "table, left, said",
    [
        ("epochs", 0.9, "does not have every epoch of every worker: worker 1 has 2 of 3"),
        ("epochs", 0.0, "does not have every epoch of every worker: worker 1 has 0 of 3"),
        ("comm", 0.8, "comm does not add up to epochs"),
        ("spans", 0.8, "spans does not add up to epochs"),
    ],
)
def test_finalise_refuses_a_trace_with_a_hole(tmp_path, table, left, said):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(3))
    path = run / "stream" / f"{table}-worker1-attempt0.arrow"
    os.truncate(path, int(left * path.stat().st_size))
    with pytest.raises(InputError, match=said):
        writer.finalise(run)
    assert (run / "stream").is_dir() and not list(run.glob("*.parquet"))


def test_finalise_refuses_a_run_that_has_finished_no_epoch(tmp_path):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(0))
    with pytest.raises(InputError) as refused:
        writer.finalise(run)
    assert str(refused.value) == f"{run} holds no finished epoch; run it again with fresh=true"


def test_every_column_is_documented():
    text = (environment.Path(__file__).parents[1] / "docs" / "trace.md").read_text()
    for table in schema.TABLES.values():
        for column in table.names:
            assert f"`{column}`" in text, column
    assert f"Schema version {schema.SCHEMA_VERSION}." in text


def test_no_run_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a run folder: it holds no config.yaml"):
        reader.Trace(tmp_path)


@pytest.mark.parametrize("content", [b"PAR1" + b"\xff" * 500 + b"PAR1", b""], ids=["garbage", "empty"])
def test_a_damaged_parquet_file_without_a_checksum_is_one_sentence(tmp_path, content):
    path = traces.finished(tmp_path) / "epochs.parquet"
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=r"epochs.parquet is damaged \(.*run it again with fresh=true"
    ) as told:
        reader.Trace(tmp_path).epochs
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "number, said",
    [
        (6, "has trace schema 6, newer than this program's 5; update halobench"),
        (4, "has trace schema 4, older than this program's 5; run it again with fresh=true"),
    ],
)
def test_another_schema_is_refused(tmp_path, number, said):
    run = traces.finished(tmp_path)
    table = pq.read_table(run / "comm.parquet")
    pq.write_table(table.replace_schema_metadata({schema.VERSION_KEY: str(number)}), run / "comm.parquet")
    with pytest.raises(InputError, match=f"comm.parquet {said}"):
        reader.Trace(run).comm
    files.write_json_atomic(run / "summary.json", {**reader.Trace(run).summary, "schema": number})
    with pytest.raises(InputError, match=f"summary.json {said}"):
        reader.Trace(run).summary


def test_tables_and_files_of_another_kind_are_one_sentence(tmp_path):
    run = traces.finished(tmp_path)
    for write, said in (
        (lambda table: table.drop_columns("cpu_s"), "it lacks a column, cpu_s"),
        (lambda table: table.append_column("loss", table["loss"]), "it has one twice"),
    ):
        table = pq.read_table(run / "epochs.parquet")
        pq.write_table(write(table), run / "epochs.parquet")
        with pytest.raises(InputError, match=f"epochs.parquet does not hold the columns .*: {said}"):
            _ = reader.Trace(run).epochs
        pq.write_table(table, run / "epochs.parquet")
    files.write_yaml_atomic(run / "config.yaml", "just text")
    with pytest.raises(InputError, match="config.yaml is damaged: it does not hold a block of keys"):
        _ = reader.Trace(run).config
    files.write_json_atomic(run / "summary.json", {"schema": "x"})
    with pytest.raises(InputError, match="does not say which trace schema it has"):
        _ = reader.Trace(run).summary


def test_streams_of_another_kind_are_one_sentence(tmp_path):
    run = traces.prepare(tmp_path)
    traces.stream(run, range(1), workers=1)
    path = run / "stream" / "metrics-worker0-attempt0.arrow"
    path.write_bytes(path.read_bytes().replace(b"value", b"\xff\xff\xff\xff\xff"))
    with pytest.raises(InputError, match="metrics-worker0-attempt0.arrow is damaged"):
        _ = reader.Trace(run).metrics
    path = run / "stream" / "epochs-worker0-attempt0.arrow"
    with pa.ipc.new_stream(path, pa.schema([("epoch", pa.int32())])):
        pass
    with pytest.raises(InputError, match="does not hold the columns of this table"):
        _ = reader.Trace(run).epochs


def test_find_runs_takes_folders_parents_and_patterns(tmp_path, monkeypatch):
    results = tmp_path / "results"
    a, b, old = (traces.prepare(results / "cora" / name) for name in ("a", "b", "a.old1"))
    bundle = tmp_path / "submissions" / "mine"
    inside = traces.prepare(bundle / "runs" / "cora" / "a")
    (bundle / reader.BUNDLE).touch()
    monkeypatch.chdir(tmp_path)
    found = {
        (tmp_path,): [a, b],  # neither what was set aside nor what a bundle holds
        (b, results): [b, a],
        (old,): [old],
        (bundle,): [inside],
        ("results/*/[a]",): [a],
        ("results/*/*",): [a, b],
        ("results/*/*.old1",): [old],
    }
    for paths, runs in found.items():
        assert [path.resolve() for path in reader.find_runs(paths)] == runs
    with pytest.raises(InputError, match="nowhere does not exist"):
        reader.find_runs([a, "nowhere"])
    with pytest.raises(InputError, match=r"results/\*x matches nothing"):
        reader.find_runs(["results/*x"])


def test_a_pipe_is_no_config_and_no_file_of_a_run_that_has_finished(tmp_path):
    (tmp_path / "other").mkdir()
    os.mkfifo(tmp_path / "other" / "config.yaml")
    run = traces.sealed(traces.finished(tmp_path / "run"))
    assert reader.find_runs([tmp_path]) == [run]
    (run / "epochs.parquet").unlink()
    os.mkfifo(run / "epochs.parquet")
    with pytest.raises(InputError, match=r"epochs.parquet is damaged \(it is not a file\)"):
        assert reader.Trace(run).epochs.empty


def test_json_is_written_whole_and_without_nan(tmp_path):
    path = tmp_path / "x.json"
    files.write_json_atomic(path, {"a": [float("nan"), 1.5, (float("inf"),)], "b": 2})
    assert files.read_json(path) == {"a": [None, 1.5, [None]], "b": 2}
    with pytest.raises(TypeError):
        files.write_json_atomic(path, {"a": object()})
    assert files.read_json(path)["b"] == 2 and [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_the_environment_names_neither_machine_nor_user(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    told = environment.environment()
    assert {"processor", "cores", "gpus", "memory_bytes", "python", "revision", "packages"} <= told.keys()
    assert told["packages"]["torch"] and told["threads"]["OMP_NUM_THREADS"] == "3"
    text = json.dumps(told)
    assert os.uname().nodename not in re.findall(r"[\w.-]+", text) and os.path.expanduser("~") not in text


def test_what_was_computed_is_kept_shape_by_shape(tmp_path):
    run = traces.prepare(tmp_path / "run", traces.config(gpus=1, epochs=1), 4)
    product, passed = work.dense(5, 4, 3, 4), work.stream(5, 3, 4, 1, 1)
    did = [product, passed, product]
    flops = 2 * product.flops
    computed = Span("compute", "forward", 0, 0.0, 0.5, work=did, flops=flops)
    made = Epoch(0, train=1.0, spans=[computed, Span("rest", "pack", 0, 0.5, 1.0)])
    writer.finalise(traces.write(run, [made]))
    found = reader.Trace(run).spans
    assert found["work"].map(list).tolist() == [
        [{**product._asdict(), "launches": 2}, {**passed._asdict(), "launches": 1}],
        [],
    ]
