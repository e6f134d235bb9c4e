"""Whether the tables of a run can be what its workers traced, whoever wrote the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.base.errors import InputError
from harness.results.reader import BY, Trace
from harness.results.schema import AGAIN, RUN, SCORES, UPDATE

if TYPE_CHECKING:
    import pandas as pd  # workers write traces, and need none

# Columns that are never null and never below 0. `rest_s` is a difference that may round to below 0, so it is
# not among them.
COUNTS = {
    "epochs": (
        *("train_s", "compute_s", "comm_s", "exposed_s", "cpu_s"),
        *("rows_sent", "bytes_sent", "flops", "peak_rss_bytes"),
    ),
    "comm": ("rows", "bytes"),
}


def check(trace: Trace, spans: bool = True, whole: bool | None = None) -> None:
    """Raise InputError, which names the table, where rows are doubled, missing or null, where a score is not
    between 0 and 1, or where the tables contradict each other in the bytes, the operations or the epochs.

    spans   whether the table `spans` is there
    whole   whether every epoch of every worker has to be there; None: where the run has finished
    """
    epochs, comm = trace.epochs, trace.comm
    for name, frame in (("epochs", epochs), ("comm", comm)):
        keys = frame[list(BY[name])]
        if keys.isna().any(axis=None) or keys.duplicated().any():
            raise _wrong(trace, name, "has a row twice, or one of no epoch or worker")
        for column in COUNTS[name]:
            if not (frame[column].to_numpy() >= 0).all():  # null is read as NaN, for which >= is false
                raise _wrong(trace, name, f"has a {column} that is null or below 0")
    for column in SCORES:
        shares = epochs[column].to_numpy()
        beyond = shares[(shares < 0) | (shares > 1)]
        if len(beyond):
            raise _wrong(trace, "epochs", f"has a {column} of {beyond[0]:g}")
    workers = trace.config.get("workers")
    if isinstance(workers, int) and not epochs["worker"].between(RUN, workers - 1).all():
        raise _wrong(trace, "epochs", f"has a worker that is none of {workers}")
    sent = comm["bytes"].groupby(_round(comm)).sum()
    told = epochs["bytes_sent"].set_axis(_round(epochs))
    if (sent.reindex(told.index, fill_value=0) != told).any() or sent.sum() != told.sum():
        raise _wrong(trace, "comm", "does not add up to epochs.bytes_sent")
    if trace.finished if whole is None else whole:
        _check_whole(trace, spans)


def _round(frame: pd.DataFrame) -> np.ndarray:
    """[rows] each row's epoch and worker as one number: grouping by it takes a third of the time."""
    return np.asarray(frame["epoch"], np.int64) * 2**16 + np.asarray(frame["worker"], np.int64)


def _check_whole(trace: Trace, spans: bool) -> None:
    """InputError where an epoch of a worker, an update of an asynchronous run, or operations are missing."""
    epochs, metrics = trace.epochs, trace.metrics
    if epochs.empty:
        raise InputError(f"{trace.run_dir} holds no finished epoch; {AGAIN}")
    updates = metrics.loc[metrics["name"] == UPDATE, "value"]
    numbers = epochs.groupby("worker")["epoch"]
    count, ends = numbers.count(), numbers.max() + 1
    workers = trace.config.get("workers", len(count.drop(RUN, errors="ignore")))
    asynchronous = len(updates) > 0 or RUN in count.index
    of_run = (trace.summary or {}).get("epochs", ends.get(RUN, 1) if asynchronous else ends.max())
    for worker in (*range(workers), *((RUN,) if asynchronous else ())):
        # A worker of an asynchronous run makes as many rounds as it comes to.
        due = ends.get(worker, 1) if asynchronous and worker != RUN else of_run
        if not count.get(worker) == ends.get(worker) == due:
            whose = "the run" if worker == RUN else f"worker {worker}"
            has = f"{whose} has {count.get(worker, 0)} of {due}"
            if ends.get(worker, 0) > due:
                has = f"{whose} has epoch {ends[worker]} of {due}"
            raise _wrong(trace, "epochs", f"does not have every epoch of every worker: {has}")
    if RUN in count.index:
        # A run that diverged is stopped where its workers meet; some have made later updates by then.
        due = workers * of_run
        if not np.array_equal(np.sort(updates[updates < due]), np.arange(due)):
            raise _wrong(trace, "metrics", f"does not have each of {due} updates of the weights once")
    if spans and trace.spans["flops"].sum() != epochs["flops"].sum():
        raise _wrong(trace, "spans", "does not add up to epochs.flops")


def _wrong(trace: Trace, table: str, what: str) -> InputError:
    return InputError(f"{trace.run_dir}: its table {table} {what}, so a file of it is damaged; {AGAIN}")
