"""Threads that make batches ahead of the training."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from systems.parts.tasks import Scheduler


def test_what_fails_in_the_launcher_is_raised_when_its_batch_is_asked_for():
    def begin(number: int, epoch: int, step: int) -> int:
        if threading.current_thread().name == "launcher":
            raise MemoryError("no room for a batch")
        return number

    recorder = SimpleNamespace(inside=lambda *of: contextlib.nullcontext())
    comm = SimpleNamespace(size=1, rank=0, recorder=recorder)
    scheduler = Scheduler(comm, begin, lambda dag: None, steps=3, epochs=1, depth=0, launch="score")
    try:
        assert scheduler.take(0, 0) == 0
        scheduler.threads[-1].join()  # it has begun the next batch, in vain
        with pytest.raises(MemoryError, match="no room for a batch"):
            scheduler.take(0, 1)
    finally:
        scheduler.close()
