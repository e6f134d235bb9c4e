"""summary.json: a run in one object, every figure derived from its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.trace.reader import Trace
from harness.trace.schema import SCHEMA_VERSION


def summarise(run_dir: Path) -> dict[str, Any]:
    """The run in `run_dir` in one object. Times are means over epochs 1 on (epoch 0 compiles, allocates and fetches what is
    fetched once) of the epoch's slowest worker; bytes are sums over workers."""
    trace = Trace(run_dir)
    epochs = trace.epochs
    last = int(epochs["epoch"].max())
    warm = epochs[epochs["epoch"] >= min(1, last)]
    slowest = warm.loc[warm.groupby("epoch")["train_s"].idxmax()]
    scored = epochs[(epochs["worker"] == 0) & epochs["test_acc"].notna()]
    best = scored.loc[scored["val_acc"].idxmax()]
    final = scored.iloc[-1]
    workers, cores = int(epochs["worker"].nunique()), int(trace.environment["cores"])
    notes = []
    crowded = workers > cores and trace.config.get("device") != "cuda"
    if crowded:
        notes.append(f"{workers} workers shared {cores} cores: wall time measures the machine, so compare CPU seconds")
    sent = trace.comm
    settled = sent[sent["epoch"] >= min(1, last)]
    warm_epochs = max(warm["epoch"].nunique(), 1)
    hidden = settled["layer"].where(settled["layer"] <= 0, 1).map({-1: "weights_and_other", 0: "layer_0", 1: "hidden"})
    by_part = settled.groupby(hidden)["bytes"].sum() / warm_epochs
    return {
        "schema": SCHEMA_VERSION,
        "dataset": trace.shards["graph"],
        "twin": trace.shards["graph"].startswith("twin/"),
        "workers": workers, "cores": cores, "epochs": last + 1,
        "clock": "cpu" if crowded else "wall", "notes": notes,
        "loss": float(epochs["loss"].iloc[-1]),
        "final": {split: float(final[f"{split}_acc"]) for split in ("train", "val", "test")},
        "best": {"epoch": int(best["epoch"]), **{split: float(best[f"{split}_acc"]) for split in ("train", "val", "test")}},
        "epoch_s": float(slowest["train_s"].mean()), "epoch_median_s": float(slowest["train_s"].median()),
        "first_epoch_s": float(epochs[epochs["epoch"] == epochs["epoch"].min()]["train_s"].max()),
        "compute_s": float(slowest["compute_s"].mean()), "comm_s": float(slowest["comm_s"].mean()),
        "exposed_s": float(slowest["exposed_s"].mean()), "rest_s": float(slowest["rest_s"].mean()),
        "cpu_s": float(warm.groupby("epoch")["cpu_s"].sum().mean()),
        "train_total_s": float(epochs.groupby("epoch")["train_s"].max().sum()),
        "bytes_total": int(sent["bytes"].sum()), "rows_total": int(sent["rows"].sum()),
        "bytes_epoch": {part: float(by_part.get(part, 0.0)) for part in ("layer_0", "hidden", "weights_and_other")},
        "bytes_epoch_by_purpose": {p: float(b) for p, b in (settled.groupby("purpose")["bytes"].sum() / warm_epochs).items()},
        "peak_rss_max": int(epochs["peak_rss_bytes"].max()),
        "peak_rss_sum": int(epochs.groupby("worker")["peak_rss_bytes"].max().sum()),
    }
