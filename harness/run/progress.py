"""What a person sees while a run is going on; nothing where nobody is looking."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from harness.comm.recorder import Epoch
from harness.core.scores import Scores
from harness.run.config import Run


class Progress:
    """A bar with epoch, loss, accuracy, bytes so far and time left. Worker 0 draws it."""

    def __init__(self, run: Run, enabled: bool):
        wanted = str(run.settings.progress).lower()
        shown = enabled and (wanted == "true" or (wanted == "auto" and sys.stderr.isatty()))
        self.workers, self.megabytes, self.accuracy = run.settings.workers, 0.0, ""
        self.bar = None
        if shown:
            self.bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("epoch {task.completed}/{task.total}"),
                TextColumn(
                    "loss {task.fields[loss]:.4f}  {task.fields[accuracy]}  {task.fields[megabytes]:.1f} MB"
                    " sent by worker 0"
                ),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                refresh_per_second=4,
            )
            self.task = self.bar.add_task(
                f"{run.system_name} on {run.graph_name} x{self.workers}",
                total=run.settings.epochs,
                loss=float("nan"),
                accuracy="",
                megabytes=0.0,
            )

    def __enter__(self) -> Progress:
        if self.bar is not None:
            self.bar.start()
        return self

    def sent(self, rounds: Iterable[Epoch]) -> None:
        """Count what was sent in rounds that are not the run's epochs."""
        self.megabytes += sum(size for epoch in rounds for _, size in epoch.sent.values()) / 1e6

    def epoch(self, epoch: Epoch, loss: float | None, scores: Scores | None) -> None:
        self.sent([epoch])
        if scores is not None and not math.isnan(scores.accuracy[1]):
            self.accuracy = f"val {scores.accuracy[1]:.4f}"
        if self.bar is not None:
            self.bar.update(
                self.task,
                completed=epoch.epoch + 1,
                loss=math.nan if loss is None else loss,
                accuracy=self.accuracy,
                megabytes=self.megabytes,
            )

    def __exit__(self, *_exc) -> None:
        if self.bar is not None:
            self.bar.stop()
