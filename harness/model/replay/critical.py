"""The critical path of an epoch: the chain of work and messages that made it as long as it is.

From the end of the slowest worker's epoch backwards: a segment of work is on the path as a whole. A wait that
a message ended puts the message there instead, from the moment at which it could leave; before that the path
goes on with whatever it had waited for: another message, or the worker that posted last. Every second of the
epoch is on it once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from harness.model.replay.engine import Going, Segment, Timeline
from harness.model.replay.times import warm

EARLIER = "begun in an earlier epoch"


def critical_path(timeline: Timeline) -> dict[str, float]:
    """Seconds on the path by name, means over the warm epochs, the longest first; none of an asynchronous
    run, in which no worker waits for another."""
    if timeline.program.updates is not None:
        return {}
    total: dict[str, float] = defaultdict(float)
    kept = warm(timeline)
    for index in kept:
        for name, seconds in _of_epoch(timeline, index):
            total[name] += seconds / len(kept)
    return dict(sorted(((n, s) for n, s in total.items() if s > 0), key=lambda each: -each[1]))


def _of_epoch(timeline: Timeline, index: int) -> list[tuple[str, float]]:
    workers = range(timeline.program.workers)
    first = min(timeline.begins[worker][index] for worker in workers)
    worker = max(workers, key=lambda w: timeline.ends(w, index))
    now = timeline.ends(worker, index)
    ends = [[segment.end for segment in timeline.segments[w][index]] for w in workers]
    found: list[tuple[str, float]] = []
    place = len(ends[worker])
    while now > first:
        # The worker's segment that ends now. It is the last one that is longer than nothing.
        segments = timeline.segments[worker][index]
        place = min(place, bisect_left(ends[worker], now) + 1)
        while place and (segments[place - 1].start >= now or segments[place - 1].end > now):
            place -= 1
        if not place:
            found.append((f"worker {worker}: begins later than the first", now - first))
            break
        segment = segments[place - 1]
        place -= 1
        going = timeline.going.get(segment.operation)
        done = going.done[worker] if going is not None else segment.start
        if segment.kind != "wait" or going is None or done <= segment.start:
            found.append((_named(worker, segment), segment.end - segment.start))
            now = segment.start
            continue
        found.append((_named(worker, segment), segment.end - done))  # the traced tail
        now, worker = _through_messages(timeline, going, worker, done, first, found)
        place = len(ends[worker])
    return found


def _through_messages(
    timeline: Timeline, going: Going, worker: int, now: float, first: float, found: list[tuple[str, float]]
) -> tuple[float, int]:
    """Go back along the messages that a worker's wait ended with; gives the moment at which the first of them
    could leave, and the worker that made it leave then."""
    place = going.last[worker]
    while place >= 0:
        sent = going.sent[place]
        path = timeline.platform.path(sent.message.source, sent.message.target)
        since = max(sent.ready, first)
        name = f"{going.operation.display_name()}: {_place(timeline, sent.message.source)} to"
        name = f"{name} {_place(timeline, sent.message.target)}, {path.where}"
        if sent.ready < first:
            name = f"{name}, {EARLIER}"
        found.append((name, now - since))
        now = since
        if sent.cause >= 0:
            return now, sent.cause
        place = ~sent.cause
        if now <= first:
            break
    return now, worker


def _place(timeline: Timeline, number: int) -> str:
    return f"worker {number}" if number < timeline.program.workers else "the server"


def _named(worker: int, segment: Segment) -> str:
    layer = f", layer {segment.layer}" if segment.layer >= 0 else ""
    wait = "wait for " if segment.kind == "wait" else ""
    return f"worker {worker}: {wait}{segment.name}{layer}"
