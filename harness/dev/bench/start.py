"""Seconds from the command to the end of the first epoch, with warm caches, in stages."""

import time
from functools import partial

from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import Finished, Folders, train

TARGET_S = 1.5


def start_lines(folders: Folders, rounds: int, workers: int = 4, **keys) -> list[BenchLine]:
    """From the command to the end of the first epoch of all workers: in all, and in stages."""
    case = {"gpus": workers, "epochs": 2, "system__features": "once", **keys}
    run = partial(train, folders, **case)
    run()  # makes shards and compiles loops
    found = [stages(run()) for _ in range(rounds)]
    whole = [sum(each.values()) for each in found]
    return [
        BenchLine.of("start", f"command to first epoch, {workers} workers", "s", whole, target=TARGET_S),
        *(
            BenchLine.of("start", f"  of it {stage}", "s", [each[stage] for each in found])
            for stage in found[0]
        ),
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
