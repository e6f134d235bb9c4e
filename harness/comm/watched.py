"""A transport that counts what it is given, to check that a system sends nothing that is not counted."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from harness.base.errors import InputError
from harness.comm.recorder import Recorder
from harness.comm.transport import Transfer, Transport

# The beginnings of the names of torch.distributed's functions that move data.
MOVES = ("all_gather", "all_reduce", "all_to_all", "batch_isend_irecv", "broadcast", "gather", "irecv",
         "isend", "recv", "reduce_scatter", "scatter", "send")  # fmt: skip


class Watched:
    """Wraps `transport` and counts what this worker hands to its operations inside the train clock.

    handed   {epoch: bytes}
    """

    def __init__(self, transport: Transport, rank: int, size: int, recorder: Recorder):
        self.transport, self.rank, self.size, self.recorder = transport, rank, size, recorder
        self.handed: Counter[int] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport, name)

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        rows = sum(send) - send[self.rank]
        self._count(rows * outgoing[:1].numel() * outgoing.element_size() if len(outgoing) else 0)
        return self.transport.exchange(incoming, outgoing, receive, send)

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        if self.rank in blocks:
            own = blocks[self.rank]
            self._count((self.size - 1) * own.numel() * own.element_size())
        return self.transport.broadcast(blocks)

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        # A ring's share: each worker sends 2 (P - 1) / P of the tensor, the first ones the odd bytes.
        total = 2 * (self.size - 1) * tensor.numel() * tensor.element_size()
        self._count(total // self.size + (self.rank < total % self.size))
        return self.transport.all_reduce(tensor)

    def _count(self, size: int) -> None:
        if self.recorder.training:
            self.handed[self.recorder.epoch.epoch] += size

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this is open, a function of torch.distributed that moves data raises InputError inside the
        train clock, unless torch.distributed is what carries the transport's own bytes.
        """
        names = [name for name in dir(dist) if name.startswith(MOVES)] if self.name == "memory" else []
        with contextlib.ExitStack() as stack:
            for name in names:
                stack.enter_context(mock.patch.object(dist, name, self._refusing(name)))
            yield

    def _refusing(self, name: str) -> Any:
        function = getattr(dist, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.recorder.training:
                raise InputError(f"torch.distributed.{name} sends bytes that are not counted; use self.comm")
            return function(*args, **kwargs)

        return call
