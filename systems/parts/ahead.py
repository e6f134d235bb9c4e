"""What a thread beside the training makes ahead of it, in order, at most so many batches at a time."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from harness.base.errors import InputError
from harness.comm.comm import Comm
from harness.comm.recorder import BATCH, SAMPLER, SAMPLER_AHEAD, SAMPLER_THREADS, Recorder
from harness.comm.service import ServiceLost

Made = TypeVar("Made")


def failed(comm: Comm, error: Exception, epoch: int, step: int) -> ServiceLost:
    """What is raised in the training thread where a thread beside it could not make a step's batch."""
    told = " ".join(f"{type(error).__name__}: {error}".split())
    return ServiceLost(
        f"worker {comm.rank}: the thread that samples failed at epoch {epoch}, step {step} ({told}); the same"
        " command goes on from the last checkpoint"
    )


def tell(recorder: Recorder, seconds: float, threads: int, ahead: float) -> None:
    """Note of an epoch the CPU seconds of the threads that made its batches beside the training, how many
    they are, and how many batches they begin beyond the one that is asked for."""
    recorder.metric(SAMPLER, seconds)
    recorder.metric(SAMPLER_THREADS, threads)
    recorder.metric(SAMPLER_AHEAD, ahead)


class Ahead(Generic[Made]):
    """make(epoch, step) for one step after another, in one thread, `depth` steps ahead of the one that is
    asked for; across epochs, and to the run's last. `make` touches no recorder and no transport.

    steps   per epoch; epochs: of the run
    """

    def __init__(self, comm: Comm, make: Callable[[int, int], Made], steps: int, epochs: int, depth: int):
        self.comm, self.make, self.steps, self.depth = comm, make, steps, depth
        self.end = steps * epochs
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="sampler")
        self.queue: deque[Future[tuple[Made, float]]] = deque()
        self.first = 0  # the number of the queue's first step, counted over epochs
        self.seconds = 0.0  # CPU seconds of the thread for what has been taken since they were last asked for

    def take(self, epoch: int, step: int) -> Made:
        """What was made for a step; waits until it is there. ServiceLost, in one sentence, where making it
        failed; MemoryError and InputError as they are."""
        number = epoch * self.steps + step
        if number != self.first:  # a resumed run begins elsewhere
            self._forget()
            self.first = number
        self._fill(number + 1)
        with self.comm.recorder.inside("wait", BATCH):
            try:
                made, seconds = self.queue.popleft().result()
            except (InputError, MemoryError):
                raise
            except Exception as error:
                raise failed(self.comm, error, epoch, step) from error
        self.first += 1
        self.seconds += seconds
        self._fill(min(self.first + self.depth, self.end))
        return made

    def _fill(self, end: int) -> None:
        """Have every step up to the one before `end` made."""
        for number in range(self.first + len(self.queue), end):
            self.queue.append(self.thread.submit(self._timed, *divmod(number, self.steps)))

    def _timed(self, epoch: int, step: int) -> tuple[Made, float]:
        begun = time.thread_time()
        made = self.make(epoch, step)
        return made, time.thread_time() - begun

    def _forget(self) -> None:
        while self.queue:
            future = self.queue.pop()
            if not future.cancel():
                future.exception()  # it is being made, or was

    def tell(self) -> None:
        """Note the CPU seconds that the thread spent on what has been taken since this was last asked."""
        seconds, self.seconds = self.seconds, 0.0
        tell(self.comm.recorder, seconds, 1, self.depth)

    def close(self) -> None:
        """End the thread."""
        self._forget()
        self.thread.shutdown()
