"""The tasks of mini-batches on a virtual clock: when each batch would be made by threads that run what is
ready in one order or another. Nothing is drawn, and no time passes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from systems.parts.tasks import turn

LEFT, DONE = 0, 1  # events: a task has left its thread; its answer is there


@dataclass(frozen=True)
class Stage:
    """Tasks of a batch that are alike.

    tasks    how many
    seconds  that each keeps a thread busy
    after    the number of the stage whose tasks are done before these are ready; None: none
    in_order whether these are ready only when this batch and all before it have done every stage that is not
             in_order, as fetches under `features=once` are
    """

    tasks: int
    seconds: float
    after: int | None = None
    in_order: bool = False


def made(
    stages: Sequence[Stage], batches: int, threads: int, order: str, latency: float = 0.0
) -> list[float]:
    """When each of so many batches of the same stages is made [batches], in seconds after all were begun.

    order    as `tasks.turn` has it, a task's cost being its seconds
    latency  seconds from when a task leaves its thread to when it is done: another machine's answer
    """
    assert all(math.isfinite(stage.seconds) for stage in stages), "a task ends"
    return _Clock(stages, batches, threads, order, latency).run()


class _Clock:
    def __init__(self, stages: Sequence[Stage], batches: int, threads: int, order: str, latency: float):
        self.stages, self.order, self.latency, self.free = stages, order, latency, threads
        self.left = [[stage.tasks for stage in stages] for _ in range(batches)]
        self.whole = [0] * batches  # stages that are done
        self.made = [0.0] * batches
        self.now, self.number = 0.0, 0
        self.ready: list[tuple[tuple[float, ...], int, int]] = []  # turn, batch, stage
        self.events: list[tuple[float, int, int, int, int]] = []  # when, number, LEFT or DONE, batch, stage
        self.first = 0  # the first batch whose stages are not all done but those in order
        self.plain = sum(not stage.in_order for stage in stages)

    def run(self) -> list[float]:
        for batch in range(len(self.made)):
            self._follow(batch, None)
        self._give_turns()
        while self.ready or self.events:
            while self.free and self.ready:
                _, batch, stage = heapq.heappop(self.ready)
                self.free -= 1
                self._event(self.now + self.stages[stage].seconds, LEFT, batch, stage)
            self.now = self.events[0][0]
            # All that happens at one moment happens before a thread takes its next task.
            while self.events and self.events[0][0] == self.now:
                _, _, what, batch, stage = heapq.heappop(self.events)
                if what == LEFT:
                    self.free += 1
                    self._event(self.now + self.latency, DONE, batch, stage)
                else:
                    self.left[batch][stage] -= 1
                    if not self.left[batch][stage]:
                        self._whole(batch, stage)
        return self.made

    def _event(self, when: float, what: int, batch: int, stage: int) -> None:
        self.number += 1
        heapq.heappush(self.events, (when, self.number, what, batch, stage))

    def _whole(self, batch: int, stage: int) -> None:
        """All tasks of a stage are done."""
        self.whole[batch] += 1
        if self.whole[batch] == len(self.stages):
            self.made[batch] = self.now
        self._follow(batch, stage)
        self._give_turns()

    def _follow(self, batch: int, stage: int | None) -> None:
        """Stages of the batch that waited for this stage are ready; None: those that wait for no stage."""
        for number, each in enumerate(self.stages):
            if each.after == stage and not each.in_order:
                self._become_ready(batch, number)

    def _give_turns(self) -> None:
        """Stages in order are ready where this batch and all before it have done the others."""
        while self.first < len(self.made) and self.whole[self.first] >= self.plain:
            batch, self.first = self.first, self.first + 1
            for number, each in enumerate(self.stages):
                if each.in_order:
                    self._become_ready(batch, number)

    def _become_ready(self, batch: int, stage: int) -> None:
        for _ in range(self.stages[stage].tasks):
            self.number += 1
            place = turn(self.order, batch, self.stages[stage].seconds, self.number)
            heapq.heappush(self.ready, (place, batch, stage))
        if not self.stages[stage].tasks:
            self._whole(batch, stage)
