"""A replay as a run folder like any other, marked `modelled: true` in its config and its summary.

Tables never put it beside measured runs: its machine is the cluster that it was modelled on, and runs of
different machines share no table. Losses, scores, metrics and what was sent are the traced run's, since a
replay changes none of them; times are the replay's, and evaluation and logging took none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from harness.base.errors import InputError
from harness.comm import recorder
from harness.comm.recorder import Span
from harness.model.replay.engine import Timeline
from harness.model.replay.program import Aside, Begin
from harness.results import resolved
from harness.results.files import write_json_atomic, write_yaml_atomic
from harness.results.reader import Trace, checksums
from harness.results.schema import SCORES
from harness.results.summary import summarise
from harness.results.writer import TraceWriter, finalise


def write(trace: Trace, timeline: Timeline, folder: Path, cluster: dict[str, Any], said: str) -> Path:
    """Write the replay of a run into an empty or new folder.

    cluster   the block of that name of the config
    said      how it was modelled, in a few words
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty: give another --out, or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    machine = (
        f"modelled on cluster={cluster['name']} ({said}, from a trace of {trace.environment['processor']})"
    )
    write_json_atomic(
        folder / "environment.json",
        {
            **{k: v for k, v in trace.environment.items() if k != "hosts"},
            "processor": machine,
            "cores": max(timeline.program.workers, trace.environment["cores"]),
            "gpus": [],
        },
    )
    if trace.resolved is not None:
        told = {key: value for key, value in trace.resolved.items() if key != "checksum"}
        told["attempts"] = [{**each, "machine": machine} for each in told["attempts"]]
        write_json_atomic(folder / resolved.FILE, told)
    if (trace.run_dir / "shards.json").is_file():
        write_json_atomic(folder / "shards.json", {"folder": "", "stats": trace.shards, "graph": trace.graph})
    config = {**trace.config, "cluster": cluster, "modelled": True, "run_dir": None}
    write_yaml_atomic(folder / "config.yaml", yaml.safe_dump(config, sort_keys=False))
    for worker in range(timeline.program.workers):
        _worker(trace, timeline, folder, worker)
    finalise(folder)
    whole = {**summarise(folder), "modelled": True, "files": checksums(folder)}
    write_json_atomic(folder / "summary.json", whole)
    return folder


def _worker(trace: Trace, timeline: Timeline, folder: Path, worker: int) -> None:
    epochs, sent, metrics = (
        table[table["worker"] == worker] for table in (trace.epochs, trace.comm, trace.metrics)
    )
    rows = {row["epoch"]: row for row in epochs.to_dict("records")}
    by_epoch = {
        name: dict(list(table.groupby("epoch"))) for name, table in (("comm", sent), ("metrics", metrics))
    }
    flights = _flights(timeline, worker)
    aside: list[float] = []  # by epoch, CPU seconds of the transport's threads
    for step in timeline.program.steps[worker]:
        if isinstance(step, Begin):
            aside.append(0.0)
        elif isinstance(step, Aside):
            aside[-1] += step.seconds
    writer = TraceWriter(folder, worker, 0)
    for index, number in enumerate(timeline.program.epochs):
        begin, end = timeline.begins[worker][index], timeline.ends(worker, index)
        made = recorder.Epoch(number, train=end - begin)
        for segment in timeline.segments[worker][index]:
            made.spans.append(
                Span(
                    segment.kind,
                    segment.name,
                    segment.layer,
                    segment.start,
                    segment.end,
                    cpu=segment.cpu,
                    flops=segment.flops,
                    id=timeline.program.operations[segment.operation].id if segment.operation >= 0 else "",
                )
            )
            made.cpu += segment.cpu
        # Kept in the epoch in which they were posted, as in a measured trace.
        made.spans += flights.get(index, [])
        if (own := by_epoch["comm"].get(number)) is not None:
            for row in own.to_dict("records"):
                key = row["layer"], row["direction"], row["purpose"], row["peer"]
                made.sent[key] = [row["rows"], row["bytes"]]
        if (own := by_epoch["metrics"].get(number)) is not None:
            made.metrics = {(row["layer"], row["name"]): row["value"] for row in own.to_dict("records")}
        made.cpu += aside[index] + made.metrics.get((-1, recorder.SAMPLER), 0.0)
        row = rows[number]
        writer.write(
            made,
            loss=row["loss"],
            scores={name: row[name] for name in SCORES} if row["train_acc"] == row["train_acc"] else None,
            peak_rss_bytes=row["peak_rss_bytes"],
        )
    writer.close()


def _flights(timeline: Timeline, worker: int) -> dict[int, list[Span]]:
    """A worker's operations, by the place of the epoch in which it posted them."""
    found: dict[int, list[Span]] = {}
    begins = timeline.begins[worker]
    for going in sorted(
        (each for each in timeline.going.values() if worker in each.posted), key=lambda g: g.posted[worker]
    ):
        posted, operation = going.posted[worker], going.operation
        index = max((i for i, begin in enumerate(begins) if begin <= posted), default=0)
        part = operation.parts[worker]
        sizes = tuple(part.values())
        apart = operation.route in ("server", "own")  # from what other workers do
        found.setdefault(index, []).append(
            Span(
                "comm",
                operation.name,
                operation.layer,
                posted,
                going.done.get(worker, 0.0),
                bytes=sum(sizes),
                peers=() if apart else tuple(part),
                id=operation.id,
                blocking=operation.blocking,
                route=operation.route,  # type: ignore[arg-type]
                peer_bytes=() if operation.route == "own" else sizes,
            )
        )
    return found
