"""A run's spans in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing show.

A worker is a process. Its training thread is one track: segments of kind compute, wait and rest, one after
another. Operations in flight are on further tracks. An arrow leads from an operation on the worker that sends
to the same operation on each worker that receives, and from an operation to the wait for it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.errors import InputError
from harness.results.reader import Trace

if TYPE_CHECKING:
    import pandas as pd

TRAINING = 0  # the track of the training thread; those of operations in flight follow
Event = dict[str, Any]


def write(trace: Trace, path: Path, first: int = 0, last: int | None = None) -> int:
    """Write the epochs `first` to `last` (0-based, both included; None: to the end) of a run; returns how
    many events there are. InputError where the run has none of these epochs."""
    found = list(events(trace, first, last))
    whole = {"traceEvents": found, "displayTimeUnit": "ms", "otherData": {"run": trace.run_dir.name}}
    path.write_text(json.dumps(whole))
    return len(found)


def events(trace: Trace, first: int = 0, last: int | None = None) -> Iterator[Event]:
    """The events, as objects of the format; times in microseconds from the first span on.

    Operations that never completed have no end and are left out."""
    spans = trace.spans
    there = spans[spans["epoch"].between(first, math.inf if last is None else last)]
    there = there.dropna(subset=["end_s"]).sort_values("start_s", kind="stable")
    if there.empty:
        epochs = f"{first + 1}-{'' if last is None else last + 1}"
        if spans.empty:
            raise InputError(f"{trace.run_dir} has not finished an epoch: let it run longer")
        most = int(spans["epoch"].max()) + 1
        raise InputError(f"--epochs {epochs}: {trace.run_dir} has no spans there; give some of 1-{most}")
    there["ts"] = 1e6 * (there["start_s"] - there["start_s"].min())
    there["dur"] = 1e6 * (there["end_s"] - there["start_s"])
    for worker in sorted(set(there["worker"])):
        own = there[there["worker"] == worker]
        tracks = _tracks(own)
        there.loc[own.index, "track"] = tracks
        yield from _names(int(worker), max(tracks) + 1)
    rows: list[Any] = list(there.astype({"track": int}).itertuples())
    for span in rows:
        yield {
            "ph": "X",
            "pid": int(span.worker),
            "tid": span.track,
            "ts": span.ts,
            "dur": span.dur,
            "name": span.name if span.layer < 0 else f"{span.name}, layer {span.layer}",
            "cat": span.kind,
            "args": {
                "epoch": int(span.epoch),
                "cpu_s": float(span.cpu_s),
                "bytes": int(span.bytes),
                "flops": int(span.flops),
                "id": span.id,
            },
        }
    yield from _arrows(rows)


def _tracks(own: pd.DataFrame) -> list[int]:
    """The track of each span of a worker. `own` is in order of start: an operation goes to the first track
    whose last operation has ended."""
    ends: list[float] = []
    tracks = []
    for kind, start, end in zip(own["kind"], own["start_s"], own["end_s"]):
        if kind != "comm":
            tracks.append(TRAINING)
            continue
        free = next((i for i, last in enumerate(ends) if last <= start), len(ends))
        ends[free : free + 1] = [end]
        tracks.append(TRAINING + 1 + free)
    return tracks


def _names(worker: int, tracks: int) -> Iterator[Event]:
    yield {"ph": "M", "pid": worker, "name": "process_name", "args": {"name": f"worker {worker}"}}
    for track in range(tracks):
        name = "training thread" if track == TRAINING else f"in flight {track}"
        yield {"ph": "M", "pid": worker, "tid": track, "name": "thread_name", "args": {"name": name}}


def _arrows(spans: list[Any]) -> Iterator[Event]:
    """The events of all arrows. An arrow begins and ends in the middle of the slices that it joins, since an
    end on the border of a slice belongs to none. It never leads back in time."""
    operations = {(span.worker, span.id): span for span in spans if span.kind == "comm"}
    pairs = [
        ("rows", sender, operations[peer, sender.id])
        for sender in operations.values()
        for peer in sender.peers
        if (peer, sender.id) in operations
    ]
    pairs += [
        ("waited for", operations[span.worker, span.id], span)
        for span in spans
        if span.kind == "wait" and span.id and (span.worker, span.id) in operations
    ]
    for number, (name, source, target) in enumerate(pairs):
        begin = source.ts + source.dur / 2
        end = max(begin, target.ts + target.dur / 2)
        for ph, span, ts in (("s", source, begin), ("f", target, end)):
            event = {"ph": ph, "pid": int(span.worker), "tid": span.track, "ts": ts, "id": number}
            yield {**event, "name": name, "cat": "flow", **({"bp": "e"} if ph == "f" else {})}
