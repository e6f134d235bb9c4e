"""Tells the user of workers that no longer move. All others wait for a frozen worker, and none says so.

Each worker notes when it began which epoch, in a page of memory that it shares with the launcher. A thread of
the launcher looks at the page, so a worker spends no more than that note."""

import contextlib
import math
import mmap
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

LEAST = 60.0  # seconds: a shorter silence is never told
LONGEST = 5  # times the longest epoch so far: a shorter silence is not told, since stragglers' are long
FILE = "beats"  # beside the file in which workers meet
# Columns: the epoch begun last; when it began, by CLOCK_MONOTONIC; the longest epoch before it, in seconds.
EPOCH, SINCE, LENGTH, COLUMNS = range(4)
NONE = -1.0
STOPPED = (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)


class Heartbeats:
    """The page: [workers, 3] float64. A worker that has not begun an epoch, or has ended, is at epoch -1."""

    def __init__(self, path: Path, workers: int):
        size = workers * COLUMNS * 8
        if not path.exists():
            path.write_bytes(np.tile([NONE, 0.0, 0.0], workers).tobytes())
        with path.open("r+b") as file:
            self.page = mmap.mmap(file.fileno(), size)
        self.rows = np.frombuffer(self.page).reshape(workers, COLUMNS)

    def begin(self, worker: int, epoch: int) -> None:
        """The worker begins an epoch."""
        row, now = self.rows[worker], time.monotonic()
        if row[EPOCH] != NONE:
            row[LENGTH] = max(row[LENGTH], now - row[SINCE])
        row[SINCE], row[EPOCH] = now, epoch

    def end(self, worker: int) -> None:
        """The worker has no more epochs to begin."""
        self.rows[worker, EPOCH] = NONE


@dataclass
class Silence:
    """Says which workers have not moved for long.

    beats      of the workers
    processes  the process id of each worker, by rank
    """

    beats: Heartbeats
    processes: Mapping[int, int]

    def __post_init__(self) -> None:
        self.said: set[tuple[int, float]] = set()  # (worker, epoch) of silences that have been told

    def look(self) -> str:
        """Who has not moved for max(LEAST, 5 x the longest epoch so far), in a sentence, once per worker and
        epoch; "" where there is nothing new to say."""
        rows = self.beats.rows.copy()
        limit = max(LEAST, LONGEST * rows[:, LENGTH].max())
        silence = np.where(rows[:, EPOCH] == NONE, 0.0, time.monotonic() - rows[:, SINCE])
        silent = [int(worker) for worker in np.flatnonzero(silence > limit)]
        frozen, others = self._stopped(silent)
        # Workers that wait for a frozen worker, or for one in an earlier epoch, are not to blame.
        blamed = [worker for worker in silent if worker in frozen] or silent
        behind = rows[blamed, EPOCH].min() if blamed else NONE
        blamed = [worker for worker in blamed if rows[worker, EPOCH] == behind]
        new = {(worker, float(rows[worker, EPOCH])) for worker in blamed} - self.said
        if not new:
            return ""
        self.said |= new
        names = ", ".join(map(str, blamed))
        whose = f"worker {names} has" if len(blamed) == 1 else f"workers {names} have"
        began = f"{'it' if len(blamed) == 1 else 'they'} began epoch {int(behind) + 1}"
        told = f"{whose} not moved since {began}, for {math.floor(silence[blamed].min())} s"
        if frozen:
            told += " (stopped by a signal; kill -CONT lets it go on)"
        elif others:
            worker, pid = min(others.items())
            told += f" (process {pid}, which worker {worker} started, is stopped by a signal)"
        return told

    def _stopped(self, silent: list[int]) -> tuple[set[int], dict[int, int]]:
        """Which silent workers are stopped by a signal; and, by worker, the id of a process that it started
        (a server) which is stopped."""
        frozen: set[int] = set()
        others: dict[int, int] = {}
        for worker in self.processes if silent else ():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(self.processes[worker])
                if process.status() in STOPPED:
                    frozen.add(worker)
                for child in process.children(recursive=True):
                    if child.status() in STOPPED:
                        others[worker] = child.pid
        return frozen & set(silent), others


@contextlib.contextmanager
def watched(silence: Silence) -> Iterator[None]:
    """While this is open, a thread looks every second, and prints what there is to say."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(1.0):
            if told := silence.look():
                print(f"note: {told}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
