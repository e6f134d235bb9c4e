"""A thread beside a worker's training that ends the worker if it would otherwise wait for ever."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from harness.comm.meeting import Marks, Meeting, background
from harness.comm.members import workers
from harness.comm.recorder import Epoch

LOOK = 1.0  # seconds between two looks
GRACE = 5.0  # seconds that a worker has to notice by itself that another has failed


class Watch:
    """While this is open, a thread calls `end(sentence)` if no worker has made progress for `patience`
    seconds, or if another worker has failed and this one has not noticed within `grace` seconds.

    A worker makes progress when its record of the running epoch changes: a segment of its training thread
    ends, or an evaluation or logging does. Loading a shard, one evaluation and one checkpoint are steps
    without progress, so `patience` must be longer than each of them.

    running    gives the record of the epoch that this worker is in
    patience   seconds; None: only failures are looked for
    """

    def __init__(
        self,
        meeting: Meeting,
        running: Callable[[], Epoch],
        patience: float | None,
        end: Callable[[str], None],
        grace: float = GRACE,
    ):
        self.running, self.patience, self.end, self.grace = running, patience, end, grace
        self.interval = min(LOOK, patience / 4) if patience else LOOK
        self.closed = threading.Event()
        self.own: tuple[Any, ...] = ()
        self.thread = None
        # Without patience, workers of one host need no watch: as soon as one fails, the process that started
        # them ends the others.
        if meeting.store is not None and (patience or meeting.under_launcher):
            self.marks = Marks(meeting)
            self.thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Watch:
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed.set()
        if self.thread is not None:
            self.thread.join(2 * self.interval)

    def _look(self) -> None:
        asked: Future[str] | None = None
        seen, moved = list(self.marks.last), time.monotonic()
        while not self.closed.wait(self.interval):
            # Ask the store one question at a time: where the link to it is down, no answer may ever come. If
            # no thread can be started for a question, it is asked at the next look.
            if asked is None:
                with contextlib.suppress(RuntimeError):
                    asked = background(self._ask)
            if asked is not None:
                with contextlib.suppress(TimeoutError):
                    failure, asked = asked.result(self.interval), None
                    if failure and not self.closed.wait(self.grace):
                        self.end(failure)
                        return
            if self.patience is None:
                continue
            if (told := list(self.marks.last)) != seen:
                seen, moved = told, time.monotonic()
            elif time.monotonic() - moved >= self.patience and not self.closed.is_set():
                self.end(stalled(self.patience, [epoch for _, epoch in told]))
                return

    def _ask(self) -> str:
        """Tell the others if this worker has moved, and read if they have; gives the first failure, or ""."""
        if self.patience is not None:
            epoch = self.running()
            now = (epoch.epoch, len(epoch.spans), epoch.evaluate, epoch.log)
            if now != self.own:
                self.own = now
                self.marks.set(epoch.epoch)
            self.marks.read()
        return self.marks.failure()


@contextlib.contextmanager
def meeting_in_time(meeting: Meeting, end: Callable[[str], None]) -> Iterator[None]:
    """Call `end(sentence)`, on a thread, if this is still open after `rendezvous` seconds and GRACE: while a
    group is formed, torch waits for the store without a limit where the link to it is down. Does nothing for
    workers of one host that meet in a file.
    """
    unmet = (
        f"worker {meeting.rank} (host {meeting.host}) could not reach the others within"
        f" rendezvous={meeting.seconds:g} s, though all had come; see whether their hosts can be reached"
    )
    timer = threading.Timer(meeting.seconds + GRACE, end, [unmet])
    timer.daemon = True
    if meeting.under_launcher:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def stalled(patience: float, epochs: Sequence[int]) -> str:
    """The error message for workers that make no progress, each in its epoch (-1: before the first)."""
    least = min(epochs)
    behind = workers([k for k, epoch in enumerate(epochs) if epoch == least])
    where = f"in epoch {least + 1}" if least >= 0 else "before the first epoch"
    return (
        f"no worker has made progress for patience={patience:g} s ({behind} furthest behind, {where}); give a"
        " longer patience if a step takes so long, else see whether a host or a process stands still"
    )
