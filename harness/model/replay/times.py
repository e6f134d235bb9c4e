"""What a replay says: where each worker's epoch goes, and the critical path.

The critical path of an epoch is the chain of work and messages that made it as long as it is. It is followed
backwards from the end of the slowest worker's epoch. A segment of work is on the path as a whole. Where a
message ended a wait, the message is on the path instead of the wait, from the moment at which it could leave.
Before that moment the path goes on with what the message had waited for: another message, or the worker that
posted last. Of a message that hands on bytes as they come, no slower than they do, the way of the last byte
alone is on the path, which goes on with the message that brought it: so a block that goes around a ring is at
the hop that is slowest, of equally slow ones at the first. Every second of the epoch is on the path once.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from harness.model.replay.engine import Going, Segment, Timeline
from harness.model.replay.flows import SAME
from harness.model.replay.rounds import updates
from harness.results.writer import covered


@dataclass(frozen=True)
class Epoch:
    """Seconds of one worker's epoch; epoch = compute + rest + exposed + idle.

    epoch      on the worker's own train clock
    compute, rest   as its program says
    exposed    the part of its waits after all workers that they depend on had posted
    idle       the part of its waits before that, for slower workers
    behind     after its own end, until the slowest worker has ended too: not part of `epoch`; 0 of an
               asynchronous run, in which nobody waits for it
    comm       with some operation in flight: the union of the operations' intervals
    """

    epoch: float
    compute: float
    rest: float
    exposed: float
    idle: float
    behind: float
    comm: float


def by_worker(timeline: Timeline) -> list[list[Epoch]]:
    """Each worker's epochs in order, or its rounds in an asynchronous run."""
    workers, slowest = range(timeline.program.workers), None
    if timeline.program.updates is None:
        indices = range(len(timeline.program.epochs))
        slowest = [max(timeline.ends(w, index) for w in workers) for index in indices]
    return [_of_worker(timeline, worker, slowest) for worker in workers]


def _of_worker(timeline: Timeline, worker: int, slowest: Sequence[float] | None) -> list[Epoch]:
    """A worker's epochs in order, or its rounds in an asynchronous run.

    slowest   by epoch, the moment at which the last worker ends it; None of an asynchronous run, in which
              nobody waits for that worker
    """
    found = []
    flights = np.array(
        [
            (going.posted[worker], going.done.get(worker, np.inf))
            for going in timeline.going.values()
            if worker in going.posted
        ]
    ).reshape(-1, 2)
    for index, begin in enumerate(timeline.begins[worker]):
        end = timeline.ends(worker, index)
        parts = dict.fromkeys(("compute", "rest", "wait", "idle"), 0.0)
        for segment in timeline.segments[worker][index]:
            parts[segment.kind] += segment.end - segment.start
            if segment.kind == "wait" and segment.operation >= 0:
                met = timeline.going[segment.operation].met[worker]
                parts["idle"] += min(max(met - segment.start, 0.0), segment.end - segment.start)
        inside = flights[(flights[:, 0] < end) & (flights[:, 1] > begin)]
        found.append(
            Epoch(
                epoch=end - begin,
                compute=parts["compute"],
                rest=parts["rest"],
                exposed=parts["wait"] - parts["idle"],
                idle=parts["idle"],
                behind=slowest[index] - end if slowest is not None else 0.0,
                comm=covered(map(tuple, inside), begin, end),
            )
        )
    return found


def first_epoch(timeline: Timeline) -> float:
    """Seconds of the slowest worker's first epoch: its waits for messages, among them those for what is
    fetched only then. Its work, and its waits for other workers, are as long as in the mean of the other
    epochs, since in the first one loops are compiled and memory is allocated."""
    longest = 0.0
    for own in by_worker(timeline):
        rest = [each.epoch - each.exposed for each in own[1:] or own]
        longest = max(longest, own[0].exposed + float(np.mean(rest)))
    return longest


def warm(timeline: Timeline) -> range:
    """The places of the epochs that means are taken over: all but the run's first, which fetches what is
    fetched once. A run of one epoch has that one."""
    count = len(timeline.program.epochs)
    return range(min(1, count - 1), count)


@dataclass(frozen=True)
class Times:
    """Means over the warm epochs, in seconds. In an asynchronous run the sum over a worker's rounds is
    divided by the number of epochs that all workers' rounds make.

    epoch     the slowest worker's epoch; of an asynchronous run the time between the last updates of two
              epochs
    workers   each worker's
    named     what each worker's computing and rest are spent on, by the name of the segment
    """

    epoch: float
    workers: list[Epoch]
    named: list[dict[str, float]] = field(default_factory=list)


def times_of(timeline: Timeline, counts: Sequence[int] | np.ndarray | None = None) -> Times:
    """The means of a timeline's warm epochs.

    counts   how many epochs of a longer run each epoch stands for; None: one each, as in every
             asynchronous run
    """
    epochs = by_worker(timeline)
    weights = np.ones(max(map(len, epochs))) if counts is None else np.array(counts, float)
    if timeline.program.updates is None:
        weights = weights[(first := warm(timeline).start) :]
        slowest = [max(each.epoch for each in alike) for alike in zip(*epochs)]
        epoch = np.average(slowest[first:], weights=weights)
        count = float(weights.sum())
    else:
        # With every P-th update of the server's weights an epoch ends.
        size, total = timeline.program.workers, timeline.program.updates
        ends = [moment for moment, _ in updates(timeline)[size - 1 : total : size]]
        epoch = (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else ends[0]
        first = 1
        count = sum(len(own[first:]) for own in epochs) / len(epochs)

    def mean(own: Sequence[Epoch], name: str) -> float:
        return float(sum(getattr(each, name) * weight for each, weight in zip(own[first:], weights))) / count

    workers = [Epoch(*(mean(own, f.name) for f in fields(Epoch))) for own in epochs]
    named = [_spent(line[first:], weights / count) for line in timeline.segments]
    return Times(float(epoch), workers, named)


def _spent(epochs: Sequence[Sequence[Segment]], shares: np.ndarray) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for segments, share in zip(epochs, shares):
        for segment in segments:
            if segment.kind != "wait":
                found[segment.name] += (segment.end - segment.start) * float(share)
    return dict(found)


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
    """Follow the path back along the messages that ended a worker's wait. Returns the moment at which the
    first of them could leave, and the worker whose posting made it leave then."""
    place = going.last[worker]
    while place >= 0 and now > first:
        sent = going.sent[place]
        path = timeline.platform.path(sent.message.source, sent.message.target)
        since, cause = sent.ready, sent.cause
        along = sent.message.along
        if along >= 0 and now - going.sent[along].arrived <= path.latency + SAME * now:
            since, cause = going.sent[along].arrived, ~along  # its bytes came no faster
        ends = " to ".join(_place(timeline, end) for end in (sent.message.source, sent.message.target))
        name = f"{going.operation.display_name()}: {ends}, {path.where}"
        if since < first:
            name += ", begun in an earlier epoch"
        found.append((name, now - max(since, first)))
        now = max(since, first)
        if cause >= 0:
            return now, cause
        place = ~cause
    return now, worker


def _place(timeline: Timeline, number: int) -> str:
    return f"worker {number}" if number < timeline.program.workers else "the server"


def _named(worker: int, segment: Segment) -> str:
    layer = f", layer {segment.layer}" if segment.layer >= 0 else ""
    wait = "wait for " if segment.kind == "wait" else ""
    return f"worker {worker}: {wait}{segment.name}{layer}"
