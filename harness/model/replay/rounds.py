"""Replaying an asynchronous run, whose workers make rounds at their own pace (docs/trace.md).

On other devices and links workers keep another pace, so that the server gets its updates in another order,
and a worker makes more or fewer rounds than were traced until it has all of them. What is repeated is the
time that a round takes, and nothing of what it computed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from harness.comm.names import UPDATE
from harness.model.replay import engine
from harness.model.replay.engine import Timeline
from harness.model.replay.platform import Platform
from harness.model.replay.program import ALONE, Begin, Post, Program, Step, Wait


def updates(timeline: Timeline) -> list[tuple[float, int]]:
    """The end of the wait for the answer to each update and the worker that waited, in ascending order."""
    return sorted(
        (segment.end, worker)
        for worker, own in enumerate(timeline.segments)
        for segments in own
        for segment in segments
        if segment.kind == "wait" and segment.name == UPDATE
    )


def simulate(program: Program, platform: Platform, broadcast: str) -> Timeline:
    """`harness.model.replay.engine.simulate`, of asynchronous programs too. Such a one ends when its server
    has all updates: rounds whose update came after the last of these are left out. A worker whose traced
    rounds are over before that makes its rounds after the first again, in their order, unless it meets others
    in them: then all make as many rounds as were traced."""
    while True:
        timeline = engine.simulate(program, platform, broadcast)
        if program.updates is None:
            return timeline
        counted = updates(timeline)[: program.updates]
        end, _ = counted[-1]
        made = Counter(worker for _, worker in counted)
        short = [
            worker
            for worker, begins in enumerate(timeline.begins)
            if made[worker] == len(begins) and timeline.ends(worker, -1) < end and not _meets(program, worker)
        ]
        if not short:
            return replace(
                timeline,
                segments=[own[: made[worker]] for worker, own in enumerate(timeline.segments)],
                begins=[own[: made[worker]] for worker, own in enumerate(timeline.begins)],
            )
        program = _longer(program, short)


def _repeatable(steps: Sequence[Step]) -> Sequence[Step]:
    """A worker's rounds after its first, in which it fetches what is fetched once."""
    second = [place for place, step in enumerate(steps) if isinstance(step, Begin)][1]
    return steps[second:]


def _meets(program: Program, worker: int) -> bool:
    """Whether a worker takes part in operations that others must post too, in a round that it would make
    again."""
    posted = (s.operation for s in _repeatable(program.steps[worker]) if isinstance(s, Post))
    return any(program.operations[number].route not in ALONE for number in posted)


def _longer(program: Program, workers: list[int]) -> Program:
    """The program in which these workers make their rounds after the first twice."""
    assert not program.beside, "no asynchronous system makes batches beside its training"
    operations, steps = list(program.operations), list(program.steps)
    for worker in workers:
        repeated = _repeatable(steps[worker])
        rounds = sum(isinstance(step, Begin) for step in repeated)
        again: dict[int, int] = {}
        more: list[Step] = []
        for step in repeated:
            if isinstance(step, Post):
                again[step.operation] = len(operations)
                operations.append(operations[step.operation])
                more.append(Post(again[step.operation]))
            elif isinstance(step, Wait):
                # An operation that was posted in the first round has long been through.
                number = None if step.operation is None else again.get(step.operation)
                more.append(replace(step, operation=number))
            elif isinstance(step, Begin):
                more.append(Begin(step.epoch + rounds))
            else:
                more.append(step)
        steps[worker] = [*steps[worker], *more]
    return replace(program, steps=steps, operations=operations)
