"""From a run's trace to the program that a replay runs.

A worker's epoch is its training thread's line of segments, cut where an operation was posted. Segments of
kind compute and rest last as long as traced. A wait lasts as long as the replay makes it; with `waits=True`
it keeps, as its tail, the time that the traced wait went on after every worker that it depends on had posted.
"""

import math
from typing import Any

import numpy as np

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.comm.names import BATCH, IN_TURN, SAMPLER, SAMPLER_AHEAD, SAMPLER_THREADS, STRAGGLE, UPDATE
from harness.model.replay.program import (
    ALONE,
    BACK,
    THERE,
    Aside,
    Begin,
    Beside,
    Operation,
    Post,
    Program,
    Step,
    Take,
    Wait,
    Work,
)
from harness.model.replay.roofline import Roofline
from harness.results.reader import Trace
from harness.results.rounds import Rounds, epochs_of_run
from harness.results.schema import AGAIN
from harness.results.summary import summarise

CLOCKS = ("wall", "cpu")
_Span = Any  # a row of `spans` (harness/results/schema.py); end_s is NaN of an operation that never completed


def clock_of(trace: Trace) -> str:
    """The clock that tells what a run computed: "cpu" where workers outnumbered the cores, so that a worker's
    wall second held work of others; else "wall"."""
    summary = trace.summary or summarise(trace)
    return str(summary["clock"])


def program_of(trace: Trace, clock: str, *, waits: bool = False, lasts: Roofline | None = None) -> Program:
    """The program of a run.

    clock   "wall" or "cpu": which seconds compute and rest last
    waits   whether it is replayed on the machine that it was made on: waits keep their traced tails, and
            workers the moments at which they began each epoch
    lasts   gives the seconds of segments that say what they computed; the others, and with None all, last as
            traced

    InputError where the trace lacks what a replay needs.
    """
    return _Reader(trace, clock, waits, lasts).program()


class _Reader:
    """A trace on its way to a program; parameters are those of `program_of`.

    lines        each worker's spans by its own epoch or round
    operations   all of them
    numbers      by (worker, id) which of the operations it is
    posted       by (operation, worker) when the worker posted it
    told         what a trace says of the threads beside the training, by (worker, metric, epoch)
    """

    def __init__(self, trace: Trace, clock: str, waits: bool, lasts: Roofline | None):
        self.trace, self.clock, self.waits, self.lasts = trace, clock, waits, lasts
        self.rounds = Rounds.read(trace)
        _check(trace, self.rounds)
        made = self.rounds.epochs.groupby("worker")["epoch"]
        self.lines: list[dict[int, list[_Span]]] = [
            {int(number): [] for number in sorted(made.get_group(worker))}
            for worker in range(self.rounds.workers)
        ]
        span: _Span
        for span in trace.spans.itertuples(index=False):
            self.lines[span.worker][span.epoch].append(span)
        self.operations: list[Operation] = []
        self.numbers: dict[tuple[int, str], int] = {}
        self.posted: dict[tuple[int, int], float] = {}
        self._number()
        metrics = trace.metrics[trace.metrics["name"].isin([SAMPLER, SAMPLER_THREADS, SAMPLER_AHEAD])]
        self.told = dict(zip(zip(metrics["worker"], metrics["name"], metrics["epoch"]), metrics["value"]))
        self.ended: set[tuple[int, int]] = set()  # (worker, operation) that a wait with a tail was for

    def program(self) -> Program:
        epochs = sorted({int(number) for number in epochs_of_run(self.trace.epochs)["epoch"]})
        # On the machine itself a wait for a batch lasts as traced.
        beside = [] if self.waits else self._beside()
        batches = "traced" if self.waits else "made" if beside else "there"
        transport = {} if self.waits or self.clock == "wall" else self._transport()
        # When the first worker began an epoch. Of rounds that workers make at their own pace only the first
        # one's beginning is not the end of the one before.
        met = epochs[: 1 if self.rounds.asynchronous else None] if self.waits else []
        first = {number: min(_begin(line[number]) for line in self.lines) for number in met}
        # Each worker's steps, epoch after epoch.
        steps: list[list[Step]] = [[] for _ in self.lines]
        for worker, line in enumerate(self.lines):
            for number, spans in line.items():
                late = _begin(spans) - first[number] if number in first else 0.0
                steps[worker].append(Begin(number, late))
                if self.lasts is not None:
                    self.lasts.noted = number != epochs[0] or len(line) == 1
                own = self._steps(worker, spans, batches)
                steps[worker] += _with_transport(own, transport.get((worker, number), 0.0))
        updates = len(epochs) * self.rounds.workers if self.rounds.asynchronous else None
        return Program(steps, self.operations, epochs, updates, beside, self.clock)

    def _number(self) -> None:
        """Find all operations in the workers' spans."""
        known: dict[tuple[str, int], int] = {}
        for worker, line in enumerate(self.lines):
            for span in (span for spans in line.values() for span in spans if span.kind == "comm"):
                # An id is one operation of all workers, or of each worker its own.
                key = span.id, worker if span.route in ALONE else -1
                if key not in known:
                    known[key] = len(self.operations)
                    self.operations.append(Operation(span.name, span.layer, span.route))
                number = self.numbers[worker, span.id] = known[key]
                self.operations[number].parts[worker] = _part(worker, span)
                self.posted[number, worker] = span.start_s

    def _beside(self) -> list[Beside]:
        """The threads beside each worker's training. Their seconds of an epoch are shared out equally among
        its batches; a batch of the first epoch, in which loops are compiled, takes the mean of the others.
        Empty where the trace says of no such threads."""
        if not any(name == SAMPLER_AHEAD for _, name, _ in self.told):
            return []
        found = []
        for worker, line in enumerate(self.lines):
            counts = [sum(s.kind == "wait" and s.name == BATCH for s in spans) for spans in line.values()]
            took = [self.told.get((worker, SAMPLER, epoch), 0.0) for epoch in line]
            if sum(counts[1:]):
                took[0] = counts[0] * sum(took[1:]) / sum(counts[1:])
            batches = [each for seconds, n in zip(took, counts) for each in [seconds / max(n, 1)] * n]
            threads, ahead = (
                [self.told[worker, name, epoch] for epoch in line if (worker, name, epoch) in self.told]
                for name in (SAMPLER_THREADS, SAMPLER_AHEAD)
            )
            mean = float(np.mean(ahead[1:] or ahead or [0.0]))
            found.append(Beside(batches, round(max(threads, default=1)), math.ceil(mean)))
        return found

    def _transport(self) -> dict[tuple[int, int], float]:
        """By (worker, epoch): CPU seconds of the process that neither its training thread nor those that make
        batches took: those of the transport's threads. Empty where kernels had threads of their own."""
        attempts = (self.trace.resolved or {}).get("attempts") or [{}]
        if attempts[-1].get("threads") != 1:
            return {}
        found, epochs = {}, self.rounds.epochs
        for worker, epoch, cpu in zip(epochs["worker"], epochs["epoch"], epochs["cpu_s"]):
            own = sum(span.cpu_s for span in self.lines[worker][epoch] if span.kind != "comm")
            found[worker, epoch] = max(0.0, cpu - own - self.told.get((worker, SAMPLER, epoch), 0.0))
        return found

    def _tail(self, worker: int, number: int, span: _Span) -> float:
        """How long a worker's wait went on after the last worker that it depends on had posted the operation,
        or after the wait had begun where that was later; 0 of a further wait for the same operation."""
        if not self.waits or (worker, number) in self.ended:
            return 0.0
        self.ended.add((worker, number))
        senders = self.operations[number].senders(worker)
        met = (self.posted[number, w] for w in senders if (number, w) in self.posted)
        return float(max(0.0, span.end_s - max(span.start_s, *met)))

    def _steps(self, worker: int, spans: list[_Span], batches: str) -> list[Step]:
        """The steps of a worker's epoch. An operation that is posted inside a segment cuts it in two.

        batches   how long a wait for a batch lasts: as "traced"; until the batch is "made"; no time, since it
                  is "there"
        """
        made: list[Step] = []
        posts = sorted((span for span in spans if span.kind == "comm"), key=lambda span: span.start_s)
        at = 0
        line = sorted((span for span in spans if span.kind != "comm"), key=lambda span: span.start_s)
        for place, span in enumerate(line):
            inside = []
            last = place == len(line) - 1
            # An operation posted at the start of a wait that took no time was posted before it.
            while at < len(posts) and (
                posts[at].start_s < span.end_s or posts[at].start_s <= span.start_s or last
            ):
                inside.append(posts[at])
                at += 1
            wall = span.end_s - span.start_s
            if span.kind == "wait":
                made += [Post(self.numbers[worker, post.id]) for post in inside]
                number = self.numbers.get((worker, span.id))
                if number is not None:
                    made.append(Wait(number, span.name, span.layer, self._tail(worker, number, span)))
                elif span.name == BATCH and batches == "made":
                    made.append(Take(span.name, span.layer))
                else:
                    traced = span.name == BATCH and batches == "traced"
                    made.append(Wait(None, span.name, span.layer, wall if traced else 0.0))
                continue
            # A straggler sleeps: as long on any device, and in no CPU second.
            seconds = wall if self.clock == "wall" or span.name == STRAGGLE else span.cpu_s
            if self.lasts is not None and span.name != STRAGGLE:
                seconds = self.lasts.segment(worker, span.layer, span.work, seconds, span.cpu_s)
            # The segment's seconds are divided among its pieces by their wall time.
            scale = seconds / wall if wall > 0 else 0.0
            since = span.start_s
            for post in inside:
                until = min(max(post.start_s, since), span.end_s)
                made.append(Work(span.kind, span.name, span.layer, (until - since) * scale))
                made.append(Post(self.numbers[worker, post.id]))
                since = until
            made.append(Work(span.kind, span.name, span.layer, (span.end_s - since) * scale))
        return made


def _with_transport(steps: list[Step], seconds: float) -> list[Step]:
    """The steps with `seconds` of the transport's threads, in equal parts after each posting."""
    posts = sum(isinstance(step, Post) for step in steps)
    if not posts or not seconds:
        return steps
    made: list[Step] = []
    for step in steps:
        made += [step, Aside(seconds / posts)] if isinstance(step, Post) else [step]
    return made


def _check(trace: Trace, rounds: Rounds) -> None:
    run, spans = trace.run_dir, trace.spans
    if trace.epochs.empty:
        raise InputError(f"{run} holds no finished epoch: let it run longer")
    flights = spans[spans["kind"] == "comm"]
    for column in ("start_s", "end_s", "cpu_s"):
        if spans[column][spans["kind"] != "comm"].isna().any():
            raise InputError(f"{run} cannot be replayed: its spans have a {column} that is null; {AGAIN}")
    if (flights["name"] == IN_TURN).any():
        raise InputError(
            f"{run} has a server that takes its workers' updates in turn, whose queue is not modelled; give a"
            " run with system.order=arrival"
        )
    workers = rounds.workers
    if rounds.asynchronous:
        updates = flights[flights["name"] == UPDATE].groupby("worker").size()
        for worker in range(workers):
            if updates.get(worker, 0) < 2:
                raise InputError(
                    f"{run} is asynchronous, and its trace has fewer than two updates of worker {worker},"
                    " whose rounds a replay goes on with; let it run longer"
                )
        return
    have = trace.epochs.groupby("epoch")["worker"].nunique()
    if (have != workers).any():
        short = int(have.index[have != workers][0])
        raise InputError(
            f"{run} has epoch {short + 1} of {have[short]} of {counted(workers, 'worker')} only:"
            " let it go on, or run it again"
        )


def _part(worker: int, span: _Span) -> dict[int, int]:
    if span.route == "own":
        return {worker: span.bytes}
    if span.route == "server":
        there, back = span.peer_bytes
        return {THERE: int(there), BACK: int(back)}
    return {int(p): int(size) for p, size in zip(span.peers, span.peer_bytes)}


def _begin(spans: list[_Span]) -> float:
    return min((span.start_s for span in spans if span.kind != "comm"), default=0.0)
