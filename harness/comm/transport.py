"""How bytes get from one worker to another: what Comm asks of whatever carries them, and torch.distributed as
the carrier.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

TRANSPORTS = ("auto", "memory", "sockets")


class PeerLost(RuntimeError):
    """A peer went away in the middle of an operation: a consequence, never the first cause, of a
    failed run.
    """


class Transfer(Protocol):
    """One operation under way. PeerLost from `wait` where a peer is."""

    # seconds of CLOCK_MONOTONIC: when its last part was through; None: not yet, or nobody could tell
    ended: float | None

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
        """Sum over workers, in place; the same bits everywhere."""

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
    """torch.distributed's default group: NCCL, or gloo over sockets."""

    def __init__(self) -> None:
        self.on_host = dist.get_backend() == "gloo"
        self.name = "sockets" if self.on_host else "nccl"

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        return None

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        return self._start(
            lambda: [dist.all_to_all_single(incoming, outgoing, list(receive), list(send), async_op=True)]
        )

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        return self._start(
            lambda: [dist.broadcast(block, src=root, async_op=True) for root, block in blocks.items()]
        )

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        return self._start(lambda: [dist.all_reduce(tensor, async_op=True)])

    def close(self) -> None:
        pass  # closed with the group

    def _start(self, start: Callable[[], list[dist.Work]]) -> Works:
        with losing_peers():
            return Works(start(), timed=self.on_host)


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
    """torch.distributed's works as one transfer. `timed`: its threads say when each was through, which NCCL's
    cannot.
    """

    def __init__(self, works: list[dist.Work], timed: bool):
        self.works, self.pending, self.lock = works, len(works), threading.Lock()
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

    def look(self) -> None:
        pass  # the threads have told
