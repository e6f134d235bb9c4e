"""Seconds from the command to the end of the first epoch, with warm caches, in stages."""

from __future__ import annotations

import time
from functools import partial

from harness.bench import before
from harness.bench.lines import Line
from harness.bench.runs import Finished, Folders, in_turn, train

TARGET_S = 3.0
BEFORE_TARGET = 0.7  # largest ratio to the revision before


def start_lines(folders: Folders, rounds: int = 4, workers: int = 4, **keys) -> list[Line]:
    """From the command to the end of the first epoch of all workers: in stages, and beside the revision
    before where git has it.
    """
    case = {"gpus": workers, "epochs": 2, "system__features": "once", **keys}
    sides = {"now": folders}
    if (old := before.folders(folders)) is not None:
        sides["before"] = old
    runs = {side: partial(train, where, **case) for side, where in sides.items()}
    for run in runs.values():
        run()  # makes shards and compiles loops
    found = in_turn(runs, rounds, stages)
    whole = {side: [sum(each.values()) for each in rows] for side, rows in found.items()}
    name = f"command to first epoch, {workers} workers"
    lines = [Line.of("start", name, "s", whole["now"], target=TARGET_S)]
    if "before" in whole:
        beside = f"{name} / revision {before.BEFORE}"
        lines.append(Line.of("start", beside, "s", whole["now"], whole["before"], BEFORE_TARGET))
    return lines + [
        Line.of("start", f"  of it {stage}", "s", [each[stage] for each in found["now"]])
        for stage in found["now"][0]
    ]


def start_seconds(run: Finished) -> float:
    """From the command to the end of the first epoch of all workers."""
    return sum(stages(run).values())


def stages(run: Finished) -> dict[str, float]:
    """Seconds of each stage: they follow one another without a gap."""
    # Files say when they were written by the wall clock; spans and `started` by the monotonic one.
    offset = time.time() - time.monotonic()
    written = (run.trace.run_dir / "config.yaml").stat().st_mtime - offset
    spans = run.trace.spans
    first = spans[spans.epoch == spans.epoch.min()]
    begun, ended = float(first.start_s.min()), float(first.end_s.max())
    return {
        "interpreter and imports": run.imported - run.started,
        "compose, check, prepare": written - run.imported,
        "fork, join, set up workers": begun - written,
        "first epoch": ended - begun,
    }
