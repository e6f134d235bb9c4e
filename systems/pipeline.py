"""A bounded queue of exchanges in flight: what is pushed in epoch t arrives `depth` epochs later, behind that much compute."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from harness.comm.comm import Comm, InFlight


@dataclass
class Parcel:
    """Rows that left, or have arrived: `rows` [k, F] may be read once `flight` has been waited for (None: they are here)."""

    flight: InFlight | None
    rows: torch.Tensor
    sent: torch.Tensor | None  # must stay untouched until then
    tag: torch.Tensor | None = None

    def wait(self) -> torch.Tensor:
        if self.flight is not None:
            self.flight.wait()
            self.flight = self.sent = None
        return self.rows


class Pipe:
    """One direction of one layer.

    send, receive   rows to and from each worker, where they are the same in every epoch; `push` may give others
    """

    def __init__(self, comm: Comm, layer: int, direction: str, send: list[int], receive: list[int], purpose: str = "halo"):
        self.comm, self.layer, self.direction, self.purpose = comm, layer, direction, purpose
        self.send, self.receive = send, receive
        self.queue: deque[Parcel] = deque()
        self.pushed = 0

    def push(self, rows: torch.Tensor, depth: int, send: list[int] | None = None, receive: list[int] | None = None,
             tag: torch.Tensor | None = None) -> torch.Tensor | None:
        """Post `rows` [sum(send), F] and take what was posted `depth` pushes ago, as `take` does."""
        slot = self.pushed % (depth + 1)
        self.pushed += 1
        flight, received = self.comm.start_exchange(
            rows, send or self.send, receive or self.receive, self.layer, self.direction, self.purpose, slot)
        self.queue.append(Parcel(flight, received, rows, tag))
        return self.take(depth)

    def take(self, depth: int) -> torch.Tensor | None:
        """The rows posted `depth` pushes ago, waited for; None while nothing is that old. `tag` is then that parcel's."""
        if len(self.queue) <= depth:
            return None
        parcel = self.queue.popleft()
        self.tag = parcel.tag
        return parcel.wait()

    def state_dict(self) -> dict:
        """What is in flight, waited for: a resumed run finds it arrived."""
        rows = [parcel.wait().clone() for parcel in self.queue]
        return {"pushed": self.pushed, "rows": rows, "tags": [parcel.tag for parcel in self.queue]}

    def load_state_dict(self, state: dict) -> None:
        self.pushed = state["pushed"]
        self.queue = deque(Parcel(None, rows, None, tag) for rows, tag in zip(state["rows"], state["tags"]))
