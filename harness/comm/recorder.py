"""What a worker measures while it trains: spans, counted rows and bytes, and the three clocks.

The training thread's time is a flat line of segments. At any moment exactly one of `compute` (the model's
arithmetic), `wait` (blocked on communication) or `rest` (choosing, making and reading messages: sampling,
quantising, caching, packing; posting, bookkeeping) is running, so that an epoch's segments add up to its
train clock by construction. Communication in flight is recorded beside that line, from posting to completion.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch


@dataclass
class Span:
    """One segment of the training thread, or one communication operation in flight.

    kind     "compute" | "wait" | "rest" on the training thread; "comm" in flight
    name     what it did: "forward", "backward", "optimiser", or the operation ("exchange", "broadcast",
             "all_reduce", ...)
    layer    0-based; -1 where no layer is concerned
    start, end   seconds of CLOCK_MONOTONIC: one clock for all workers of a host
    cpu      CPU seconds of the training thread inside the segment (0 for "comm")
    bytes    handed to the transport by this worker; flops: floating-point operations counted analytically
    peers    workers this one sent to, ascending
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
        self._segment: Span | None = None
        self._segment_cpu = 0.0

    # -- clocks --

    def begin_epoch(self, number: int) -> None:
        self.epoch = Epoch(number)

    @contextlib.contextmanager
    def train(self) -> Iterator[None]:
        """Run the train clock. Opened once per epoch; segments cover it without gaps."""
        cpu = time.process_time()
        start = time.monotonic()
        self.training = True
        self._open("rest", "begin", -1, start, time.thread_time())
        try:
            yield
        finally:
            _, end, _ = self._close()
            self.training = False
            self.epoch.train = end - start
            self.epoch.cpu = time.process_time() - cpu

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

    @contextlib.contextmanager
    def inside(
        self, kind: str, name: str, layer: int = -1, *, id: str = "", blocking: bool = False
    ) -> Iterator[None]:
        """A segment inside another: what ran before goes on afterwards."""
        if not self.training:
            yield
            return
        before, segment = self._follow(kind, name, layer)
        segment.id, segment.blocking = id, blocking
        try:
            yield
        finally:
            self._follow(before.kind, before.name, before.layer)

    def flops(self, count: int) -> None:
        """Add analytically counted floating-point operations to the running segment."""
        if self._segment is not None:
            self._segment.flops += int(count)

    def _follow(self, kind: str, name: str, layer: int) -> tuple[Span, Span]:
        """End the running segment and begin the next one; gives both."""
        before, now, cpu = self._close()
        return before, self._open(kind, name, layer, now, cpu)

    def _open(self, kind: str, name: str, layer: int, start: float, cpu: float) -> Span:
        self._segment, self._segment_cpu = Span(kind, name, layer, start), cpu
        return self._segment

    def _close(self) -> tuple[Span, float, float]:
        """The segment that has ended, and the moment and the thread's CPU seconds at which the next one
        begins: asked once, for a system call can take 50 us.
        """
        now, cpu = time.monotonic(), time.thread_time()
        span, self._segment = self._segment, None
        assert span is not None, "a segment runs wherever the train clock does"
        span.end, span.cpu = now, cpu - self._segment_cpu
        self.epoch.spans.append(span)
        return span, now, cpu

    # -- communication --

    def posted(
        self, name: str, layer: int, bytes: int, peers: tuple[int, ...], id: str, blocking: bool
    ) -> Span | None:
        """Begin an operation in flight; None outside training, where nothing is counted."""
        if not self.training:
            return None
        span = Span("comm", name, layer, time.monotonic(), bytes=bytes, peers=peers, id=id, blocking=blocking)
        self.epoch.spans.append(span)
        return span

    def count(self, layer: int, direction: str, purpose: str, peer: int, rows: int, bytes: int) -> None:
        """Count what was handed to the transport for `peer`. Nothing is counted outside training."""
        if self.training and bytes:
            entry = self.epoch.sent[layer, direction, purpose, peer]
            entry[0] += int(rows)
            entry[1] += int(bytes)

    def metric(self, name: str, value: float, layer: int = -1) -> None:
        """Report a value of the system itself for this epoch."""
        self.epoch.metrics[layer, name] = float(value)


def synchronise(device: torch.device) -> None:
    """Wait for the device where its work is asynchronous, so that a clock read means what it says."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def computed(device: torch.device) -> None:
    """Wait for what the device was given to compute before now, and not for transfers under way: else the
    wait for a transfer would be charged with it."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def cpu_count() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
