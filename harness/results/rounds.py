"""Reading a trace by epochs of the run, whether its workers made them together or each at its own pace.

A run is asynchronous where it has rows of the worker RUN (docs/trace.md). An epoch of such a run is P updates
of the weights. A worker's round falls in the epoch of the update that it made; a round that made no update
falls in none."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from harness.results.reader import Trace
from harness.results.schema import RUN, UPDATE


def epochs_of_run(epochs: pd.DataFrame) -> pd.DataFrame:
    """The rows with the run's accuracy and loss: an asynchronous run's own, else those of all workers."""
    own = epochs[epochs["worker"] == RUN]
    return epochs if own.empty else own


@dataclass
class Rounds:
    """The rows of a run's workers, each with the epoch of the run that it belongs to.

    epochs         the workers' rows; column `of_run` is the epoch of the run, NaN where a row is in none
    workers        P
    asynchronous   whether a row is a round of the worker's own
    """

    epochs: pd.DataFrame
    workers: int
    asynchronous: bool

    @classmethod
    def read(cls, trace: Trace) -> Rounds:
        """The rows of a run's workers, read from its tables `epochs` and (asynchronous) `metrics`."""
        epochs = trace.epochs
        rows = epochs[epochs["worker"] != RUN]
        workers = int(trace.config["workers"])  # also where one has written nothing yet
        if len(rows) == len(epochs):
            return cls(epochs.assign(of_run=epochs["epoch"]), workers, False)
        metrics = trace.metrics
        updates = metrics[metrics["name"] == UPDATE][["epoch", "worker", "value"]]
        rows = rows.merge(updates, on=["epoch", "worker"], how="left")
        return cls(rows.assign(of_run=rows.pop("value") // workers), workers, True)

    def cumulative(self, column: str) -> pd.Series:
        """[epochs of the run] the sum of `column` over the slowest worker's epochs up to and including each
        one. First epochs of workers count 0.

        Workers that meet in every epoch wait for the slowest of that epoch, so its value counts. Those of an
        asynchronous run wait for nobody: the slowest is the one whose rounds so far have the largest sum."""
        rows = self.epochs.dropna(subset=["of_run"])
        values = rows[column].where(rows["epoch"] > 0, 0.0)
        table = values.groupby([rows["of_run"].astype(int), rows["worker"]]).sum().unstack(fill_value=0)
        return table.cumsum().max(axis=1) if self.asynchronous else table.max(axis=1).cumsum()

    def total(self, column: str) -> float:
        """The sum of `column` over the whole run for the slowest worker, as in `cumulative` but with first
        epochs."""
        grouped = self.epochs.groupby("worker" if self.asynchronous else "epoch")[column]
        return float(grouped.sum().max() if self.asynchronous else grouped.max().sum())
