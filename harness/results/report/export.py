"""A finished run for the tools that show experiments: TensorBoard's event files, MLflow's folder of runs.

Both get the same scalars by epoch, each with the seconds that training had taken by then, and the run's keys
and results. Nothing is sent anywhere: what is written lies in a folder. Both packages are extras."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.base.errors import package, writing
from harness.results.reader import find_runs
from harness.results.report.columns import ALL
from harness.results.report.groups import Run
from harness.results.rounds import Rounds, epochs_of_run
from harness.results.schema import SCORES

SUMS = ("bytes_sent", "rows_sent", "flops", "cpu_s")  # over workers
SLOWEST = ("train_s", "compute_s", "exposed_s", "rest_s")  # of the slowest worker, as in tables
BATCH = 500  # values that MLflow takes at once
NOT_A_NAME = re.compile(r"[^\w./ -]")


@dataclass(frozen=True)
class Scalar:
    """A value after an epoch (1-based), and the seconds of training between the first epoch and then."""

    name: str
    epoch: int
    seconds: float
    value: float


def scalars(run: Run) -> list[Scalar]:
    """The values of a run by name and epoch; what was not evaluated, or is no number, is left out.

    Epochs of an asynchronous run are those of the run; metrics, which are its workers', are by their rounds.
    """
    trace, rounds = run.trace, Rounds.read(run.trace)
    workers, of_run = rounds.epochs, epochs_of_run(trace.epochs).groupby("epoch")
    parts = {f"evaluation/{name}": of_run[name].first() for name in SCORES}
    parts["training/loss"] = of_run["loss"].first()
    parts |= {f"all workers/{name}": workers.groupby("of_run")[name].sum() for name in SUMS}
    if not rounds.asynchronous:
        slowest = workers.loc[workers.groupby("epoch")["train_s"].idxmax()].set_index("epoch")
        parts |= {f"slowest worker/{name}": slowest[name] for name in SLOWEST}
    for (name, layer), rows in trace.metrics.groupby(["name", trace.metrics["layer"].astype(str)]):
        of_layer = "" if layer == "-1" else f" layer {layer}"
        parts[f"metrics/{name}{of_layer}"] = rows.groupby("epoch")["value"].mean()
    seconds = rounds.cumulative("train_s").to_dict()
    return [
        Scalar(name, epoch + 1, seconds.get(epoch, 0.0), value)
        for name, values in sorted(parts.items())
        for epoch, value in zip(values.index.astype(int).tolist(), values.astype(float).tolist())
        if math.isfinite(value)
    ]


def results(run: Run) -> dict[str, float]:
    """The columns of the tables by their keys in a CSV."""
    known = {key: column.value(run.summary) for key, column in ALL.items()}
    return {key: float(value) for key, value in known.items() if value is not None and math.isfinite(value)}


def write(paths: list[str], out: Path, into: str) -> Iterator[str]:
    """Export the finished runs at or below `paths` into the folder `out`; yields a line per run, as it is
    done. A run that is in `out` already is left as it is there.

    into   "tensorboard" or "mlflow"

    InputError where the package is not installed, or the folder cannot be written."""
    export = EXPORTERS[into](out)
    for path in find_runs(paths):
        run = Run(path)
        if not run.finished:
            yield f"left out {path}: it has not finished"
            continue
        with writing(out, "give another --out"):
            yield f"{path}: {'written' if export(run) else 'there already'}"


def _tensorboard(out: Path) -> Callable[[Run], bool]:
    """Event files in `out`/GRAPH/RUN: `tensorboard --logdir OUT` shows them."""
    writer = package("tensorboard.summary.writer.event_file_writer", "tensorboard")
    event, summary = (
        package(f"tensorboard.compat.proto.{name}_pb2", "tensorboard") for name in ("event", "summary")
    )
    text = package("tensorboard.plugins.text.summary_v2", "tensorboard")

    def export(run: Run) -> bool:
        folder = out / run.path.parent.name / run.path.name
        if folder.exists():
            return False
        folder.mkdir(parents=True)
        file = writer.EventFileWriter(str(folder))
        for row in scalars(run):
            value = summary.Summary.Value(tag=row.name, simple_value=row.value)
            file.add_event(
                event.Event(wall_time=row.seconds, step=row.epoch, summary=summary.Summary(value=[value]))
            )
        for name, told in (("config", run.trace.config), ("results", results(run))):
            lines = "".join(f"    {line}\n" for line in yaml.safe_dump(told, sort_keys=False).splitlines())
            file.add_event(event.Event(wall_time=0.0, step=0, summary=text.text_pb(name, lines)))
        file.close()
        return True

    return export


def _mlflow(out: Path) -> Callable[[Run], bool]:
    """Runs in the database `out`/mlflow.db, an experiment per graph: `mlflow ui --backend-store-uri
    sqlite:///OUT/mlflow.db` shows them."""
    package("sqlalchemy", "mlflow")
    tracking, entities = (package(f"mlflow.{name}", "mlflow") for name in ("tracking", "entities"))
    with writing(out, "give another --out"):
        out.mkdir(parents=True, exist_ok=True)
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{out.absolute()}/mlflow.db")

    def export(run: Run) -> bool:
        graph = run.summary["dataset"]
        known = client.get_experiment_by_name(graph)
        files = (out.absolute() / "artifacts").as_uri()
        experiment = known.experiment_id if known else client.create_experiment(graph, files)
        name = str(run.path)
        if client.search_runs([experiment], filter_string=f"tags.halobench_run = '{name}'", max_results=1):
            return False
        tags = {"halobench_run": name, "mlflow.runName": run.path.name, "code": run.code}
        made = client.create_run(experiment, start_time=0, tags=tags).info.run_id
        values = [
            entities.Metric(NOT_A_NAME.sub("", row.name), row.value, int(1000 * row.seconds), row.epoch)
            for row in scalars(run)
        ]
        values += [entities.Metric(f"results/{key}", value, 0, 0) for key, value in results(run).items()]
        for first in range(0, len(values), BATCH):
            client.log_batch(made, metrics=values[first : first + BATCH])
        keys = [entities.Param(NOT_A_NAME.sub("", key), str(value)[:5000]) for key, value in run.keys.items()]
        for first in range(0, len(keys), 100):
            client.log_batch(made, params=keys[first : first + 100])
        client.set_terminated(made, "FINISHED", end_time=max((v.timestamp for v in values), default=0))
        return True

    return export


EXPORTERS: dict[str, Callable[[Path], Callable[[Run], Any]]] = {
    "tensorboard": _tensorboard,
    "mlflow": _mlflow,
}
