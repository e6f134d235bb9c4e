"""What a worker measures while it trains: spans, counted rows and bytes, and the three clocks (train,
evaluate, log).

The training thread's time is a sequence of segments, one after another without gaps. Each is of one kind:
`compute` (the model's arithmetic), `wait` (blocked on communication) or `rest` (choosing, making and reading
messages: sampling, quantising, caching, packing; posting, bookkeeping). So an epoch's segments add up to its
train clock by construction. Communication in flight is recorded beside them, from posting to completion.

A CUDA device works behind the training thread. A segment there lasts from the moment at which the device gets
to its beginning until it gets to its end (`harness.comm.clock`), so that kernels that are still queued when
the thread begins to wait are not charged to the wait. The moments are read when the epoch is over.
"""

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

# How the bytes of an operation travel.
#     pairs       a message to each peer
#     broadcast   one block to all others
#     ring        an all-reduce around the ring of workers; the peer is the next worker
#     take        read from each peer's memory, for which the peer does nothing
#     server      to a server and back
#     own         into the worker's own memory, where others find it
#     ""          not an operation: a segment of the training thread
Route = Literal["", "pairs", "broadcast", "ring", "take", "server", "own"]
# The routes of the operations in `harness.comm.comm`, by name.
ROUTES: Mapping[str, Route] = {
    "exchange": "pairs",
    "all_gather": "pairs",
    "broadcast": "broadcast",
    "all_reduce": "ring",
}

NOTHING = contextlib.nullcontext()


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
    peers    workers that this one sent to, ascending; on the route "take", workers whose memory it read
    route    how the bytes of an operation travel (`Route`); "" on the training thread
    peer_bytes   bytes to each of `peers`, in their order; on the route "server", bytes there and bytes back
    id       equal on every worker taking part in the same operation, unique inside a run; a wait has the id
             of what it waits for, any other segment of the training thread has ""
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
        # On a CUDA device only: its clock, the threads whose CPU seconds count, and (the span that ended, the
        # span that began, the mark of that moment), whose times are set when the epoch is over.
        self._clock: DeviceClock | None = None
        self._threads = ThreadTimes()
        self._moments: list[tuple[Span | None, Span | None, Mark]] = []
        self._unread: dict[tuple[int, str], torch.Tensor] = {}  # metrics that a device may still compute
        self._later: list[Work] = []  # work of the backward pass that no node has asked for yet (`due`)

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
        # What the device was given last belongs to the epoch. Not reached after an error: this might not end.
        if self._clock is not None:
            self._clock.wait()
        self._settle()

    def _mark(self, ended: Span | None, begun: Span | None) -> None:
        """Note that `ended` ends and `begun` begins at the moment at which the device will get here."""
        mark = self._clock.mark() if self._clock is not None else None
        if mark is not None:
            self._moments.append((ended, begun, mark))

    def _settle(self) -> None:
        """Set the times of spans from the device's marks, and read the metrics that the device computed."""
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
        """The layer of the running segment; -1 where it has none, or none is running."""
        return self._segment.layer if self._segment is not None else -1

    def work(self, *items: Work) -> None:
        """Count what the running segment computes; nothing outside training."""
        segment = self._segment
        if segment is not None:
            for item in items:
                segment.work.append(item)
                segment.flops += item.flops

    def later(self, *items: Work) -> None:
        """Have this work counted in the backward pass. The next autograd node that is made and calls `due`
        gets it, and counts it when its backward has run. A hook on each tensor would do the same at many
        times the cost."""
        if self.training:
            self._later += items

    def due(self, runs: bool = True) -> tuple[Work, ...]:
        """For an autograd node that is being made: the work given to `later` since a node last got some,
        which it counts when its backward has run. Nothing for a node that does not run (`runs`) in the
        backward pass; the work is then kept for the next one."""
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
        """End the running segment; gives it, and the moment and the CPU seconds at which the next one begins.
        The clocks are read once for both, since a system call can take 50 us.
        """
        now, cpu = time.monotonic(), self._cpu()
        span, self._segment = self._segment, None
        assert span is not None, "a segment runs wherever the train clock does"
        span.end, span.cpu = now, cpu - self._segment_cpu
        self.epoch.spans.append(span)
        return span, now, cpu

    def _cpu(self) -> float:
        """CPU seconds of the training thread; on a CUDA device, of autograd's thread too."""
        return time.thread_time() if self._clock is None else self._threads.seconds()

    # -- communication --

    def posted(
        self, name: str, layer: int, bytes: int, to: Mapping[int, int], id: str, blocking: bool, route: Route
    ) -> Span | None:
        """Begin the span of an operation in flight; None outside training, where nothing is recorded. bytes:
        all that it sends; to: bytes by peer, in ascending order of peers."""
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
        """Record an operation that another thread did for this epoch, from `start` to `end`; to: bytes by
        peer. Of the time, only what lies after the beginning of the epoch's train clock is recorded."""
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
        """Report a value of the system itself for this epoch. A tensor of one number that is given in
        training is read when the train clock has stopped, so that nobody waits for it; until then it must not
        be written.
        """
        if self.training and isinstance(value, torch.Tensor):
            self._unread[layer, name] = value
            self.epoch.metrics[layer, name] = math.nan  # keeps its place in the order of metrics
        else:
            self.epoch.metrics[layer, name] = float(value)


class _Inside:
    """A segment while this is open; no generator, since an epoch opens so many that its frames would show."""

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
        # {thread: (its CPU clock, what that said at the thread's first call, and at the latest)}
        self.threads: dict[int, tuple[int, float, float]] = {}

    def seconds(self) -> float:
        """The sum over all threads that have called this. A thread counts from its first call on."""
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


UNCOUNTED = Recorder()  # for work that is not to be counted: its train clock never runs


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what this worker's stream was given; on the CPU return at once."""
    clock = clock_of(device)
    if clock is not None:
        clock.wait()


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))
