"""The four tables of a trace: every column with its type, unit and meaning.

The same words travel inside the files, as field metadata ("unit", "meaning"); docs/trace.md derives the
printed values from the columns. SCHEMA_VERSION rises with any change to a column, and files of another
version are refused."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.base.errors import InputError
from harness.comm.work import Work

SCHEMA_VERSION = 5
VERSION_KEY = b"halobench_schema"
AGAIN = "run it again with fresh=true"
LOCK = "running.lock"  # the file of a run folder that whoever trains the run holds
AUTO = ("device", "threads", "transport", "kernel")  # the keys that may be `auto`
RUN = -1  # stands for the worker in rows that are epochs of an asynchronous run
UPDATE = "update"  # the metric of a round of such a run: the number of the update of the weights that it made

EPOCH = pa.int32()
RANK = pa.int16()
LAYER = pa.int16()
COUNT = pa.int64()
SECONDS = pa.float64()
SHARE = pa.float64()


# What a segment computed: one element per shape, whose numbers `harness.comm.work` defines.
WORK = pa.struct([("kind", pa.string()), *((name, COUNT) for name in (*Work._fields[1:], "launches"))])


def _column(name: str, type: pa.DataType, unit: str, meaning: str) -> pa.Field:
    return pa.field(name, type, metadata={"unit": unit, "meaning": meaning})


def _schema(*columns: pa.Field) -> pa.Schema:
    return pa.schema(columns, metadata={VERSION_KEY: str(SCHEMA_VERSION)})


_EPOCH = _column("epoch", EPOCH, "", "0-based; of an asynchronous run's worker its own round")
_WORKER = _column("worker", RANK, "", "rank of the worker that measured, 0-based; -1 an asynchronous run")
_LAYER = _column("layer", LAYER, "", "0-based; -1 where no layer is concerned (weights)")

EPOCHS = _schema(
    _EPOCH,
    _WORKER,
    _column("train_s", SECONDS, "s", "the train clock: this worker's epoch, without evaluation and logging"),
    _column("compute_s", SECONDS, "s", "training thread: segments of kind compute"),
    _column("comm_s", SECONDS, "s",
            "some operation in flight: union of the intervals of kind comm, inside the train clock"),
    _column("exposed_s", SECONDS, "s", "training thread: segments of kind wait, blocked on communication"),
    _column("rest_s", SECONDS, "s", "train_s - compute_s - exposed_s: packing, posting, bookkeeping"),
    _column("cpu_s", SECONDS, "CPU s",
            "of the whole process inside the train clock, transport threads included"),
    _column("evaluate_s", SECONDS, "s", "the evaluate clock; not part of train_s"),
    _column("log_s", SECONDS, "s", "the log clock (loss, checkpoint); not part of train_s"),
    _column("loss", pa.float64(), "",
            "mean over the global training vertices before the step; equal on all workers; of an "
            "asynchronous round its worker's share"),
    _column("train_acc", SHARE, "share",
            "exact accuracy (multi-label: micro-F1) after the step; null without evaluation; no measure of a "
            "model that is shown these labels (labels=masked)"),
    _column("val_acc", SHARE, "share", "as train_acc, on the validation vertices"),
    _column("test_acc", SHARE, "share", "as train_acc, on the test vertices"),
    *(
        _column(f"{split}_{score}", SHARE, "share",
                f"{meaning}, on the {vertices} vertices; null without evaluation")
        for score, meaning in (
            ("auc", "area under the ROC curve, mean over classes"),
            ("balanced", "balanced accuracy"),
        )
        for split, vertices in (("val", "validation"), ("test", "test"))
    ),
    _column("rows_sent", COUNT, "rows", "handed to the transport by this worker: the sum of comm.rows"),
    _column("bytes_sent", COUNT, "B", "handed to the transport by this worker: the sum of comm.bytes"),
    _column("flops", COUNT, "flop", "counted analytically: the sum of spans.flops"),
    _column("peak_rss_bytes", COUNT, "B", "largest resident set of the process so far"),
)  # fmt: skip
COMM = _schema(
    _EPOCH,
    _WORKER,
    _LAYER,
    _column("direction", pa.string(), "", "forward | backward"),
    _column("purpose", pa.string(), "", "what it was for: halo, features, weights, flags, ..."),
    _column("peer", RANK, "",
            "the worker sent to, or whose rows are taken from a store; -1 a store itself; of an all-reduce "
            "the next worker of the ring"),
    _column("rows", COUNT, "rows", "rows sent: of vertices, else one per word or flag; 0 for weights"),
    _column("bytes", COUNT, "B", "bytes handed to the transport, or moved to or from a store"),
)  # fmt: skip
SPANS = _schema(
    _EPOCH,
    _WORKER,
    _column("kind", pa.string(), "",
            "training thread: compute | wait | rest, without gaps; beside it: comm, in flight"),
    _column("name", pa.string(), "",
            "what was done: forward, backward, optimiser, pack, exchange, broadcast, all_reduce, ..."),
    _LAYER,
    _column("start_s", SECONDS, "s",
            "CLOCK_MONOTONIC: one clock for all workers of a host, of no known origin"),
    _column("end_s", SECONDS, "s", "as start_s; null for an operation that never completed"),
    _column("cpu_s", SECONDS, "CPU s", "of the training thread inside the segment; 0 for comm"),
    _column("bytes", COUNT, "B", "handed to the transport by this worker for this operation"),
    _column("flops", COUNT, "flop", "of the segment's products, counted in closed forms: those of work"),
    _column("peers", pa.list_(RANK), "", "workers this one sent to, ascending"),
    _column("id", pa.string(), "",
            "of the operation: equal on all its workers, unique in the run; on a wait, what it waits for"),
    _column("blocking", pa.bool_(), "", "whether the training thread waited from posting on"),
    _column("route", pa.string(), "",
            "of an operation, how its bytes travel: pairs | broadcast | ring | take | server | own; "
            "else empty"),
    _column("peer_bytes", pa.list_(COUNT), "B",
            "to each of peers, in their order; of take from each; of server to it and from it"),
    _column("work", pa.list_(WORK), "",
            "on the training thread what was computed: kind, shape, flop, bytes read and written of a launch,"
            " and how many launches of this shape there were"),
)  # fmt: skip
METRICS = _schema(
    _EPOCH,
    _WORKER,
    _LAYER,
    _column("name", pa.string(), "", "the system's own name for the value"),
    _column("value", pa.float64(), "", "the value"),
)
# Columns of `epochs` that are null in an epoch without an evaluation.
SCORES = ("train_acc", "val_acc", "test_acc", "val_auc", "test_auc", "val_balanced", "test_balanced")
# metric: how many vertices had logits in the evaluation that are not finite; absent where none had
NOT_FINITE = "not_finite_logits"
# metrics of a worker on a GPU: the most bytes of GPU memory so far that tensors took, and that torch held
PEAK_ALLOCATED, PEAK_RESERVED = "gpu_peak_allocated_bytes", "gpu_peak_reserved_bytes"
TABLES: dict[str, pa.Schema] = {"epochs": EPOCHS, "comm": COMM, "spans": SPANS, "metrics": METRICS}


def check_version(version: Any, path: Path) -> None:
    """InputError where a file of a trace says that it is of another schema version than this program's."""
    try:
        number = int(version)
    except (TypeError, ValueError):
        raise InputError(f"{path} does not say which trace schema it has; {AGAIN}") from None
    if number != SCHEMA_VERSION:
        age, mend = ("newer", "update halobench") if number > SCHEMA_VERSION else ("older", AGAIN)
        raise InputError(
            f"{path} has trace schema {number}, {age} than this program's {SCHEMA_VERSION}; {mend}"
        )
