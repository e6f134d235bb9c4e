"""Writing a run folder: a stream per worker and table while the run goes on, then four parquet files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.base import disk
from harness.base.errors import writing
from harness.results import consistency, reader
from harness.results.batch import record_batch, write_sealed
from harness.results.files import MEND
from harness.results.schema import RUN, SCHEMA_VERSION, TABLES, VERSION_KEY

if TYPE_CHECKING:
    from harness.comm.recorder import Epoch, Span

# The epochs row goes last: an epoch that has one is complete in every table.
ORDER = ("comm", "spans", "metrics", "epochs")
SENT = TABLES["comm"].names[2:]  # the columns after epoch and worker
# What a span and the table call alike.
ALIKE = ("kind", "name", "layer", "bytes", "flops", "id", "blocking", "route")


class TraceWriter:
    """One worker's streams, `stream/<table>-worker<k>-attempt<n>-from<first>.arrow`.

    worker    its rank; RUN: the epochs of an asynchronous run, `stream/<table>-run-attempt<n>...`
    attempt   how many times the run was started before
    first     the epoch at which the attempt goes on; None or 0: not in the name, and readers take the first
              epoch that was written

    Every epoch is flushed as it is written. So a worker that dies loses only the epoch it was in and the one
    before, whose loss was not read yet."""

    def __init__(self, run_dir: Path, worker: int, attempt: int, first: int | None = None):
        folder = Path(run_dir) / "stream"
        self.worker = worker
        whose = "run" if worker == RUN else f"worker{worker}"
        since = f"-from{first}" if first else ""
        with writing(folder, MEND):
            folder.mkdir(parents=True, exist_ok=True)
            # Closed in `close`.
            self.files = {
                t: disk.create(folder / f"{t}-{whose}-attempt{attempt}{since}.arrow") for t in ORDER
            }
        self.streams = {t: pa.ipc.new_stream(self.files[t], TABLES[t]) for t in ORDER}
        self.in_flight: list[tuple[int, Span]] = []  # (epoch, operation) posted and not yet completed
        self.reaching: list[Span] = []  # those that are written, and ended after their epoch did

    def write(
        self, epoch: Epoch, *, loss: float | None, scores: Mapping[str, float] | None, peak_rss_bytes: int
    ) -> None:
        """Append one finished epoch to the streams of all tables.

        loss     over all workers; None: not known
        scores   over all workers, by column of `epochs`; None: this epoch was not evaluated
        """
        # An operation is written once it has completed, under the epoch that posted it. `comm_s` counts the
        # part of each operation that falls into this epoch: one still in flight counts up to the epoch's end.
        thread = [s for s in epoch.spans if s.kind != "comm"]
        flights = self.in_flight + [(epoch.epoch, s) for s in epoch.spans if s.kind == "comm"]
        through = [bool(s.end) for _, s in flights]  # read once: a transport's thread may end one meanwhile
        self.in_flight = [flight for flight, ended in zip(flights, through) if not ended]
        landed = [flight for flight, ended in zip(flights, through) if ended]
        begin, end = (thread[0].start, thread[-1].end) if thread else (0.0, 0.0)
        travelling = [*self.reaching, *(s for _, s in flights)]
        self.reaching = [s for s in travelling if s.end and s.end > end]
        compute, exposed = _seconds(thread, "compute"), _seconds(thread, "wait")
        key = {"epoch": epoch.epoch, "worker": self.worker}
        self._append(
            comm=[{**key, **dict(zip(SENT, (*of, *counts)))} for of, counts in epoch.sent.items()],
            spans=[self._span(epoch.epoch, s) for s in thread]
            + [self._span(number, s) for number, s in landed],
            metrics=[
                {**key, "layer": layer, "name": name, "value": v}
                for (layer, name), v in epoch.metrics.items()
            ],
            epochs=[
                {
                    **key,
                    "train_s": epoch.train,
                    "compute_s": compute,
                    "exposed_s": exposed,
                    "rest_s": epoch.train - compute - exposed,
                    "comm_s": covered(((s.start, s.end or end) for s in travelling), begin, end),
                    "cpu_s": epoch.cpu,
                    "evaluate_s": epoch.evaluate,
                    "log_s": epoch.log,
                    "loss": loss,
                    **(scores or {}),
                    "rows_sent": sum(r for r, _ in epoch.sent.values()),
                    "bytes_sent": sum(b for _, b in epoch.sent.values()),
                    "flops": sum(s.flops for s in epoch.spans),
                    "peak_rss_bytes": peak_rss_bytes,
                }
            ],
        )

    def settle(self) -> None:
        """Append the operations that have completed since their epochs were written: a run that goes on from
        a checkpoint keeps the epochs before it as they were written."""
        landed = [(epoch, s) for epoch, s in self.in_flight if s.end]
        self.in_flight = [(epoch, s) for epoch, s in self.in_flight if not s.end]
        self.reaching += [s for _, s in landed]
        self._append(spans=[self._span(epoch, s) for epoch, s in landed])

    def close(self) -> None:
        """End the streams. Operations that never completed are kept, without an end."""
        if self.in_flight:
            self._append(spans=[self._span(number, s) for number, s in self.in_flight])
            self.in_flight = []
        for table, stream in self.streams.items():
            # On a full disk, writing what is left in the buffer fails too.
            with writing(self.files[table].name, MEND):
                stream.close()
                self.files[table].close()

    def _append(self, **rows: list[dict[str, Any]]) -> None:
        for table in ORDER:
            if rows.get(table):
                batch = record_batch(rows[table], TABLES[table])
                with writing(self.files[table].name, MEND):
                    write_sealed(self.streams[table], batch)
                    self.files[table].flush()

    def _span(self, epoch: int, s: Span) -> dict[str, Any]:
        return {
            **{name: getattr(s, name) for name in ALIKE},
            "epoch": epoch,
            "worker": self.worker,
            "start_s": s.start,
            "end_s": s.end or None,
            "cpu_s": s.cpu,
            "peers": list(s.peers),
            "peer_bytes": list(s.peer_bytes),
            "work": [{**done._asdict(), "launches": n} for done, n in Counter(s.work).items()],
        }


def attempts(run_dir: Path) -> int:
    """How many starts a run has had, by the highest attempt number among its streams; 0 without streams."""
    return max((int(named["attempt"]) + 1 for named, _ in reader.streams(run_dir)), default=0)


def _seconds(spans: Iterable[Span], kind: str) -> float:
    return sum(s.end - s.start for s in spans if s.kind == kind)


def covered(intervals: Iterable[tuple[float, float]], begin: float = -np.inf, end: float = np.inf) -> float:
    """Length of the union of `intervals` inside [begin, end]: two operations in flight at once count once."""
    spans = np.array(sorted(intervals), dtype=np.float64).reshape(-1, 2).clip(begin, end)
    if not len(spans):
        return 0.0
    reached = np.maximum.accumulate(spans[:, 1])
    reached = np.concatenate([spans[:1, 0], reached[:-1]])  # how far the intervals before each one cover
    return float(np.maximum(spans[:, 1] - np.maximum(spans[:, 0], reached), 0.0).sum())


def finalise(run_dir: Path) -> None:
    """Turn the streams of all workers and attempts into the four parquet files, then remove the streams.

    A run stopped in the middle of this is finalised by calling it again. The files carry the schema version,
    the composed config and the environment as metadata. InputError where the tables contradict each other, or
    an epoch of a worker is missing: a mean over what is left would be a wrong value."""
    run_dir = Path(run_dir)
    stream, merged = run_dir / "stream", run_dir / "stream.merged"
    trace, tables = reader.Trace(run_dir), reader.Tables(run_dir)
    consistency.check(reader.Trace(run_dir), whole=True)  # a trace of its own, whose tables are let go of
    metadata = {
        VERSION_KEY: str(SCHEMA_VERSION),
        b"halobench_config": json.dumps(trace.config, default=str),
        b"halobench_environment": json.dumps(trace.environment),
    }
    for table in TABLES:
        path = run_dir / f"{table}.parquet"
        with writing(path, MEND), disk.replacing(path) as file:
            pq.write_table(tables.table(table).replace_schema_metadata(metadata), file, compression="zstd")
    disk.remove_tree(merged, ignore_errors=True)
    if stream.exists():
        os.replace(stream, merged)  # at once: half a folder of streams would read as a shorter run
        disk.remove_tree(merged)
