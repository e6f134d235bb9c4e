"""A bounded queue of exchanges in flight: what is pushed in epoch t arrives `depth` epochs later, behind that
much compute.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from harness.comm.comm import Comm
from harness.comm.flight import InFlight


@dataclass
class Parcel:
    """Rows that are still to be sent (by `start`), that are under way (`flight`), or that have arrived:
    `rows` [k, F].
    """

    start: Callable[[], tuple[InFlight, torch.Tensor]] | None
    flight: InFlight | None = None
    rows: torch.Tensor | None = None
    tag: torch.Tensor | None = None

    def post(self) -> None:
        # What leaves must stay untouched until it has arrived: `start` holds it until then.
        if self.start is not None and self.rows is None:
            self.flight, self.rows = self.start()

    def wait(self) -> torch.Tensor:
        self.post()
        if self.flight is not None:
            self.flight.wait()
            self.flight = self.start = None
        assert self.rows is not None
        return self.rows


class Pipe:
    """The queue of one direction of one layer.

    send, receive   rows to and from each worker, where they are the same in every epoch; `push` may give
                    others
    held            what is pushed is not sent before `post` is called. For gradients: a backward pass ends in
                    the all-reduce of the weights, which would wait behind them for the link, and nobody needs
                    them before the next backward pass
    """

    def __init__(
        self, comm: Comm, layer: int, direction: str, send: list[int], receive: list[int], held: bool = False
    ):
        self.comm, self.layer, self.direction = comm, layer, direction
        self.send, self.receive, self.held = send, receive, held
        self.queue: deque[Parcel] = deque()
        self.pushed = 0

    def outgoing(self, shape: tuple[int, int], dtype: torch.dtype, depth: int) -> torch.Tensor:
        """A tensor to fill and to push next. Where the transport can, it is sent without a further copy."""
        key = (self.direction, "halo", self.layer, self.pushed % (depth + 1), "pack")
        return self.comm.outgoing(key, shape, dtype, self.comm.halved(dtype, self.layer, "halo"))

    def push(
        self,
        rows: torch.Tensor,
        depth: int,
        send: list[int] | None = None,
        receive: list[int] | None = None,
        tag: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        """Push `rows` [sum(send), F], send them unless `held`, and take what was pushed `depth` pushes ago,
        as `take` does. `tag` comes back with these rows."""
        slot = self.pushed % (depth + 1)
        self.pushed += 1
        self.queue.append(
            Parcel(
                lambda: self.comm.start_exchange(
                    rows, send or self.send, receive or self.receive, self.layer, self.direction, "halo", slot
                ),
                tag=tag,
            )
        )
        if not self.held:
            self.post()
        return self.take(depth)

    def post(self) -> None:
        """Send what has been pushed and not been sent yet."""
        for parcel in self.queue:
            parcel.post()

    def take(self, depth: int) -> torch.Tensor | None:
        """The rows pushed `depth` pushes ago, waited for; None while nothing is that old. `tag` is then that
        parcel's.
        """
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
        self.queue = deque(
            Parcel(None, rows=rows, tag=tag) for rows, tag in zip(state["rows"], state["tags"])
        )
