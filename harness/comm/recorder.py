"""What a worker measures while it trains: spans, counted rows and bytes, and the three clocks.

The training thread's time is a flat line of segments. At any moment exactly one of `compute` (the model's
arithmetic), `wait` (blocked on communication) or `rest` (choosing, making and reading messages: sampling,
quantising, caching, packing; posting, bookkeeping) is running, so that an epoch's segments add up to its
train clock by construction. Communication in flight is recorded beside that line, from posting to completion.

A CUDA device works behind the training thread. A segment there lasts from the moment at which the device gets
to its beginning until it gets to its end (`harness.comm.clock`), so that kernels that are still queued when
the thread begins to wait are not charged to the wait. The moments are read when the epoch is over.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from harness.comm.clock import DeviceClock, Mark, clock_of
from harness.comm.work import Work

# How the bytes of an operation travel: a message to each peer; one block to all others; an all-reduce around
# the ring of workers, whose peer is the next one; a message from each peer, which does nothing for it; to a
# server and back; into the worker's own memory, where others find it.
Route = Literal["", "pairs", "broadcast", "ring", "take", "server", "own"]
# Of the operations of `harness.comm.comm`, by name.
ROUTES: Mapping[str, Route] = {
    "exchange": "pairs",
    "all_gather": "pairs",
    "broadcast": "broadcast",
    "all_reduce": "ring",
}

NOTHING = contextlib.nullcontext()
# Names in a trace that a replay goes by: of the operation that hands the parameter server an update, which it
# takes as it comes; the same of a server that makes workers wait for their turns; and of the segment in which
# a worker is held up on purpose.
UPDATE, IN_TURN, STRAGGLE = "update", "update in turn", "straggle"
# A wait for a batch that threads beside the training make. Metrics: their CPU seconds for what the epoch
# took, how many they are, and how many batches they begin beyond the one that is asked for.
BATCH = "batch"
SAMPLER, SAMPLER_THREADS, SAMPLER_AHEAD = "sampler_s", "sampler_threads", "sampler_ahead"


@dataclass
class Span:
    """One segment of the training thread, or one communication operation in flight.

    kind     "compute" | "wait" | "rest" on the training thread; "comm" in flight
    name     what it did: "forward", "backward", "optimiser", or the operation ("exchange", "broadcast",
             "all_reduce", ...)
    layer    0-based; -1 where no layer is concerned
    start, end   seconds of CLOCK_MONOTONIC: one clock for all workers of a host
    cpu      CPU seconds of the training thread inside the segment (0 for "comm"); on a CUDA device, of
             autograd's thread too, on which the backward pass runs
    bytes    handed to the transport by this worker; flops: operations of its products, in closed forms
    work     what was computed in the segment, in order (`harness.comm.work`)
    peers    workers this one sent to, ascending
    route    how the bytes of an operation travel (`Route`); "" on the training thread
    peer_bytes   bytes to each of `peers`, in their order; of "server" bytes there and bytes back
    id       equal on every worker taking part in the same operation, unique inside a run; "" on the training
             thread, where a wait carries the id of what it waits for
    blocking True where the training thread waited from posting on
    """

    kind: str
    name: str
    layer: int
    start: float
    end: float = 0.0
    cpu: float = 0.0
    bytes: int = 0
    flops: int = 0
    peers: tuple[int, ...] = ()
    id: str = ""
    blocking: bool = False
    route: Route = ""
    peer_bytes: tuple[int, ...] = ()
    work: list[Work] = field(default_factory=list)


@dataclass
class Epoch:
    """Everything measured in one epoch of one worker; times in seconds."""

    epoch: int
    train: float = 0.0  # the train clock: the epoch's time
    evaluate: float = 0.0
    log: float = 0.0
    cpu: float = 0.0  # CPU seconds of the whole process inside the train clock (transport threads included)
    spans: list[Span] = field(default_factory=list)
    # (layer, direction, purpose, peer) -> [rows, bytes] sent by this worker
    sent: dict[tuple[int, str, str, int], list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )
    # (layer, name) -> value: what a system reports of itself (flags, hit rates, thresholds, ...)
    metrics: dict[tuple[int, str], float] = field(default_factory=dict)


class Recorder:
    """The clock of one worker. Only what runs inside `train()` is timed as training and counted as
    communication.
    """

    def __init__(self) -> None:
        self.epoch = Epoch(-1)
        self.training = False
        self._began = 0.0  # when the train clock did
        self._segment: Span | None = None
        self._segment_cpu = 0.0
        # Of a device: its clock, whose CPU seconds count, and what ended or began at which of its moments.
        self._clock: DeviceClock | None = None
        self._threads = ThreadTimes()
        self._moments: list[tuple[Span | None, Span | None, Mark]] = []
        self._unread: dict[tuple[int, str], torch.Tensor] = {}  # metrics that a device may still compute
        self._later: list[Work] = []  # of the backward pass, not yet a node's to count

    def follow(self, device: torch.device) -> None:
        """Time what is done on this device from the next epoch on."""
        self._clock = clock_of(device)

    # -- clocks --

    def begin_epoch(self, number: int) -> None:
        self.epoch = Epoch(number)

    @contextlib.contextmanager
    def train(self) -> Iterator[None]:
        """Run the train clock. Opened once per epoch; segments cover it without gaps."""
        if self._clock is not None:
            self._clock.tie()
        self._moments, self._unread, self._later = [], {}, []
        cpu = time.process_time()
        start = self._began = time.monotonic()
        self.training = True
        self._mark(None, self._open("rest", "begin", -1, start, self._cpu()))
        try:
            yield
        finally:
            closed, end, _ = self._close()
            self._mark(closed, None)
            self.training = False
            self.epoch.train = end - start
            self.epoch.cpu = time.process_time() - cpu
        # What the device was given last belongs to the epoch. A wait after an error might not end.
        if self._clock is not None:
            self._clock.wait()
        self._settle()

    def _mark(self, ended: Span | None, begun: Span | None) -> None:
        """Both at the moment at which the device will get here."""
        mark = self._clock.mark() if self._clock is not None else None
        if mark is not None:
            self._moments.append((ended, begun, mark))

    def _settle(self) -> None:
        """Read what the device has been through since the epoch began, and the values that it computed."""
        for ended, begun, mark in self._moments:
            at = mark.seconds
            if ended is not None:
                ended.end = at
            if begun is not None:
                begun.start, begun.end = at, begun.end and max(begun.end, at)
        if self._moments:
            self.epoch.train = self._moments[-1][2].seconds - self._moments[0][2].seconds
        self._moments = []
        for key, value in self._unread.items():
            self.epoch.metrics[key] = float(value)
        self._unread = {}

    @contextlib.contextmanager
    def clock(self, name: str) -> Iterator[None]:
        """Run the "evaluate" or the "log" clock: outside training, nothing counted."""
        assert not self.training, "evaluation and logging stay outside the train clock"
        start = time.monotonic()
        try:
            yield
        finally:
            setattr(self.epoch, name, getattr(self.epoch, name) + time.monotonic() - start)

    # -- the training thread's line --

    def segment(self, kind: str, name: str, layer: int = -1) -> None:
        """End the running segment and begin the next one. Nothing happens outside training."""
        if not self.training:
            return
        running = self._segment
        if running is not None and (running.kind, running.name, running.layer) == (kind, name, layer):
            return
        self._follow(kind, name, layer)

    def inside(
        self, kind: str, name: str, layer: int = -1, *, id: str = "", blocking: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        """A segment inside another: what ran before goes on afterwards."""
        return _Inside(self, kind, name, layer, id, blocking) if self.training else NOTHING

    @property
    def layer(self) -> int:
        """Of the running segment; -1: none."""
        return self._segment.layer if self._segment is not None else -1

    def work(self, *items: Work) -> None:
        """Count what the running segment computes; nothing outside training."""
        segment = self._segment
        if segment is not None:
            for item in items:
                segment.work.append(item)
                segment.flops += item.flops

    def later(self, *items: Work) -> None:
        """Count this in the backward pass: right after the node of its graph that is made next, and that asks
        by `due`, has run. A hook of each tensor would say so too, at many times the price."""
        if self.training:
            self._later += items

    def due(self, runs: bool = True) -> tuple[Work, ...]:
        """What has come by `later` since this was asked last: for a node to count when it has run, where it
        `runs` in the backward pass at all."""
        if not (runs and self._later):
            return ()
        due, self._later = tuple(self._later), []
        return due

    def _follow(self, kind: str, name: str, layer: int) -> tuple[Span, Span]:
        """End the running segment and begin the next one; gives both."""
        before, now, cpu = self._close()
        after = self._open(kind, name, layer, now, cpu)
        self._mark(before, after)
        return before, after

    def _open(self, kind: str, name: str, layer: int, start: float, cpu: float) -> Span:
        self._segment, self._segment_cpu = Span(kind, name, layer, start), cpu
        return self._segment

    def _close(self) -> tuple[Span, float, float]:
        """The segment that has ended, and the moment and the CPU seconds at which the next one begins: asked
        once, for a system call can take 50 us.
        """
        now, cpu = time.monotonic(), self._cpu()
        span, self._segment = self._segment, None
        assert span is not None, "a segment runs wherever the train clock does"
        span.end, span.cpu = now, cpu - self._segment_cpu
        self.epoch.spans.append(span)
        return span, now, cpu

    def _cpu(self) -> float:
        """CPU seconds of who does the training thread's work."""
        return time.thread_time() if self._clock is None else self._threads.seconds()

    # -- communication --

    def posted(
        self,
        name: str,
        layer: int,
        bytes: int,
        to: Mapping[int, int],
        id: str,
        blocking: bool,
        route: Route,
    ) -> Span | None:
        """Begin an operation in flight; None outside training, where nothing is counted. to: bytes by peer,
        ascending."""
        if not self.training:
            return None
        span = Span("comm", name, layer, time.monotonic(), bytes=bytes, id=id, blocking=blocking, route=route)
        span.peers, span.peer_bytes = tuple(to), tuple(to.values())
        self.epoch.spans.append(span)
        # It cannot begin before the device gets here: what it sends is not there yet.
        self._mark(None, span)
        return span

    def done(
        self, name: str, layer: int, to: Mapping[int, int], id: str, start: float, end: float, route: Route
    ) -> None:
        """An operation that another thread has done for this epoch, with bytes by peer. What it did before
        the epoch's train clock began took no time of it."""
        if self.training:
            moments, size = (max(start, self._began), max(end, self._began)), sum(to.values())
            span = Span("comm", name, layer, *moments, bytes=size, id=id, route=route)
            span.peers, span.peer_bytes = tuple(to), tuple(to.values())
            self.epoch.spans.append(span)

    def count(self, layer: int, direction: str, purpose: str, peer: int, rows: int, bytes: int) -> None:
        """Count what was handed to the transport for `peer`. Nothing is counted outside training."""
        if self.training and bytes:
            entry = self.epoch.sent[layer, direction, purpose, peer]
            entry[0] += int(rows)
            entry[1] += int(bytes)

    def metric(self, name: str, value: float | torch.Tensor, layer: int = -1) -> None:
        """Report a value of the system itself for this epoch. A tensor of one number is read when the epoch
        is over, so that nobody waits for it; it must not be written after this.
        """
        if self.training and isinstance(value, torch.Tensor):
            self._unread[layer, name] = value
            self.epoch.metrics[layer, name] = math.nan  # in its place among the others
        else:
            self.epoch.metrics[layer, name] = float(value)


class _Inside:
    """A segment while this is open. An epoch opens so many that a generator's frame for each would show."""

    __slots__ = ("before", "blocking", "id", "recorder", "what")

    def __init__(self, recorder: Recorder, kind: str, name: str, layer: int, id: str, blocking: bool):
        self.recorder, self.what, self.id, self.blocking = recorder, (kind, name, layer), id, blocking

    def __enter__(self) -> None:
        self.before, segment = self.recorder._follow(*self.what)
        segment.id, segment.blocking = self.id, self.blocking

    def __exit__(self, *error: object) -> None:
        before = self.before
        self.recorder._follow(before.kind, before.name, before.layer)


class ThreadTimes:
    """CPU seconds of the threads that have asked for them, added up: of the training thread, and of the one
    on which autograd runs the backward pass of a device while the training thread waits for it.
    """

    def __init__(self) -> None:
        self.ended = 0.0  # of threads that are gone
        self.threads: dict[int, tuple[int, float, float]] = {}  # its clock, seconds at first and by now

    def seconds(self) -> float:
        """Grows from call to call. What a thread did before its first call counts nowhere."""
        caller = threading.get_ident()
        if caller not in self.threads:
            clock = time.pthread_getcpuclockid(caller)
            begun = time.clock_gettime(clock)
            self.threads[caller] = clock, begun, begun
        for ident, (clock, begun, now) in list(self.threads.items()):
            try:
                self.threads[ident] = clock, begun, time.clock_gettime(clock)
            except OSError:  # the thread is gone
                self.ended += now - begun
                del self.threads[ident]
        return self.ended + sum(now - begun for _, begun, now in self.threads.values())


UNCOUNTED = Recorder()  # whose train clock never runs: of what nobody counts


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what its current stream was given; on the CPU that is at once."""
    clock = clock_of(device)
    if clock is not None:
        clock.wait()


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
