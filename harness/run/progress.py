"""What a person sees while a run is going on: a bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from harness.base.terminal import Terminal
from harness.comm.recorder import Epoch
from harness.core.scores import Scores
from harness.run.config import Run

LINES = 20  # about the most lines that a run prints where there is no terminal
APART = 2.0  # least seconds between two such lines; the first and the last do not wait
COMPILING = "compiling loops, which are kept for later runs"


def title(run: Run) -> str:
    """What a run is called in a line: system, graph and number of workers."""
    return f"{run.system_name} on {run.graph_name} x{run.settings.workers}"


def say(run: Run, text: str) -> None:
    """Print a line about a run on stderr, unless it is to show nothing."""
    if run.settings.progress != "false":
        print(f"{title(run)}: {text}", file=sys.stderr, flush=True)


class Progress:
    """A bar with epoch, loss, accuracy, bytes so far and time left; lines where there is no terminal.

    enabled   whether this worker shows anything; it is worker 0, and the bytes are its own
    """

    def __init__(self, run: Run, enabled: bool):
        wanted, self.epochs = run.settings.progress, run.settings.epochs
        shown = enabled and (wanted == "true" or (wanted == "auto" and sys.stderr.isatty()))
        self.megabytes, self.accuracy = 0.0, ""
        self.run = run
        # Without a terminal, a line at every so many evaluations that there are about LINES of them.
        every = max(1, run.evaluate.every)
        self.every = every * math.ceil(self.epochs / every / LINES)
        self.lines = enabled and wanted == "auto" and not shown
        self.due = -math.inf  # no line is printed before this time of the clock
        self.bar = None
        if shown:
            self.bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[said]}", markup=False),
                TimeRemainingColumn(),
                console=Terminal(stderr=True),
                refresh_per_second=4,
            )
            self.task = self.bar.add_task(title(run), total=self.epochs, said="")

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def resumed(self, epoch: int, sent: int) -> None:
        """Say that the run goes on after its first `epoch` epochs, in which worker 0 sent `sent` bytes."""
        self.megabytes = sent / 1e6
        if self.bar is not None:
            self.bar.update(self.task, completed=epoch)
            self.bar.console.print(f"resumed from epoch {epoch}", highlight=False)
        elif self.lines:
            say(self.run, f"resumed from epoch {epoch}")

    def sent(self, rounds: Iterable[Epoch]) -> None:
        """Count the bytes that worker 0 sent in these rounds or epochs."""
        self.megabytes += sum(size for epoch in rounds for _, size in epoch.sent.values()) / 1e6

    def epoch(self, epoch: Epoch, loss: float | None, scores: Scores | None) -> None:
        """Show that an epoch of the run is over; None: its loss is not known, or it was not evaluated."""
        self.sent([epoch])
        if scores is not None and not math.isnan(scores.accuracy[1]):
            self.accuracy = f", val acc {scores.accuracy[1]:.4f}"
        number, now = epoch.epoch + 1, time.monotonic()
        told = f"epoch {number}/{self.epochs}" + ("" if loss is None else f", loss {loss:.4f}")
        told += f"{self.accuracy}, {self.megabytes:.1f} MB sent by worker 0"
        if self.bar is not None:
            self.bar.update(self.task, completed=number, said=told)
        elif self.lines and (number == self.epochs or (epoch.epoch % self.every == 0 and now >= self.due)):
            self.due = now + APART
            say(self.run, told)

    def __exit__(self, *_exc) -> None:
        if self.bar is not None:
            self.bar.stop()
