"""What only whole runs show: CPU seconds of several workers beside one, and the time from command to first
epoch.

Every run is `python -m harness ...` in a process of its own, which besides says when it had imported
everything; the other values come from its trace.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from harness.bench.lines import Line
from harness.trace.reader import Trace

CPU_TARGET, START_TARGET_S = 1.3, 12.0
# `python -m harness`, with one line on stderr between its imports and its main: when, and from which file.
COMMAND = (
    "import sys, time, harness.__main__ as entry;"
    " print('imported', time.monotonic(), entry.__file__, file=sys.stderr);"
    " sys.exit(entry.main())"
)
# epochs left out: `once` fetches features in the first, and buffers are touched for the first time
WARM_UP = 2


@dataclass
class Folders:
    """Where the bench's runs go, the cache they share, and the checkout whose code runs; null: this one's.

    The folders are absolute where a checkout is given: its runs start there.
    """

    results: Path
    cache: Path
    checkout: Path | None = None


@dataclass
class Finished:
    """A run: its trace, and the moments (time.monotonic) of its command and of the end of its imports."""

    trace: Trace
    started: float
    imported: float


class RunFailed(RuntimeError):
    """A run of the bench ended with an error; the message is the command and what it said."""


def train(folders: Folders, **keys) -> Finished:
    """One run of `vanilla` on twin/reddit without dropout or evaluation; keys are command-line keys, `__` for
    a dot.

    RunFailed with what the run said where it failed, or where other code than the checkout's ran.
    """
    given = {
        "system": "vanilla",
        "dataset": "twin/reddit",
        "dataset.scale": 0.05,
        "gpus": 1,
        "epochs": 12,
        "evaluate.every": 0,
        "model.hidden": 128,
        "model.dropout": 0,
        "progress": "false",
        "fresh": "true",
        "cache": folders.cache,
        **{key.replace("__", "."): value for key, value in keys.items()},
    }
    if "dataset" in keys and "dataset.scale" not in keys:
        del given["dataset.scale"]  # only twins have one
    run_dir = folders.results / "-".join(
        f"{key.rpartition('.')[2]}{value}" for key, value in keys.items()
    ).replace("/", "")
    command = [
        sys.executable,
        "-c",
        COMMAND,
        *(f"{key}={value}" for key, value in given.items()),
        f"run_dir={run_dir}",
    ]
    how: dict = {}
    if folders.checkout is not None:
        how = {"cwd": folders.checkout, "env": {**os.environ, "PYTHONPATH": str(folders.checkout)}}
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **how)
    if done.returncode:
        raise RunFailed(f"{' '.join(command)} failed:\n{done.stderr}")
    said = re.search(r"^imported (\S+) (.+)$", done.stderr, re.M)
    assert said is not None, "the run says when it has imported everything"
    imported, file = said.groups()
    if folders.checkout is not None and not Path(file).is_relative_to(folders.checkout):
        raise RunFailed(f"{folders.checkout} was to run, and {file} ran")
    return Finished(Trace(run_dir), started, imported=float(imported))


def cpu_per_epoch(trace: Trace) -> float:
    """CPU seconds of an epoch summed over workers, all their threads and the transport: the median over
    epochs.
    """
    return float(_settled(trace).groupby("epoch").cpu_s.sum().median())


def seconds_per_epoch(trace: Trace) -> float:
    """Training seconds of an epoch's slowest worker: the median over epochs."""
    return float(_settled(trace).groupby("epoch").train_s.max().median())


def _settled(trace: Trace) -> pd.DataFrame:
    epochs = trace.epochs
    return epochs[epochs.epoch >= min(WARM_UP, int(epochs.epoch.max()))]


CPU_CASES = {
    "one worker, once": dict(gpus=1, system__features="once"),
    "one worker of one thread, once": dict(gpus=1, system__features="once", threads=1),
    "one worker, refetch": dict(gpus=1, system__features="refetch"),
    "4 workers, once, metis": dict(gpus=4, system__features="once", partition="metis"),
    "4 workers, once, random": dict(gpus=4, system__features="once", partition="random"),
    "4 workers, refetch, metis": dict(gpus=4, system__features="refetch", partition="metis"),
    "4 workers, refetch, random": dict(gpus=4, system__features="refetch", partition="random"),
}


def cpu_lines(folders: Folders, rounds: int = 3, cases: dict[str, dict] = CPU_CASES, **keys) -> list[Line]:
    """CPU seconds per epoch: 4 workers summed / one worker. The least of each case's rounds, interleaved.

    The least, because a core shared with somebody else slows what runs on it and can only add to CPU time.
    """
    found: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            found[name].append(cpu_per_epoch(train(folders, **case, **keys).trace))

    def line(what: str, ours: str, peer: str, target: float | None = None, note: str = "") -> Line:
        a, b = found[ours], found[peer]
        return Line("cpu", what, min(a), "CPU s", min(b), target, note, a, b)

    lines = []
    for name in cases:
        if not name.startswith("one"):
            features = name.split(", ")[1]
            held = name == "4 workers, once, metis"
            against = f"one worker, {features}"
            lines.append(line(f"{name} / one worker", name, against, CPU_TARGET if held else None))
    one, single = "one worker, once", "one worker of one thread, once"
    if single in found:
        lines.append(
            line(
                "4 workers, once, metis / one worker of one thread",
                "4 workers, once, metis",
                single,
                note="no waiting between threads in the divisor",
            )
        )
        lines.append(
            line(
                "one worker of all cores / of one thread",
                one,
                single,
                note="what a second thread adds to one worker",
            )
        )
    return lines


def start_lines(folders: Folders, rounds: int = 3, workers: int = 4, **keys) -> list[Line]:
    """Seconds from the command to the end of the first epoch of all workers, warm caches; the median round,
    in stages.
    """
    case = dict(gpus=workers, epochs=2, system__features="once", **keys)
    train(folders, **case)
    stages = sorted((_stages(train(folders, **case)) for _ in range(rounds)), key=lambda s: sum(s.values()))
    middle = stages[(rounds - 1) // 2]
    return [
        Line(
            "start",
            f"command to first epoch, {workers} workers",
            sum(middle.values()),
            "s",
            target=START_TARGET_S,
            samples=[sum(each.values()) for each in stages],
        ),
        *(
            Line("start", f"  of it {name}", seconds, "s", samples=[each[name] for each in stages])
            for name, seconds in middle.items()
        ),
    ]


def start_seconds(run: Finished) -> float:
    """From the command to the end of the first epoch of all workers."""
    return sum(_stages(run).values())


def _stages(run: Finished) -> dict[str, float]:
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
