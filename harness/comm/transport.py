"""How bytes get from one worker to another: what Comm asks of whatever carries them."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
import torch.distributed as dist

TRANSPORTS = ("auto", "memory", "sockets")
# How long an operation may take: a straggler is no error, and `patience` ends a run in which nobody moves.
UNLIMITED = datetime.timedelta(days=365)


class PeerLost(RuntimeError):
    """A peer went away in the middle of an operation: a consequence, never the first cause, of a
    failed run.
    """


class Transfer(Protocol):
    """One operation under way. PeerLost from `wait` where a peer is.

    ended   when its last part was through, in seconds of CLOCK_MONOTONIC; None: not yet, or nobody could tell
    """

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
        return None

    def for_once(self) -> contextlib.AbstractContextManager[None]:
        """What is started while this is open will not be sent again: no memory is kept for it once it has
        been read.
        """
        return contextlib.nullcontext()

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

    def look(self) -> None:
        """Note what peers have read meanwhile of what was sent, without waiting."""
        return

    def close(self) -> None:
        """Leave: who still waits for this worker has lost a peer."""
        return


class Through:
    """An operation that was through at once."""

    def __init__(self) -> None:
        self.ended: float | None = time.monotonic()

    def wait(self) -> None:
        pass

    def look(self) -> None:
        pass


class NullTransport(Transport):
    """Of a worker alone: there is nobody to exchange with, so every operation is through at once."""

    name, on_host = "none", False

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        return Through()

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        return Through()

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        return Through()


ALONE = NullTransport()


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
    r"|remote process exited|pair closure"
)


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed says that a peer or the store is no longer reached. Gloo's checks
    of what it is asked for fail in the files of its transport too, as "enforce fail".
    """
    known = isinstance(error, dist.DistNetworkError | dist.DistStoreError)
    return known or bool(LOST.search(str(error)) and "enforce fail" not in str(error))
