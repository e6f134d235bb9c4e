"""The four tables of a trace. docs/trace.md says what every column means and how each figure derives from them."""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 1

EPOCHS = pa.schema([
    ("epoch", pa.int32()), ("worker", pa.int16()),
    ("train_s", pa.float64()), ("compute_s", pa.float64()), ("comm_s", pa.float64()), ("exposed_s", pa.float64()),
    ("rest_s", pa.float64()), ("cpu_s", pa.float64()), ("evaluate_s", pa.float64()), ("log_s", pa.float64()),
    ("loss", pa.float64()), ("train_acc", pa.float64()), ("val_acc", pa.float64()), ("test_acc", pa.float64()),
    ("rows_sent", pa.int64()), ("bytes_sent", pa.int64()), ("flops", pa.int64()), ("peak_rss_bytes", pa.int64()),
])
COMM = pa.schema([
    ("epoch", pa.int32()), ("worker", pa.int16()), ("layer", pa.int16()), ("direction", pa.string()),
    ("purpose", pa.string()), ("peer", pa.int16()), ("rows", pa.int64()), ("bytes", pa.int64()),
])
SPANS = pa.schema([
    ("epoch", pa.int32()), ("worker", pa.int16()), ("kind", pa.string()), ("name", pa.string()), ("layer", pa.int16()),
    ("start_s", pa.float64()), ("end_s", pa.float64()), ("cpu_s", pa.float64()), ("bytes", pa.int64()),
    ("flops", pa.int64()), ("peers", pa.list_(pa.int16())), ("id", pa.string()), ("blocking", pa.bool_()),
])
METRICS = pa.schema([
    ("epoch", pa.int32()), ("worker", pa.int16()), ("layer", pa.int16()), ("name", pa.string()), ("value", pa.float64()),
])
TABLES: dict[str, pa.Schema] = {"epochs": EPOCHS, "comm": COMM, "spans": SPANS, "metrics": METRICS}
