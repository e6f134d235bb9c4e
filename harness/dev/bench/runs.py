"""How much the bench measures; whole runs that it starts, in turn, and what is read from each.

Every run is `python -m harness ...` in a process of its own, which besides says when it had imported
everything; the other values come from its trace.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import torch

from harness.base.errors import InputError
from harness.core.architectures import Gcn
from harness.data.graph import Graph
from harness.data.sources import Source
from harness.results.reader import Trace

T = TypeVar("T")
K = TypeVar("K")
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
    """Where the bench's runs go, the cache they share, and the checkout whose code runs; None: this one's.

    The folders are absolute where a checkout is given, since its runs start there.
    """

    results: Path
    cache: Path
    checkout: Path | None = None


@dataclass(frozen=True)
class Extent:
    """How much is measured.

    graph, model      of what is timed inside the bench's own process
    cut               the graph that part partition cuts
    runs              keys of whole runs, beyond those of `train`
    workers, hidden   that part order tries
    entries           of the graphs with uniform neighbours
    rounds            of an epoch inside the process; the sparse product has half as many again, parts blocks
                      and gpu have twice as many
    targets           whether lines are held to targets
    """

    graph: Source
    model: Gcn
    cut: Source
    runs: dict[str, Any]
    workers: tuple[int, ...]
    hidden: tuple[int, ...]
    entries: tuple[float, ...]
    rounds: int
    targets: bool


FULL = Extent(
    graph=Source(name="reddit", source="twin", scale=0.05),
    model=Gcn(layers=2, hidden=128, dropout=0.0),
    cut=Source(name="reddit", source="twin", scale=0.1753),  # 10^7 undirected edges
    runs={},
    workers=(2, 4),
    hidden=(64, 128, 256),
    entries=(1e5, 1e6, 1e7),
    rounds=10,
    targets=True,
)
QUICK = Extent(
    graph=Source(name="reddit", source="twin", scale=0.009),
    model=Gcn(layers=2, hidden=16, dropout=0.0),
    cut=Source(name="reddit", source="twin", scale=0.009),
    runs={"dataset__scale": 0.009, "epochs": 3, "model__hidden": 8},
    workers=(2,),
    hidden=(8,),
    entries=(1e4, 1e5),
    rounds=2,
    targets=False,
)


@dataclass(frozen=True)
class Setting:
    """folders    where whole runs go, and the cache they share
    data_dir   where real graphs are looked for
    rounds     of whole runs
    device     of part gpu; None: CUDA's, or a line that says why there is none"""

    folders: Folders
    data_dir: Path
    rounds: int
    extent: Extent
    device: torch.device | None = None

    def graph(self) -> Graph:
        """The graph of what is timed inside the bench's own process."""
        return self.extent.graph.load(self.data_dir, seed=1)

    @property
    def on_real(self) -> dict[str, Any]:
        """Keys of runs on a real graph, which has no scale."""
        return {key: value for key, value in self.extent.runs.items() if key != "dataset__scale"}


@dataclass
class Finished:
    """A run: its trace, and the moments (time.monotonic) of its command and of the end of its imports."""

    trace: Trace
    started: float
    imported: float


def train(folders: Folders, **keys) -> Finished:
    """One run of `vanilla` on twin/reddit without dropout or evaluation; keys are command-line keys, `__` for
    a dot.

    InputError with what the run said where it failed, or where other code than the checkout's ran.
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
    if "dataset" in keys and "dataset.scale" not in keys and "dataset__scale" not in keys:
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
        raise InputError(f"{' '.join(command)} failed:\n{done.stderr}")
    said = re.search(r"^imported (\S+) (.+)$", done.stderr, re.M)
    assert said is not None, "the run says when it has imported everything"
    imported, file = said.groups()
    if folders.checkout is not None and not Path(file).is_relative_to(folders.checkout):
        raise InputError(f"{folders.checkout} was to run, and {file} ran")
    return Finished(Trace(run_dir), started, imported=float(imported))


def cpu_per_epoch(trace: Trace) -> float:
    """CPU seconds of an epoch, all workers' threads and the transport: the median over epochs."""
    return float(_settled(trace.epochs).groupby("epoch").cpu_s.sum().median())


def seconds_per_epoch(trace: Trace) -> float:
    """Training seconds of an epoch's slowest worker: the median over epochs."""
    return float(_settled(trace.epochs).groupby("epoch").train_s.max().median())


def compute_per_epoch(trace: Trace) -> float:
    """CPU seconds per epoch that all training threads spent on computing, packing and bookkeeping; waits and
    the transport's threads are left out. The median over epochs, so that an epoch in which something is
    renewed does not count."""
    spans = _settled(trace.spans)
    # The training thread itself copies to and from memory that workers share, though spans call that a wait.
    copies = (spans.kind == "wait") & spans.name.isin(["global_put", "global_get"])
    own = spans[spans.kind.isin(["compute", "rest"]) | copies]
    return float(own.groupby("epoch").cpu_s.sum().median())


def flops_per_epoch(trace: Trace) -> float:
    """Operations of an epoch's products, of all workers: the median over epochs."""
    return float(trace.epochs.groupby("epoch").flops.sum().median())


def stages(run: Finished) -> dict[str, float]:
    """Seconds of each stage from the command to the end of the first epoch of all workers: they follow one
    another without a gap."""
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


def _settled(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of all epochs but the first WARM_UP."""
    return rows[rows.epoch >= min(WARM_UP, int(rows.epoch.max()))]


def in_turn(
    runs: Mapping[K, Callable[[], Finished]], rounds: int, of: Callable[[Finished], T]
) -> dict[K, list[T]]:
    """What `of` reads from each run, round by round. The order of runs is reversed in every second round, so
    that what else the machine does falls on all alike. Each run is read at once, since the next round's run
    takes its folder."""
    found: dict[K, list[T]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: -1 if turn % 2 else 1]:
            found[name].append(of(runs[name]()))
    return found
