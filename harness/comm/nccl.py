"""Bytes over NCCL, by torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from harness.comm.clock import Mark, clock_of
from harness.comm.transport import UNLIMITED, Transfer, Transport, losing_peers


class NcclTransport(Transport):
    """torch.distributed's NCCL. Making one is collective, in an open group.

    Rows travel over a communicator of their own, and so on another stream than sums: else the sum of the
    weights, for which every worker waits, would queue behind rows that nobody needs before the next epoch.
    All workers must start all operations, those of both communicators together, in the same order; otherwise
    the two communicators may wait for each other. NCCL adds in an order of its own, so the bits of a sum
    differ from those over memory and sockets.
    """

    name, on_host = "nccl", False

    def __init__(self) -> None:
        # The device is to start both communicators' operations in the order in which the host posts them.
        os.environ.setdefault("NCCL_LAUNCH_ORDER_IMPLICIT", "1")
        self.rows = Channel(dist.new_group(timeout=UNLIMITED), torch.cuda.Stream())
        self.sums = Channel(None, torch.cuda.Stream())

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
        return self._start(
            self.sums, (tensor,), lambda group: [dist.all_reduce(tensor, group=group, async_op=True)]
        )

    def _start(
        self,
        channel: Channel,
        tensors: Iterable[torch.Tensor],
        start: Callable[[dist.ProcessGroup | None], list[dist.Work]],
    ) -> Works:
        with losing_peers():
            works = start(channel.group)
            return Works(works, tuple(tensors), channel.through(works))


@dataclass
class Channel:
    """A communicator of torch.distributed.

    group     its group; None: the default group
    watcher   a stream that computes nothing: it only waits for the communicator's operations, one after the
              other, so that a mark of this stream says when an operation was through
    """

    group: dist.ProcessGroup | None
    watcher: torch.cuda.Stream

    def through(self, works: list[dist.Work]) -> Mark | None:
        """A mark of the moment at which all of `works`, the operations started last, are through; None
        outside what is timed."""
        clock = clock_of(self.watcher.device)
        with torch.cuda.stream(self.watcher):
            for work in works:
                work.wait()  # the stream waits; the host goes on
            return clock.mark(self.watcher) if clock is not None else None


class Works:
    """torch.distributed's works as one transfer (`harness.comm.transport.Transfer`).

    tensors   what NCCL's stream reads and writes; held here until `wait`, so that torch's allocator, which
              knows nothing of that stream, does not give their memory out again
    mark      the moment at which all works are through; None outside what is timed
    """

    def __init__(self, works: list[dist.Work], tensors: tuple[torch.Tensor, ...], mark: Mark | None):
        self.works, self.tensors, self.mark = works, tensors, mark
        self.ended: float | None = None

    def wait(self) -> None:
        with losing_peers():
            for work in self.works:
                work.wait()
        self.tensors = ()

    def look(self) -> None:
        if self.ended is None and self.mark is not None and self.mark.passed:
            self.ended = self.mark.seconds
