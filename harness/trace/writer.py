"""Writing a run folder: a stream a worker and table while the run goes on, four parquet files when it is done."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from harness import __version__
from harness.comm.recorder import Epoch, Span, cpu_count
from harness.trace import reader
from harness.trace.schema import SCHEMA_VERSION, TABLES

VERSIONED = ("torch", "numpy", "numba", "dgl", "torch_geometric", "pyarrow", "pymetis", "hydra-core")


class TraceWriter:
    """One worker's streams, `stream/<table>-worker<k>-attempt<n>.arrow`.

    Every epoch is flushed as it ends, so a worker that dies takes nothing with it but the epoch it was in.
    """

    def __init__(self, run_dir: Path, worker: int, attempt: int):
        folder = Path(run_dir) / "stream"
        folder.mkdir(parents=True, exist_ok=True)
        self.worker = worker
        self.files = {t: open(folder / f"{t}-worker{worker}-attempt{attempt}.arrow", "wb") for t in TABLES}
        self.streams = {t: pa.ipc.new_stream(self.files[t], schema) for t, schema in TABLES.items()}

    def write(self, epoch: Epoch, *, loss: float, accuracy: tuple[float, float, float] | None, peak_rss_bytes: int) -> None:
        """Append one finished epoch. loss and accuracy are global; accuracy is None where nothing was evaluated."""
        key = {"epoch": epoch.epoch, "worker": self.worker}
        compute, exposed = seconds(epoch.spans, "compute"), seconds(epoch.spans, "wait")
        train, val, test = accuracy or (None, None, None)
        rows = {
            "epochs": [{
                **key, "train_s": epoch.train, "compute_s": compute, "exposed_s": exposed,
                "rest_s": epoch.train - compute - exposed,
                "comm_s": covered((s.start, s.end) for s in epoch.spans if s.kind == "comm"),
                "cpu_s": epoch.cpu, "evaluate_s": epoch.evaluate, "log_s": epoch.log, "loss": loss, "train_acc": train,
                "val_acc": val, "test_acc": test, "rows_sent": sum(r for r, _ in epoch.sent.values()),
                "bytes_sent": sum(b for _, b in epoch.sent.values()), "flops": sum(s.flops for s in epoch.spans),
                "peak_rss_bytes": peak_rss_bytes,
            }],
            "comm": [{**key, "layer": layer, "direction": direction, "purpose": purpose, "peer": peer, "rows": r, "bytes": b}
                     for (layer, direction, purpose, peer), (r, b) in epoch.sent.items()],
            "spans": [{**key, "kind": s.kind, "name": s.name, "layer": s.layer, "start_s": s.start, "end_s": s.end,
                       "cpu_s": s.cpu, "bytes": s.bytes, "flops": s.flops, "peers": list(s.peers), "id": s.id,
                       "blocking": s.blocking} for s in epoch.spans],
            "metrics": [{**key, "layer": layer, "name": name, "value": value}
                        for (layer, name), value in epoch.metrics.items()],
        }
        # The epochs row goes last: an epoch that has one is complete in every table.
        for table in ("comm", "spans", "metrics", "epochs"):
            if rows[table]:
                self.streams[table].write_batch(pa.RecordBatch.from_pylist(rows[table], schema=TABLES[table]))
            self.files[table].flush()

    def close(self) -> None:
        for table, stream in self.streams.items():
            stream.close()
            self.files[table].close()


def finalise(run_dir: Path) -> None:
    """Turn the streams of all workers and attempts into the four parquet files, then remove the streams."""
    run_dir = Path(run_dir)
    for table in TABLES:
        merged = reader.read_streams(run_dir, table)
        merged = merged.replace_schema_metadata({"halobench_schema": str(SCHEMA_VERSION)})
        part = run_dir / f"{table}.parquet.part"
        pq.write_table(merged, part)
        os.replace(part, run_dir / f"{table}.parquet")
    shutil.rmtree(run_dir / "stream")


def seconds(spans: Iterable[Span], kind: str) -> float:
    return sum(s.end - s.start for s in spans if s.kind == kind)


def covered(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: two operations in flight at once count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def environment() -> dict[str, Any]:
    """The machine and the software a run was measured on; nothing that names the machine or its user."""
    versions = {}
    for package in VERSIONED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "schema": SCHEMA_VERSION, "halobench": __version__, "revision": _revision(), "python": platform.python_version(),
        "system": platform.system(), "kernel": platform.release(), "processor": _processor(), "cores": cpu_count(),
        "memory_bytes": psutil.virtual_memory().total, "packages": versions,
    }


def _revision() -> str | None:
    here = Path(__file__).resolve().parents[2]
    if not (here / ".git").exists():
        return None
    answer = subprocess.run(["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True)
    return answer.stdout.strip() or None


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def write_text_atomic(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def write_json_atomic(path: Path, value: Any) -> None:
    write_text_atomic(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(Path(path).read_text())
