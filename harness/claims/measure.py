"""The numbers of a run that experiments compare, named in their files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from harness.check import InputError, choice
from harness.report.columns import ALL
from harness.report.groups import Run

HOW: dict[str, Callable[[Any], float]] = {
    "mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min, "last": lambda values: list(values)[-1]
}  # fmt: skip
Measure = Callable[[Run], float]


def measure_of(given: Any, field: str = "measure") -> Measure:
    """The measure that a file asks for, one of

    KEY                                     a column of the tables by its key in a CSV (`mb_epoch`)
    {metric: NAME, how: mean, layer: 1}     a metric of the trace over epochs and workers; of one layer, or of
                                            all, whose values are added up
    {metrics: [NAME, ...], of: [NAME, ...]} 100 times the sum of metrics over the sum of others
    {shards: NAME, how: max}                a statistic of the partition, of a list by `how` (default max)
    {shards: NAME, of: NAME}                the sum of one over workers as a ratio to that of another

    InputError where it is none of these.
    """
    if isinstance(given, str):
        choice(field, given, ALL)
        return _column(given)
    if isinstance(given, Mapping):
        keys = set(given)
        named = given.get("how", "max" if "shards" in keys else "mean")
        choice(f"{field}.how", named, HOW)
        how = HOW[named]
        if keys <= {"metric", "how", "layer"} and "metric" in keys:
            return lambda run: _metric(run, given["metric"], how, given.get("layer"))
        if keys == {"metrics", "of"}:
            return lambda run: 100 * _total(run, given["metrics"]) / _total(run, given["of"])
        if keys == {"shards", "of"}:
            return lambda run: float(
                np.sum(_shards(run, given["shards"])) / np.sum(_shards(run, given["of"]))
            )
        if keys <= {"shards", "how"} and "shards" in keys:
            return lambda run: float(how(_shards(run, given["shards"])))
    raise InputError(
        f"{field}={given}: give a column's key, {{metric: NAME}}, {{metrics: [...], of: [...]}} or"
        " {shards: NAME}"
    )


def _column(key: str) -> Measure:
    def value(run: Run) -> float:
        found = ALL[key].value(run.summary)
        return float("nan") if found is None else float(found)

    return value


def _rows(run: Run, name: str):
    metrics = run.trace.metrics
    rows = metrics[metrics["name"] == name]
    if rows.empty:
        _known(dict.fromkeys(metrics["name"]), name, run)
    return rows


def _metric(run: Run, name: str, how: Callable[[Any], float], layer: int | None) -> float:
    rows = _rows(run, name)
    if layer is not None:
        rows = rows[rows["layer"] == layer]
    return float(how(rows.groupby(["epoch", "worker"])["value"].sum()))


def _total(run: Run, names: list[str]) -> float:
    return float(sum(_rows(run, name)["value"].sum() for name in names))


def _shards(run: Run, name: str) -> np.ndarray:
    return np.atleast_1d(_known(run.trace.shards, name, run))


def _known(there: Mapping[str, Any], name: str, run: Run) -> Any:
    if name not in there:
        raise InputError(f"{run.path} has no {name}; it has {', '.join(sorted(map(str, there)))}")
    return there[name]
