"""Finished runs for TensorBoard and MLflow, read back by these packages where they are installed."""

from __future__ import annotations

import sys

import pandas as pd
import pytest
import yaml

from harness import cli
from harness.results.report import export
from harness.results.report.groups import Run
from harness.results.report.table import columns
from tests import traces

EPOCHS = 4


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A finished run with a metric of two layers, and one that has stopped."""
    folder = tmp_path_factory.mktemp("results") / "cora"
    values = [{(layer, "hit_rate"): 0.1 * number + layer for layer in (0, 1)} for number in range(EPOCHS)]
    composed = traces.config(epochs=EPOCHS, label="50 % & a|b")
    traces.measured(folder / "plain-2w-seed1-0", values, composed, values)
    traces.prepare(folder / "stopped", traces.config(epochs=EPOCHS))
    traces.stream(folder / "stopped", range(2))
    return folder


def scalars_of(run) -> pd.DataFrame:
    return pd.DataFrame(export.scalars(run))


def test_scalars_are_those_of_the_trace(results):
    run = Run(results / "plain-2w-seed1-0")
    found = scalars_of(run)
    by_name = {name: rows.set_index("epoch") for name, rows in found.groupby("name")}
    epochs = run.trace.epochs
    test = epochs[epochs["worker"] == 0].set_index("epoch")["test_acc"]
    assert by_name["evaluation/test_acc"]["value"].tolist() == test.tolist()
    assert by_name["evaluation/test_acc"].index.tolist() == [1, 2, 3, 4]
    assert by_name["all workers/bytes_sent"]["value"].sum() == epochs["bytes_sent"].sum()
    assert by_name["metrics/hit_rate layer 1"]["value"].tolist() == pytest.approx([1, 1.1, 1.2, 1.3])
    time = by_name["slowest worker/train_s"]
    # As in curves, the first epoch takes no time.
    assert time["seconds"].tolist() == pytest.approx(
        (time["value"].cumsum() - time["value"].iloc[0]).tolist()
    )
    assert found["value"].notna().all() and "evaluation/test_auc" not in by_name


def test_epochs_of_an_asynchronous_run_are_those_of_the_run(tmp_path):
    traces.apart(tmp_path / "run", [0, 1, 1, 0, 1, 0])
    run = Run(tmp_path / "run")
    found = scalars_of(run).set_index("name")
    assert found.loc["training/loss", "epoch"].tolist() == [1, 2, 3]
    assert (
        found.loc["all workers/bytes_sent", "value"].sum()
        == Run(tmp_path / "run").trace.epochs["bytes_sent"].sum()
    )
    assert not any(name.startswith("slowest") for name in found.index)
    assert found.loc["training/loss", "seconds"].is_monotonic_increasing


@pytest.mark.parametrize("tool, needed", [
    ("tensorboard", "tensorboard.summary.writer.event_file_writer"), ("mlflow", "sqlalchemy"),
])  # fmt: skip
def test_without_the_package_one_sentence_says_how_to_install_it(
    results, tmp_path, capsys, monkeypatch, tool, needed
):
    monkeypatch.setitem(sys.modules, needed, None)
    assert cli.main(["report", tool, str(results), "--out", str(tmp_path)]) == 2
    package = needed.partition(".")[0]
    assert capsys.readouterr().err == f'error: {package} is not installed: pip install "halobench[{tool}]"\n'


def exported(tool, results, out, capsys) -> list[str]:
    assert cli.main(["report", tool, str(results), "--out", str(out)]) == 0
    return [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()]


def test_tensorboard_reads_every_scalar_back(results, tmp_path, capsys):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    said = exported("tensorboard", results, tmp_path, capsys)
    assert said == ["plain-2w-seed1-0: written", "stopped: it has not finished"]
    run = Run(results / "plain-2w-seed1-0")
    read = reader.EventAccumulator(str(tmp_path / "cora" / "plain-2w-seed1-0")).Reload()
    scalars = scalars_of(run)
    assert set(read.Tags()["scalars"]) == set(scalars["name"])
    for name, rows in scalars.groupby("name"):
        there = read.Scalars(name)
        assert [event.step for event in there] == rows["epoch"].tolist()
        assert [event.value for event in there] == pytest.approx(rows["value"].tolist(), rel=1e-6)
        assert [event.wall_time for event in there] == pytest.approx(rows["seconds"].tolist())
    text = read.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert yaml.safe_load(text)["label"] == "50 % & a|b"
    assert exported("tensorboard", results, tmp_path, capsys)[0] == "plain-2w-seed1-0: there already"
    assert len(list((tmp_path / "cora" / "plain-2w-seed1-0").iterdir())) == 1


def test_mlflow_reads_keys_and_values_back(results, tmp_path, capsys):
    tracking = pytest.importorskip("mlflow.tracking")
    pytest.importorskip("sqlalchemy")
    assert exported("mlflow", results, tmp_path, capsys)[0] == "plain-2w-seed1-0: written"
    assert exported("mlflow", results, tmp_path, capsys)[0] == "plain-2w-seed1-0: there already"
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    (found,) = client.search_runs([client.get_experiment_by_name("cora").experiment_id])
    run = Run(results / "plain-2w-seed1-0")
    assert found.info.status == "FINISHED" and found.data.tags["mlflow.runName"] == "plain-2w-seed1-0"
    assert found.data.params == {key: str(value) for key, value in run.keys.items()}
    for key, value in export.results(run).items():
        assert found.data.metrics[f"results/{key}"] == value == columns.ALL[key].value(run.summary)
    for name, rows in scalars_of(run).groupby("name"):
        there = client.get_metric_history(found.info.run_id, name)
        assert [(each.step, each.value) for each in there] == list(zip(rows["epoch"], rows["value"]))
