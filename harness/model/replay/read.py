"""From a run's trace to the program that a replay runs.

A worker's epoch is its training thread's line of segments, cut where an operation was posted. Segments of
kind compute and rest last as long as traced. A wait lasts as long as the replay makes it; with `waits=True`
it keeps, as its tail, the time that the traced wait went on after every worker that it depends on had posted.
"""

import math
from typing import Any

import pandas as pd

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.comm.recorder import BATCH, IN_TURN, SAMPLER, SAMPLER_AHEAD, SAMPLER_THREADS, STRAGGLE, UPDATE
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


def program_of(
    trace: Trace, *, waits: bool = False, clock: str | None = None, lasts: Roofline | None = None
) -> Program:
    """The program of a run.

    waits   whether it is replayed on the machine that it was made on: waits keep their traced tails, and
            workers the moments at which they began each epoch
    clock   "wall" or "cpu": which seconds compute and rest last; None: those of `clock_of`, or wall seconds
            with `waits`
    lasts   gives the seconds of segments that say what they computed; the others, and with None all, last as
            traced

    InputError where the trace lacks what a replay needs.
    """
    spans = trace.spans
    _check(trace, spans)
    clock = clock or ("wall" if waits else clock_of(trace))
    workers = int(trace.config["workers"])
    rounds = Rounds.read(trace)
    epochs = sorted({int(number) for number in epochs_of_run(trace.epochs)["epoch"]})
    made = rounds.epochs.groupby("worker")["epoch"]
    # Each worker's spans by its own epoch or round.
    lines: list[dict[int, list[_Span]]] = [
        {int(number): [] for number in sorted(made.get_group(worker))} for worker in range(workers)
    ]
    span: _Span
    for span in spans.itertuples(index=False):
        lines[span.worker][span.epoch].append(span)
    # What is common to all workers: operations, how long traced waits went on, and what the threads beside
    # each worker's training did.
    operations, numbers = _operations(lines)
    tails = _tails(lines, operations, numbers) if waits else {}
    # On the machine itself a wait for a batch lasts as traced.
    beside = [] if waits else _beside(trace, lines)
    transport = {} if waits or clock == "wall" else _transport(trace, rounds.epochs, lines)
    first: dict[int, float] = {}  # when an epoch's first worker began it
    if waits and not rounds.asynchronous:
        first = {number: min(_begin(line[number]) for line in lines) for number in epochs}
    # Each worker's steps, epoch after epoch.
    steps: list[list[Step]] = [[] for _ in range(workers)]
    for worker, line in enumerate(lines):
        for number, spans_of_epoch in line.items():
            late = 0.0
            if first:
                late = _begin(spans_of_epoch) - first[number]
            steps[worker].append(Begin(number, late))
            if lasts is not None:
                lasts.noted = number != epochs[0] or len(line) == 1
            batches = "traced" if waits else "made" if beside else "there"
            own = _steps(spans_of_epoch, worker, numbers, tails, clock, lasts, batches)
            steps[worker] += _with_transport(own, transport.get((worker, number), 0.0))
    updates = len(epochs) * workers if rounds.asynchronous else None
    return Program(steps, operations, epochs, updates, beside, clock)


def _beside(trace: Trace, lines: list[dict[int, list[_Span]]]) -> list[Beside]:
    """The threads beside each worker's training. Their seconds of an epoch are shared out equally among its
    batches; a batch of the first epoch, in which loops are compiled, takes the mean of the others. Empty
    where the trace says of no such threads."""
    told = trace.metrics[trace.metrics["name"].isin([SAMPLER, SAMPLER_THREADS, SAMPLER_AHEAD])]
    of = dict(zip(zip(told["worker"], told["name"], told["epoch"]), told["value"]))
    if not any(name == SAMPLER_AHEAD for _, name, _ in of):
        return []
    return [_beside_one(worker, line, of) for worker, line in enumerate(lines)]


def _beside_one(worker: int, line: dict[int, list[_Span]], of: dict[tuple[int, str, int], float]) -> Beside:
    counts = [sum(s.kind == "wait" and s.name == BATCH for s in spans) for spans in line.values()]
    took = [of.get((worker, SAMPLER, epoch), 0.0) for epoch in line]
    if sum(counts[1:]):
        took[0] = counts[0] * sum(took[1:]) / sum(counts[1:])
    batches = [each for seconds, n in zip(took, counts) for each in [seconds / max(n, 1)] * n]
    threads = [of[worker, SAMPLER_THREADS, e] for e in line if (worker, SAMPLER_THREADS, e) in of]
    ahead = [of[worker, SAMPLER_AHEAD, e] for e in line if (worker, SAMPLER_AHEAD, e) in of]
    ahead = ahead[1:] or ahead
    mean = sum(ahead) / len(ahead) if ahead else 0.0
    return Beside(batches, round(max(threads, default=1)), math.ceil(mean))


def _transport(
    trace: Trace, epochs: pd.DataFrame, lines: list[dict[int, list[_Span]]]
) -> dict[tuple[int, int], float]:
    """By (worker, epoch): CPU seconds of the process that neither its training thread nor those that make
    batches took: those of the transport's threads. Empty where kernels had threads of their own."""
    attempts = (trace.resolved or {}).get("attempts") or [{}]
    if attempts[-1].get("threads") != 1:
        return {}
    told = trace.metrics[trace.metrics["name"] == SAMPLER]
    sampler = dict(zip(zip(told["worker"], told["epoch"]), told["value"]))
    found = {}
    for worker, epoch, cpu in zip(epochs["worker"], epochs["epoch"], epochs["cpu_s"]):
        own = sum(span.cpu_s for span in lines[worker][epoch] if span.kind != "comm")
        found[worker, epoch] = max(0.0, cpu - own - sampler.get((worker, epoch), 0.0))
    return found


def _with_transport(steps: list[Step], seconds: float) -> list[Step]:
    """The steps with `seconds` of the transport's threads, in equal parts after each posting."""
    posts = sum(isinstance(step, Post) for step in steps)
    if not posts or not seconds:
        return steps
    made: list[Step] = []
    for step in steps:
        made += [step, Aside(seconds / posts)] if isinstance(step, Post) else [step]
    return made


def _check(trace: Trace, spans: Any) -> None:
    run = trace.run_dir
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
    workers = int(trace.config["workers"])
    rounds = Rounds.read(trace)
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


def _operations(lines: list[dict[int, list[_Span]]]) -> tuple[list[Operation], dict[tuple[int, str], int]]:
    """All operations, and by (worker, id) which of them it is."""
    operations: list[Operation] = []
    known: dict[tuple[str, int], int] = {}
    numbers: dict[tuple[int, str], int] = {}
    for worker, line in enumerate(lines):
        for spans in line.values():
            for span in spans:
                if span.kind != "comm":
                    continue
                # An id is one operation of all workers, or of each worker its own.
                key = span.id, worker if span.route in ALONE else -1
                if key not in known:
                    known[key] = len(operations)
                    operations.append(Operation(span.name, span.layer, span.route))
                number = numbers[worker, span.id] = known[key]
                operations[number].parts[worker] = _part(worker, span)
    return operations, numbers


def _part(worker: int, span: _Span) -> dict[int, int]:
    if span.route == "own":
        return {worker: span.bytes}
    if span.route == "server":
        there, back = span.peer_bytes
        return {THERE: int(there), BACK: int(back)}
    return {int(p): int(size) for p, size in zip(span.peers, span.peer_bytes)}


def _tails(
    lines: list[dict[int, list[_Span]]], operations: list[Operation], numbers: dict[tuple[int, str], int]
) -> dict[tuple[int, int], float]:
    """By (worker, operation): how long the worker's wait went on after the last worker that it depends on had
    posted, or after the wait had begun where that was later."""
    posts: dict[int, dict[int, float]] = {}
    for worker, line in enumerate(lines):
        for spans in line.values():
            for span in spans:
                if span.kind == "comm":
                    posts.setdefault(numbers[worker, span.id], {})[worker] = span.start_s
    tails: dict[tuple[int, int], float] = {}
    for worker, line in enumerate(lines):
        for spans in line.values():
            for span in spans:
                number = numbers.get((worker, span.id)) if span.kind == "wait" else None
                if number is not None and (worker, number) not in tails:
                    there = posts[number]
                    needed = [there[w] for w in sources(operations[number], worker) if w in there]
                    tails[worker, number] = max(0.0, span.end_s - max(span.start_s, *needed))
    return tails


def sources(operation: Operation, worker: int) -> list[int]:
    """Who must have posted an operation before it is through for a worker: itself and who sends to it."""
    if operation.route == "ring":
        return sorted(operation.parts)
    if operation.route in ALONE:
        return [worker]
    return [w for w, part in operation.parts.items() if w == worker or worker in part]


def _begin(spans: list[_Span]) -> float:
    return min((span.start_s for span in spans if span.kind != "comm"), default=0.0)


def _steps(
    spans: list[_Span],
    worker: int,
    numbers: dict[tuple[int, str], int],
    tails: dict[tuple[int, int], float],
    clock: str,
    lasts: Roofline | None,
    batches: str,
) -> list[Step]:
    """The steps of a worker's epoch. An operation that was posted inside a segment of work cuts it in two.

    batches   how long a wait for a batch lasts: as "traced"; until the batch is "made"; no time, since it is
              "there"
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
        if span.kind == "wait":
            made += [Post(numbers[worker, post.id]) for post in inside]
            number = numbers.get((worker, span.id))
            if span.name == BATCH and number is None and batches == "made":
                made.append(Take(span.name, span.layer))
                continue
            tail = tails.pop((worker, number), 0.0) if number is not None else 0.0
            if span.name == BATCH and number is None and batches == "traced":
                tail = span.end_s - span.start_s
            made.append(Wait(number, span.name, span.layer, tail))
            continue
        wall = span.end_s - span.start_s
        # A straggler sleeps: as long on any device, and in no CPU second.
        seconds = wall if clock == "wall" or span.name == STRAGGLE else span.cpu_s
        if lasts is not None and span.name != STRAGGLE:
            seconds = lasts.segment(worker, span.layer, span.work, seconds, span.cpu_s)
        # The segment's seconds are divided among its pieces by their wall time.
        scale = seconds / wall if wall > 0 else 0.0
        since = span.start_s
        for post in inside:
            until = min(max(post.start_s, since), span.end_s)
            made.append(Work(span.kind, span.name, span.layer, (until - since) * scale))
            made.append(Post(numbers[worker, post.id]))
            since = until
        made.append(Work(span.kind, span.name, span.layer, (span.end_s - since) * scale))
    return made
