"""How bytes get from one worker to another: the interface between Comm and its transports."""

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
# The time limit of torch's operations, which is none: a straggler is no error, and a run in which no worker
# makes progress is ended by `patience` (`harness.comm.watch`).
UNLIMITED = datetime.timedelta(days=365)


class PeerLost(RuntimeError):
    """A peer went away in the middle of an operation. It is a consequence of a failure on another worker,
    never its cause.
    """


class Transfer(Protocol):
    """One operation under way. `wait` raises PeerLost where a peer is lost.

    ended   when its last part was through, in seconds of CLOCK_MONOTONIC; None: not yet, or it is not known
    """

    ended: float | None

    def wait(self) -> None:
        """Return once the operation's result may be read and the tensors that it sent may be written again. A
        second call returns at once.
        """

    def look(self) -> None:
        """Set `ended` if the operation is through; do not wait for it."""


class Transport(Protocol):
    """Starts operations between workers. All workers must start the same operations in the same order. They
    may wait for them in any order, as long as no more than some hundreds are started and not waited for.
    Nothing is differentiable. Raises PeerLost where a peer is lost.

    name      what a trace calls it: "memory", "sockets" or "nccl"; "none" for a worker alone
    on_host   whether it takes tensors of host memory only
    """

    name: str
    on_host: bool

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        """A tensor that lies where the transport sends from. Whoever fills it and hands it to `exchange`, as
        it is and once, saves a copy. None where the transport has no such memory.
        """
        return None

    def for_once(self) -> contextlib.AbstractContextManager[None]:
        """Tell that what is started while this is open is sent once in a run: the transport keeps no memory
        for it once it has been read.
        """
        return contextlib.nullcontext()

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        """Start sending the rows of `outgoing` [sum(send), ...], grouped by receiver, and receiving rows into
        `incoming` [sum(receive), ...], grouped by sender.
        """

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        """Start one broadcast per {root: block}: the block is read at its root and written on all others."""

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        """Start summing a tensor over the workers, in place, in the order of ranks: the bits are the same on
        every worker and over every transport but NCCL, which adds in an order of its own.
        """

    def look(self) -> None:
        """Note, without waiting, which of the sent messages peers have read by now."""
        return

    def close(self) -> None:
        """Leave: workers that still wait for this one get PeerLost."""
        return


class Through:
    """An operation that was through when it was started."""

    def __init__(self) -> None:
        self.ended: float | None = time.monotonic()

    def wait(self) -> None:
        pass

    def look(self) -> None:
        pass


class NullTransport(Transport):
    """The transport of a worker alone: it has no peers, so every operation does nothing."""

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
    """Turn what torch.distributed raises where a peer went away into PeerLost; let other errors pass."""
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        # Cut the place in gloo's source, at the beginning, and gloo's advice, at the end.
        reason = re.sub(r"^\[[^\]]*\] | This is typically.*$", "", str(error).splitlines()[0]).rstrip(".")
        if "NCCL" in reason:  # it has an interface of its own choice, or no socket
            raise PeerLost(reason) from error
        name = os.environ.get("GLOO_SOCKET_IFNAME")
        over = f"GLOO_SOCKET_IFNAME={name}" if name else "what gloo chose, as GLOO_SOCKET_IFNAME is not set"
        raise PeerLost(f"{reason} (sockets over {over})") from error


# What torch's stores, gloo and NCCL say where a connection ended or nobody answered.
LOST = re.compile(
    r"gloo/transport/|Connection (closed|reset|refused)|Broken pipe|[Tt]imeout waiting|[Ww]ait timeout"
    r"|remote process exited|pair closure"
)


def is_lost(error: RuntimeError) -> bool:
    """Whether an error of torch.distributed says that a peer or the store can no longer be reached. An error
    with "enforce fail" does not, though it names the same files: gloo's transport has refused its arguments.
    """
    known = isinstance(error, dist.DistNetworkError | dist.DistStoreError)
    return known or bool(LOST.search(str(error)) and "enforce fail" not in str(error))
