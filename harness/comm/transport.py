"""How bytes get from one worker to another: what Comm asks of whatever carries them, and torch.distributed as
the carrier.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist

from harness.comm.clock import Mark, clock_of

TRANSPORTS = ("auto", "memory", "sockets")
# How long an operation may take: a straggler is no error, and `patience` ends a run in which nobody moves.
UNLIMITED = datetime.timedelta(days=365)


class PeerLost(RuntimeError):
    """A peer went away in the middle of an operation: a consequence, never the first cause, of a
    failed run.
    """


class Transfer(Protocol):
    """One operation under way. PeerLost from `wait` where a peer is."""

    @property
    def ended(self) -> float | None:
        """When its last part was through, in seconds of CLOCK_MONOTONIC; None: not yet, or nobody could
        tell.
        """

    def wait(self) -> None:
        """Return once the operation's result may be read and what it sent may be written; at once where it
        has been waited for.
        """

    def look(self) -> None:
        """Set `ended` where the operation is through, without waiting for it."""


class Transport(Protocol):
    """Starts operations between workers. All workers start the same ones in the same order; they may be
    waited for in any, but for some hundreds at most that nobody has waited for yet. Nothing is
    differentiable. PeerLost where a peer is.

    name      what a trace calls it: "memory", "sockets" or "nccl"; "none" for a worker alone
    on_host   whether it takes tensors of host memory only
    """

    name: str
    on_host: bool

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor to fill and hand to `exchange`, as it is and once, that is not copied; None where there is
        no such thing.
        """

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        """Rows of `outgoing` [sum(send), ...], grouped by receiver, into `incoming` [sum(receive), ...],
        grouped by sender.
        """

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        """{root: block}: read at its root, written everywhere else."""

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        """Sum over workers, in place, in the order of ranks: the same bits on every worker and over every
        transport but NCCL, which adds in an order of its own.
        """

    def close(self) -> None:
        """Leave: who still waits for this worker has lost a peer."""


class NullTransport:
    """Of a worker alone: there is nobody to exchange with, so every operation is through at once."""

    name, on_host = "none", False

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        return None

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        return Works([], timed=False)

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        return Works([], timed=False)

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        return Works([], timed=False)

    def close(self) -> None:
        """Nobody waits for this worker."""


ALONE = NullTransport()


class TorchTransport:
    """torch.distributed: NCCL, or gloo over sockets. Making one is collective, in an open group.

    Under NCCL rows travel over a communicator of their own, and so on another stream than sums: else the sum
    of the weights, for which every worker waits, would stand behind rows that nobody needs before the next
    epoch. All workers must start operations in the same order, those of both communicators taken together:
    NCCL may otherwise wait in the one for what the other one holds up.

    Over sockets a sum has the bits that it has through memory (`OrderedSum`); over NCCL it has others.
    """

    def __init__(self) -> None:
        self.on_host = dist.get_backend() == "gloo"
        self.name = "sockets" if self.on_host else "nccl"
        self.rows, self.sums = Channel(None), Channel(None)
        if not self.on_host:
            # The device starts what both communicators were given in the order in which the host gave it.
            os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
            self.rows = Channel(dist.new_group(timeout=UNLIMITED), torch.cuda.Stream())
            self.sums = Channel(None, torch.cuda.Stream())
        self.sum: OrderedSum | None = None  # the last one, whose second half may still have to be posted

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        return None

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        return self._start(
            self.rows,
            (incoming, outgoing),
            lambda group: [
                dist.all_to_all_single(
                    incoming, outgoing, list(receive), list(send), group=group, async_op=True
                )
            ],
        )

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        return self._start(
            self.rows,
            blocks.values(),
            lambda group: [
                dist.broadcast(block, src=root, group=group, async_op=True) for root, block in blocks.items()
            ],
        )

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        if not self.on_host or not tensor.numel():
            return self._start(
                self.sums, (tensor,), lambda group: [dist.all_reduce(tensor, group=group, async_op=True)]
            )
        self._finish_sum()
        with losing_peers():
            self.sum = OrderedSum(tensor)
        return self.sum

    def close(self) -> None:
        pass  # closed with the group

    def _finish_sum(self) -> None:
        """Post the second half of the last sum, before any other operation: gloo matches operations of
        different workers by the order in which they are posted, which is then the same everywhere. It waits
        for nothing but the first half, so for workers that have not yet started the same sum."""
        if self.sum is not None:
            self.sum.spread()
            self.sum = None

    def _start(
        self,
        channel: Channel,
        tensors: Iterable[torch.Tensor],
        start: Callable[[dist.ProcessGroup | None], list[dist.Work]],
    ) -> Works:
        self._finish_sum()
        with losing_peers():
            works = start(channel.group)
            if channel.watcher is None:
                return Works(works, timed=True)
            return Works(works, timed=False, tensors=tuple(tensors), mark=channel.through(works))


@dataclass
class Channel:
    """A communicator of torch.distributed.

    group     None: the default group
    watcher   of NCCL: a stream that computes nothing and waits for the communicator's operations, one after
              the other, so that its marks say when each of them was through
    """

    group: dist.ProcessGroup | None
    watcher: torch.cuda.Stream | None = None

    def through(self, works: list[dist.Work]) -> Mark | None:
        """The moment at which all of `works`, the operations started last, are through."""
        assert self.watcher is not None
        clock = clock_of(self.watcher.device)
        with torch.cuda.stream(self.watcher):
            for work in works:
                work.wait()  # of the stream; the host goes on
            return clock.mark() if clock is not None else None


@contextlib.contextmanager
def losing_peers() -> Iterator[None]:
    """What torch.distributed raises where a peer went away, as PeerLost; any other error as it is."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        # Without the place in gloo's source in front and the advice behind.
        reason = re.sub(r"^\[[^\]]*\] | This is typically.*$", "", str(error).splitlines()[0]).rstrip(".")
        name = os.environ.get("GLOO_SOCKET_IFNAME")
        over = f"GLOO_SOCKET_IFNAME={name}" if name else "what gloo chose, as GLOO_SOCKET_IFNAME is not set"
        raise PeerLost(f"{reason} (sockets over {over})") from error


# What torch's stores, gloo and NCCL say where a connection ended or nobody answered.
LOST = re.compile(
    r"gloo/transport/|Connection (closed|reset|refused)|Broken pipe|[Tt]imeout waiting|[Ww]ait timeout"
    r"|remote process exited"
)


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed says that a peer or the store is no longer reached. Gloo's checks
    of what it is asked for fail in the files of its transport too, as "enforce fail".
    """
    known = isinstance(error, dist.DistNetworkError | dist.DistStoreError)
    return known or bool(LOST.search(str(error)) and "enforce fail" not in str(error))


class Works:
    """torch.distributed's works as one transfer.

    timed     their threads say when each was through, as gloo's do
    mark      of NCCL, whose threads cannot: when all are through; None outside what is timed
    tensors   what a stream reads and writes: held here until it is through, since torch's allocator knows
              nothing of that stream once one has waited for the works
    """

    def __init__(
        self,
        works: list[dist.Work],
        timed: bool,
        tensors: tuple[torch.Tensor, ...] = (),
        mark: Mark | None = None,
    ):
        self.works, self.pending, self.lock = works, len(works), threading.Lock()
        self.tensors, self.mark = tensors, mark
        self.ended: float | None = None if works else time.monotonic()
        if timed:
            for work in works:
                work.get_future().add_done_callback(self._completed)

    def _completed(self, _: object) -> None:
        # Runs on a transport thread: the moment the last part of the operation was through.
        with self.lock:
            self.pending -= 1
            if self.pending == 0:
                self.ended = time.monotonic()

    def wait(self) -> None:
        with losing_peers():
            for work in self.works:
                work.wait()
        self.tensors = ()

    def look(self) -> None:
        # gloo's threads have told
        if self.ended is None and self.mark is not None and self.mark.passed:
            self.ended = self.mark.seconds


class OrderedSum:
    """A tensor's sum over the workers of the default gloo group under way, in place, in the order of ranks:
    ((t_0 + t_1) + t_2) + ...  `harness.comm.memory_transport.Sum` adds in this order too, so that both give
    the same bits.

    Each of P > 2 workers adds up one block of the n elements:

        first half    every worker sends its terms of block j to worker j, which adds the P terms in order
        second half   worker j sends block j of the sum to all others

    All workers together send (P - 1) n elements in either half: 2 (P - 1) n, the traffic of a ring. Two
    workers send each other all of their terms, which are as many, and have no second half.
    """

    def __init__(self, tensor: torch.Tensor):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.tensor = tensor.detach().view(-1)
        if self.size == 2:
            self.terms = [self.tensor, torch.empty_like(self.tensor)]
            counts = [0 if p == self.rank else tensor.nbytes for p in range(2)]
            work = _exchange_bytes(self.terms[1], self.tensor, counts, counts)
            self.terms = self.terms[:: -1 if self.rank else 1]  # in the order of ranks
        else:
            # In bytes: every worker's block, and for every worker this one's block.
            parts = self.tensor.tensor_split(self.size)
            self.blocks, self.own = [part.nbytes for part in parts], [parts[self.rank].nbytes] * self.size
            terms = self.tensor.new_empty(self.size, len(parts[self.rank]))
            work = _exchange_bytes(terms.view(-1), self.tensor, self.own, self.blocks)
            self.terms = list(terms)
        self.first = Works([work], timed=False)
        self.second: Works | None = None

    def spread(self) -> None:
        """Wait for the first half, add, and post the second half; once."""
        if self.second is not None:
            return
        self.first.wait()
        if self.size == 2:
            torch.add(*self.terms, out=self.tensor)
            self.second = Works([], timed=False)
            return
        total = self.terms[0]
        for term in self.terms[1:]:
            total += term
        with losing_peers():
            work = _exchange_bytes(self.tensor, total.repeat(self.size), self.blocks, self.own)
            self.second = Works([work], timed=True)

    @property
    def ended(self) -> float | None:
        return self.second.ended if self.second is not None else None

    def wait(self) -> None:
        self.spread()
        assert self.second is not None
        self.second.wait()

    def look(self) -> None:
        pass  # the threads have told


def _exchange_bytes(
    incoming: torch.Tensor, outgoing: torch.Tensor, receive: list[int], send: list[int]
) -> dist.Work:
    into, out = incoming.view(torch.uint8), outgoing.view(torch.uint8)
    work: dist.Work = dist.all_to_all_single(into, out, receive, send, async_op=True)
    return work
