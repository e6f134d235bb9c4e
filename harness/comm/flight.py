"""The plan of an exchange, and the operation that has been posted and can be waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from harness.comm.recorder import Recorder, Span, synchronise
from harness.comm.transport import PeerLost, Transfer


@dataclass
class HaloPlan:
    """Which rows this worker sends to whom, and how many come from whom, so that every worker ends up with
    its halo in halo order.

    send_rows   [s] int64 local rows, grouped by destination
    send_counts, receive_counts   rows to and from each of the P workers
    """

    send_rows: torch.Tensor
    send_counts: list[int]
    receive_counts: list[int]

    @property
    def num_halo(self) -> int:
        return sum(self.receive_counts)

    def counts(self, direction: str) -> tuple[list[int], list[int]]:
        """(rows to, rows from) each worker: halo rows in the direction "forward", their gradients in
        "backward", where they travel the other way."""
        ways = self.send_counts, self.receive_counts
        return ways if direction == "forward" else ways[::-1]


class Poster(Protocol):
    """Who posted an operation: this worker's `Comm`."""

    rank: int
    size: int
    device: torch.device
    recorder: Recorder
    under_way: dict[InFlight, None]  # what has been posted and not yet waited for


@dataclass(eq=False)
class InFlight:
    """One posted operation. `wait()` returns once its result may be read; the time spent in it is recorded as
    exposed communication.

    transfer   the operation as the transport sees it
    span       its record; None outside training
    finish     called when the transfer is through, as to copy the rows off their staging buffer
    """

    comm: Poster
    transfer: Transfer
    name: str
    layer: int
    id: str
    span: Span | None
    finish: Callable[[], object] | None = None

    def look(self) -> None:
        """If the operation is through, note when; do not wait for it."""
        if self.span is not None and not self.span.end:
            self.transfer.look()
            self.span.end = self.transfer.ended or 0.0

    def wait(self) -> None:
        """Return once the result may be read. Raises PeerLost where a peer is lost."""
        self.comm.under_way.pop(self, None)
        blocking = self.span is not None and self.span.blocking
        with self.comm.recorder.inside("wait", self.name, self.layer, id=self.id, blocking=blocking):
            try:
                self.transfer.wait()
            except PeerLost as error:
                raise PeerLost(
                    f"worker {self.comm.rank} lost a peer in {self.name} {self.id}: {error}"
                ) from error
            if self.finish is not None:
                self.finish()
            # Wait for the device too: some callers go on with the received rows on the host.
            if self.comm.size > 1:
                synchronise(self.comm.device)
            self.look()
            if self.span is not None and not self.span.end:
                self.span.end = time.monotonic()
