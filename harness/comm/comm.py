"""Comm: the operations of a worker with the others (exchanges, broadcasts, sums), each counted and timed.
What goes through shared memory or a server instead (pulls.py, shared.py, store.py, parameters.py) is counted
there. No package but `harness.comm` knows torch.distributed.

There are three transports (`harness.comm.transport`): NCCL where every worker has a GPU of its own; else
memory that the workers of one host share, or gloo's sockets. These two take host memory only, so rows of a
GPU that several workers share are staged through pinned host memory.

Counted are the bytes that a worker hands to the transport, by (layer, direction, purpose, peer):

    exchange    rows * width * element size, to each peer
    broadcast   the block's bytes once for each of the P - 1 receivers, at the root
    all_gather  the worker's own bytes once for each of the P - 1 receivers, and 8 bytes for each to tell how
                many elements come (a flag: 1 byte for each, and nothing else)
    all_reduce  a worker's share, 1 / P, of 2 (P - 1) n elements: what a ring all-reduce sends in all

Under `wire=bfloat16` the element size of rows that an exchange or a broadcast rounds is 2 (`Wire.halved`).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.base.hollow import hollow
from harness.comm.crossing import Crossing
from harness.comm.flight import HaloPlan, InFlight
from harness.comm.recorder import ROUTES, Recorder, Route, Span
from harness.comm.transport import ALONE, NullTransport, PeerLost, Transfer, Transport
from harness.comm.wire import Wire
from harness.comm.work import copied, pack, stream


class Comm(Wire):
    """The transport of one worker.

    rank, size   this worker, and how many workers there are
    device       where the tensors of the model live
    recorder     gets spans and counts; outside its train clock nothing is counted
    transport    what carries the bytes
    wire         "float32": rows travel as they are. "bfloat16": exchanges and broadcasts of a layer round
                 their rows to bfloat16, and count 2 bytes per value. Sums, integers, what belongs to no
                 layer (-1), and purposes in `harness.comm.wire.EXACT` travel as they are
    """

    def __init__(
        self,
        rank: int,
        size: int,
        device: torch.device,
        recorder: Recorder,
        transport: Transport = ALONE,
        wire: str = "float32",
    ):
        assert isinstance(transport, NullTransport) == (size == 1)
        super().__init__(device, transport, wire)
        self.rank = rank
        self.size = size
        self.recorder = recorder
        recorder.follow(device)
        self._sequence = 0
        self.under_way: dict[InFlight, None] = {}  # posted and not waited for, in this order

    @property
    def peers(self) -> list[int]:
        return [p for p in range(self.size) if p != self.rank]

    # -- halo exchange --

    def exchange(self, plan: HaloPlan, h: torch.Tensor, layer: int, purpose: str = "halo") -> PendingHalo:
        """Start sending every peer those rows of `h` [n, F] that are in its halo; `wait()` on the result
        gives this worker's halo rows [m, F], in halo order.

        Differentiable: in the backward pass the halo's gradients go back to their owners, which add them up.
        Local work between this call and `wait()` overlaps with waiting for the peers, and over a network with
        the transfer too, in the forward and in the backward pass.
        """
        return PendingHalo(self, plan, h, layer, purpose)

    def start_exchange(
        self,
        rows: torch.Tensor,
        send: list[int],
        receive: list[int],
        layer: int,
        direction: str,
        purpose: str,
        slot: int = 0,
        counted: Sequence[int] | None = None,
    ) -> tuple[InFlight, torch.Tensor]:
        """Start sending `rows` [sum(send), F], grouped by receiver, and receiving rows [sum(receive), F],
        grouped by sender; returns the operation and the tensor for the received rows. Not differentiable.

        send, receive   rows to and from each worker, by rank; both ends of a message must give the same
        counted         rows to each worker as the recorder counts them; None: `send`. Given where a row of
                        `rows` is no row of the model, as in the coded messages of `harness.comm.sparse`

        Until `wait()` has returned, `rows` must not be written, nor the received rows be read. These lie in a
        buffer that the next exchange of the same (layer, direction, purpose, slot, F) writes again: whoever
        keeps several in flight gives each a slot of its own.
        """
        assert len(send) == len(receive) == self.size and len(rows) == sum(send), (
            "counts that do not fit would look like a lost peer"
        )
        width = rows.shape[1]
        received = self.buffer(
            (direction, purpose, layer, slot, width, "in"), (sum(receive), width), rows.dtype
        )
        if hollow(received) and not hollow(rows):  # of a dry run, which knows these values
            received = rows.new_empty(sum(receive), width)
        halved = self.halved(rows.dtype, layer, purpose)
        outgoing = self._wire(rows, (direction, purpose, layer, slot, "out"), halved)
        incoming = self._wire_like(received, (direction, purpose, layer, slot, "in"), halved)
        row_bytes = width * outgoing.element_size()
        sends = {p: ((counted or send)[p], send[p] * row_bytes) for p in self.peers}
        start = partial(self.transport.exchange, incoming, outgoing, receive, send)
        finish = self._unwire(received, incoming)
        return self._post("exchange", layer, direction, purpose, sends, start, finish=finish), received

    def exchange_now(self, rows: torch.Tensor, *more: Any, **named: Any) -> torch.Tensor:
        """`start_exchange`, with the same arguments, waited for at once; returns the received rows."""
        flight, received = self.start_exchange(rows, *more, **named)
        flight.wait()
        return received

    def tell(self, parts: Sequence[np.ndarray], dtype: torch.dtype) -> list[np.ndarray]:
        """Send parts[p] [k_p] to each other worker p; returns what each of them sent, by sender. What stands
        in this worker's own place is not sent: an empty array comes back there. Collective, outside the train
        clock.
        """
        receive = self.exchange_counts([len(part) for part in parts], -1, "forward", "plan")
        numpy_type = np.dtype(str(dtype).removeprefix("torch."))
        return self.send_parts([part.astype(numpy_type) for part in parts], receive, -1, "plan")

    def send_parts(
        self, parts: Sequence[np.ndarray], expected: Sequence[int], layer: int, purpose: str, slot: int = 0
    ) -> list[np.ndarray]:
        """Send parts[p] [k_p, ...] to each other worker p, from which expected[p] rows come; returns them by
        sender. What stands in this worker's own place is not sent: an empty array comes back there."""
        shape, dtype = parts[0].shape[1:], parts[0].dtype
        send = [0 if p == self.rank else len(part) for p, part in enumerate(parts)]
        receive = [0 if p == self.rank else int(count) for p, count in enumerate(expected)]
        whole = np.concatenate([part[: send[p]] for p, part in enumerate(parts)])
        outgoing = torch.from_numpy(whole.reshape(len(whole), math.prod(shape))).to(self.device)
        incoming = self.exchange_now(outgoing, send, receive, layer, "forward", purpose, slot)
        for passed in (outgoing, incoming):
            self.recorder.work(copied(passed))
        # The buffer is written again by the next exchange of its kind.
        arrived = incoming.cpu().numpy().copy().astype(dtype, copy=False).reshape(-1, *shape)
        return np.split(arrived, np.cumsum(receive)[:-1])

    # -- collectives --

    def broadcast_blocks(
        self, blocks: list[torch.Tensor], roots: Sequence[int], layer: int, direction: str, purpose: str
    ) -> InFlight:
        """Start one broadcast from each worker j in `roots`: it sends its blocks[j] [n_j, F], and all others
        receive it in theirs.
        """
        own = blocks[self.rank]
        halved = self.halved(own.dtype, layer, purpose)
        wires = {}
        for j in roots:
            made = self._wire if j == self.rank else self._wire_like
            wires[j] = made(blocks[j], (direction, purpose, layer, j), halved)
        sent = (own.shape[0], wires[self.rank].nbytes) if self.rank in roots else None
        sends = dict.fromkeys(self.peers, sent) if sent else {}

        def finish() -> None:
            for j in roots:
                if j != self.rank and (copy := self._unwire(blocks[j], wires[j])) is not None:
                    copy()

        start = partial(self.transport.broadcast, wires)
        return self._post("broadcast", layer, direction, purpose, sends, start, finish=finish)

    def all_gather_flag(self, flag: bool, layer: int) -> list[bool]:
        """Every worker's flag, in rank order; sends one byte to every peer, and waits."""
        if self.size == 1:
            return [flag]
        mine = torch.full((self.size - 1,), flag, dtype=torch.uint8, device=self._wire_device)
        theirs, ones = torch.empty_like(mine), [int(p != self.rank) for p in range(self.size)]
        sends = dict.fromkeys(self.peers, (1, 1))
        start = partial(self.transport.exchange, theirs, mine, ones, ones)
        self._post("all_gather", layer, "forward", "flags", sends, start, blocking=True).wait()
        flags = [bool(f) for f in theirs.tolist()]
        return [*flags[: self.rank], flag, *flags[self.rank :]]

    def exchange_counts(self, counts: Sequence[int], layer: int, direction: str, purpose: str) -> list[int]:
        """Tell each peer p counts[p], the number of rows that it will get (8 bytes each), and return what
        each told this worker, by rank; 0 in its own place.
        """
        told = torch.tensor([counts[p] for p in self.peers], dtype=torch.int64)[:, None]
        mine = told.to(self.device, non_blocking=True)
        ones = [int(p != self.rank) for p in range(self.size)]
        heard = self.exchange_now(mine, ones, ones, layer, direction, purpose)[:, 0].tolist()
        return [*heard[: self.rank], 0, *heard[self.rank :]]

    def all_gather(self, tensor: torch.Tensor, layer: int, purpose: str) -> list[torch.Tensor]:
        """Every worker's tensor [n_j], in rank order; the lengths n_j may differ, the types may not. Recorded
        as two exchanges, of lengths and of tensors."""
        receive = self.exchange_counts([len(tensor)] * self.size, layer, "forward", purpose)
        send = [len(tensor) if p != self.rank else 0 for p in range(self.size)]
        mine = tensor.repeat(self.size - 1)[:, None]
        theirs = self.exchange_now(mine, send, receive, layer, "forward", purpose)
        parts = list(theirs[:, 0].clone().split(receive))
        parts[self.rank] = tensor
        return parts

    def gathered(self, own: np.ndarray) -> np.ndarray:
        """All workers' values [n_j], worker 0's first. Collective, outside the train clock."""
        mine = torch.from_numpy(np.array(own)).to(self.device)
        return torch.cat(self.all_gather(mine, -1, "names")).cpu().numpy()

    def all_reduce(
        self,
        tensor: torch.Tensor,
        purpose: str,
        layer: int = -1,
        direction: str = "backward",
        wait: bool = True,
    ) -> InFlight:
        """Sum `tensor` over the workers, in place. With wait=False the caller waits for the operation that is
        returned.
        """
        total = 2 * (self.size - 1) * tensor.numel() * tensor.element_size()
        mine = total // self.size + (self.rank < total % self.size)
        wire = self._wire(tensor, (purpose, layer))
        start, finish = partial(self.transport.all_reduce, wire), self._unwire(tensor, wire)
        sends = {(self.rank + 1) % self.size: (0, mine)}
        flight = self._post(
            "all_reduce", layer, direction, purpose, sends, start, blocking=True, finish=finish
        )
        if wait:
            flight.wait()
        return flight

    @torch.no_grad()
    def sum_weights(self, tensors: Sequence[torch.Tensor], share: float = 1.0) -> None:
        """Replace each of a model's tensors by the sum over workers of share * tensor, all in one all-reduce;
        `share` is this worker's factor.
        """
        flat = torch.cat([t.reshape(-1) for t in tensors])
        if share != 1.0:
            flat *= share
        self.all_reduce(flat, purpose="weights")
        passes = 2 + (share != 1.0)  # put together, taken apart, and multiplied
        self.recorder.work(stream(1, flat.numel(), flat.element_size(), passes, passes))
        for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors])):
            tensor.copy_(part.view_as(tensor))

    def total(self, values: Sequence[float]) -> list[float]:
        """Sum each of a few numbers over the workers, in double precision. Collective; for reporting, so only
        outside the train clock.
        """
        flight, sums = self.start_total(values)
        flight.wait()
        found: list[float] = sums.tolist()
        return found

    def start_total(self, values: Sequence[float]) -> tuple[InFlight, torch.Tensor]:
        """Start `total`; the tensor holds the sums [k] once the operation has been waited for."""
        assert not self.recorder.training
        tensor = torch.tensor(list(values), dtype=torch.float64, device=self._wire_device)
        return self.all_reduce(tensor, "report", wait=False), tensor

    def barrier(self) -> None:
        """Return once all workers have called this; only outside the train clock."""
        assert not self.recorder.training
        self.total([0.0])

    # -- the common path --

    def _post(
        self,
        name: str,
        layer: int,
        direction: str,
        purpose: str,
        sends: dict[int, tuple[int, int]],
        start: Callable[[], Transfer],
        *,
        blocking: bool = False,
        finish: Callable[[], object] | None = None,
    ) -> InFlight:
        if self.size == 1:
            return InFlight(self, start(), name, layer, "", None)
        id = self.next_id()
        for peer, (rows, size) in sends.items():
            self.recorder.count(layer, direction, purpose, peer, rows, size)
        to = {p: size for p, (_, size) in sends.items() if size}
        span = self.recorder.posted(name, layer, sum(to.values()), to, id, blocking, ROUTES[name])
        try:
            transfer = start()
        except PeerLost as error:
            raise PeerLost(f"worker {self.rank} lost a peer starting {name} {id}: {error}") from error
        flight = InFlight(self, transfer, name, layer, id, span, finish)
        self.under_way[flight] = None
        return flight

    def look(self) -> None:
        """Note which of the operations in flight are through, and what peers have read."""
        self.transport.look()
        for flight in self.under_way:
            flight.look()

    def drain(self) -> None:
        """Wait for everything still in flight: nobody may leave a group while a peer waits for its rows."""
        for flight in list(self.under_way):
            flight.wait()

    @contextlib.contextmanager
    def waiting(
        self, name: str, layer: int, size: int, to: Mapping[int, int], route: Route
    ) -> Iterator[Span | None]:
        """Record an operation that the training thread does, or waits for, while this is open; gives its
        span, None outside training. size: its bytes; to: bytes by peer."""
        id = self.next_id()
        span = self.recorder.posted(name, layer, size, to, id, True, route)
        with self.recorder.inside("wait", name, layer, id=id, blocking=True):
            yield span
        if span is not None:
            span.end = time.monotonic()

    def next_id(self) -> str:
        """A new id, "epoch:number". All workers start the same operations in the same order, so each
        operation gets the same id on all of them."""
        self._sequence += 1
        return f"{self.recorder.epoch.epoch}:{self._sequence}"


class PendingHalo(Crossing):
    """A halo exchange under way; `wait()` once, for the halo rows [m, F] in halo order."""

    def __init__(self, comm: Comm, plan: HaloPlan, h: torch.Tensor, layer: int, purpose: str):
        self.comm, self.plan, self.purpose = comm, plan, purpose
        super().__init__(comm.recorder, layer, h)

    def send(self, h: torch.Tensor) -> None:
        with self.recorder.inside("rest", "pack", self.layer):
            key, shape = ("forward", self.purpose, self.layer, "pack"), (len(self.plan.send_rows), h.shape[1])
            halved = self.comm.halved(h.dtype, self.layer, self.purpose)
            self.recorder.work(pack(*shape, h.element_size()))
            packed = self.comm.outgoing(key, shape, h.dtype, halved)
            torch.index_select(h, 0, self.plan.send_rows, out=packed)
            counts = self.plan.counts("forward")
            self.flight, self.received = self.comm.start_exchange(
                packed, *counts, self.layer, "forward", self.purpose
            )

    def take(self) -> torch.Tensor:
        self.flight.wait()
        return self.received

    def send_back(self, g: torch.Tensor) -> None:
        with self.recorder.inside("rest", "pack", self.layer):
            counts = self.plan.counts("backward")
            self.flight, self.returned = self.comm.start_exchange(
                g, *counts, self.layer, "backward", self.purpose
            )

    def take_back(self) -> tuple[torch.Tensor, torch.Tensor]:
        self.flight.wait()
        # Gradients come grouped by peer, in rank order, each row at most once per peer: they are always added
        # in the same order, so sums have the same bits in every run.
        return self.plan.send_rows, self.returned
