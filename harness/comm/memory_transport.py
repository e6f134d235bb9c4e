"""Workers of one host exchange through memory that they share, as NCCL's do: who has a row writes it once,
and who needs it reads it once. Over loopback sockets the same row passes the kernel twice, and every
operation wakes a chain of threads, which costs more CPU than what is computed meanwhile (docs/log.md).

Nothing runs in the background: what a worker posts is there for its peers at once, and `wait` makes the
copies.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from harness.check import InputError
from harness.comm.mailbox import Mailbox, Record
from harness.comm.transport import PeerLost

RECORDS = 1024  # messages from one worker to another that may be unread
HEAD = LINE = 64  # bytes: a cache line, where regions begin
LEFT = 8  # where in the head a worker writes that it has left
ADDRESSES = 1 << 46  # bytes of addresses that all stores together may take of a process's 2^47
PATIENCE_S = 0.2  # between two looks at whether a silent peer is still there


class MemoryTransport:
    """The workers of one Linux host, each with a store of memory that the others have mapped.

    A worker writes what it sends into a region of its store and puts (offset, bytes, operation, time) into
    the receivers' mailboxes. A receiver copies it, and puts the message's number into a mailbox of the
    sender's. A region that all have read is used again.

    Making one is collective, in an open gloo group. InputError where these workers cannot share memory.
    """

    name, on_host = "memory", True

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.peers = [p for p in range(size) if p != rank]
        self.desks, stores, self.pids = _meet(rank, size)
        self.bytes = [torch.frombuffer(store, dtype=torch.uint8) for store in stores]
        # On worker a's desk lie, for each worker b, the messages from b and b's receipts for messages of a.
        self.messages, self.receipts = (
            [_box(self.desks[rank], p, kind) for p in range(size)] for kind in (0, 1)
        )
        self.to, self.receipts_to = ([_box(desk, rank, kind) for desk in self.desks] for kind in (0, 1))
        self.expected = [0] * size  # messages of each worker that operations here have asked for
        # taken from the mailbox, not yet waited for
        self.early: list[dict[int, Record]] = [{} for _ in range(size)]
        # by receiver: number of the message -> its region
        self.unread: list[dict[int, int]] = [{} for _ in range(size)]
        self.holds: dict[int, int] = {}  # region -> unread messages from it, and one while it is written
        self.lengths: dict[int, int] = {}
        self.free: dict[int, list[int]] = defaultdict(list)  # length -> regions
        self.end = 0
        self.lent: dict[int, int] = {}  # address -> region, of tensors given out to be filled
        self.operation = 0

    def close(self) -> None:
        """Tell the others that this worker has left: who still waits for it has lost a peer."""
        self.desks[self.rank][LEFT] = 1

    # -- operations --

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return torch.empty(shape, dtype=dtype)
        region = self._claim(nbytes)
        tensor = self.view(self.rank, region, nbytes, dtype).view(*shape)
        self.lent[tensor.data_ptr()] = region
        return tensor

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Copies:
        outgoing, groups = outgoing.detach(), incoming.detach().split(list(receive))
        row, self.operation = outgoing[:1].nbytes, self.operation + 1
        with self._written(outgoing) as region:
            at = region
            for p, count in enumerate(send):
                if p == self.rank and count:
                    groups[p].copy_(outgoing.split(list(send))[p])
                elif count:
                    self._post(p, region, at, count * row)
                at += count * row
        return Copies(self, [(p, groups[p]) for p in self.peers if receive[p]])

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Copies:
        self.operation += 1
        if self.rank in blocks:
            with self._written(blocks[self.rank]) as region:
                self._post_to_all(region, blocks[self.rank].nbytes)
        return Copies(
            self, [(root, block) for root, block in blocks.items() if root != self.rank and block.nbytes]
        )

    def all_reduce(self, tensor: torch.Tensor) -> Sum:
        self.operation += 1
        assert tensor.data_ptr() not in self.lent, "peers would read it while it is summed up in place"
        with self._written(tensor) as region:
            self._post_to_all(region, tensor.nbytes)
        return Sum(self, tensor)

    # -- sending --

    @contextlib.contextmanager
    def _written(self, tensor: torch.Tensor) -> Iterator[int]:
        """The region where this tensor's bytes lie to be read, the tensor's own where it was lent; held while
        this is open.
        """
        region = self.lent.pop(tensor.data_ptr(), None) if tensor.nbytes else self._claim(0)
        assert region is None or tensor.is_contiguous(), "a lent tensor is sent as it lies"
        if region is None:
            region = self._claim(tensor.nbytes)
            self.view(self.rank, region, tensor.nbytes, tensor.dtype).view(tensor.shape).copy_(
                tensor.detach()
            )
        yield region
        self._release(region)

    def _post_to_all(self, region: int, nbytes: int) -> None:
        for p in self.peers if nbytes else []:
            self._post(p, region, region, nbytes)

    def _post(self, receiver: int, region: int, at: int, nbytes: int) -> None:
        box, unread = self.to[receiver], self.unread[receiver]
        while len(unread) >= RECORDS:
            self._accept(receiver, self._await(self.receipts[receiver], receiver))
        unread[box.count] = region
        self.holds[region] += 1
        box.put(at, nbytes, self.operation, time.monotonic())

    def _claim(self, nbytes: int) -> int:
        """A region of at least so many bytes that nobody reads, held."""
        for p in self.peers:
            while self.unread[p] and (record := self.receipts[p].take()):
                self._accept(p, record)
        # few lengths, so that most regions fit again
        length = max(LINE, 1 << (nbytes - 1).bit_length()) if nbytes else LINE
        if self.free[length]:
            region = self.free[length].pop()
        else:
            region, self.end = self.end, self.end + length
            if self.end > len(self.bytes[self.rank]):
                raise MemoryError(
                    f"worker {self.rank} has {self.end:,} bytes under way, too many to share; give"
                    " transport=sockets"
                )
            self.lengths[region] = length
        self.holds[region] = 1
        return region

    def _accept(self, receiver: int, receipt: Record) -> None:
        self._release(self.unread[receiver].pop(receipt[0]))

    def _release(self, region: int) -> None:
        self.holds[region] -= 1
        if not self.holds[region]:
            self.free[self.lengths[region]].append(region)

    # -- receiving --

    def expect(self, sender: int) -> int:
        """The number of the next message from `sender` that nobody has asked for."""
        self.expected[sender] += 1
        return self.expected[sender] - 1

    def come(self, sender: int, number: int) -> Record:
        """Where message `number` of `sender` lies, its bytes, its operation and when it was posted. Waits for
        it."""
        early, box = self.early[sender], self.messages[sender]
        while number not in early:
            record = self._await(box, sender)
            early[box.count - 1] = record
        return early[number]

    def find(self, sender: int, number: int) -> Record | None:
        """As `come`, without waiting: None where the message has not come."""
        early, box = self.early[sender], self.messages[sender]
        while number not in early and (record := box.take()) is not None:
            early[box.count - 1] = record
        return early.get(number)

    def read(self, sender: int, number: int) -> None:
        """Give message `number` back."""
        del self.early[sender][number]
        self.receipts_to[sender].put(number)

    def view(self, worker: int, at: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        return self.bytes[worker][at : at + nbytes].view(dtype)

    def _await(self, box: Mailbox, peer: int) -> Record:
        while (record := box.take(PATIENCE_S)) is None:
            if self._left(peer):
                if (record := box.take()) is None:  # what it had put before it left still counts
                    raise PeerLost(f"worker {peer} has left")
                break
        return record

    def _left(self, peer: int) -> bool:
        try:
            os.kill(self.pids[peer], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is there, and somebody else's
        return bool(self.desks[peer][LEFT])


class Copies:
    """Messages under way into tensors: from each (worker, tensor) its next message, of as many bytes."""

    def __init__(self, transport: MemoryTransport, wanted: list[tuple[int, torch.Tensor]]):
        self.transport, self.operation, self.begun = transport, transport.operation, time.monotonic()
        self.parts = [(p, transport.expect(p), target) for p, target in wanted]
        self.ended: float | None = None if self.parts else self.begun

    def look(self) -> None:
        found = [self.transport.find(p, number) for p, number, _ in self.parts]
        posted = [record[-1] for record in found if record is not None]
        if posted and len(posted) == len(found):
            self.ended = max(self.begun, *posted)

    def wait(self) -> None:
        if not self.parts:
            return
        posted = max(self.begun, *(self.transport.come(p, number)[-1] for p, number, _ in self.parts))
        started = time.monotonic()
        self.take()
        # the copies are the transfer, whenever they are made
        self.ended = posted + (time.monotonic() - started)
        self.parts = []

    def take(self) -> None:
        for p, number, target in self.parts:
            target.copy_(self._rows(p, number, target))
            self.transport.read(p, number)

    def _rows(self, sender: int, number: int, like: torch.Tensor) -> torch.Tensor:
        at, nbytes, operation, _ = self.transport.come(sender, number)
        if (nbytes, operation) != (like.nbytes, self.operation):
            raise ValueError(
                f"worker {sender} sent {nbytes} bytes in operation {operation} where {like.nbytes} were to"
                f" come in {self.operation}"
            )
        return self.transport.view(sender, at, nbytes, like.dtype).view(like.shape)


class Sum(Copies):
    """A tensor's sum over workers under way, in place, in the order of ranks: the same bits everywhere."""

    def __init__(self, transport: MemoryTransport, tensor: torch.Tensor):
        self.tensor = tensor.detach()
        super().__init__(transport, [(p, self.tensor) for p in transport.peers] if tensor.nbytes else [])

    def take(self) -> None:
        own = self.tensor.clone() if self.transport.rank else self.tensor
        terms = {p: self._rows(p, number, self.tensor) for p, number, _ in self.parts} | {
            self.transport.rank: own
        }
        for k, (_, term) in enumerate(sorted(terms.items())):
            if k:
                self.tensor.add_(term)
            elif term is not self.tensor:
                self.tensor.copy_(term)
        for p, number, _ in self.parts:
            self.transport.read(p, number)


# -- meeting --


def _box(desk: mmap.mmap, worker: int, kind: int, new: bool = False) -> Mailbox:
    return Mailbox(desk, HEAD + (2 * worker + kind) * Mailbox.nbytes(RECORDS), RECORDS, new=new)


def _meet(rank: int, size: int) -> tuple[list[mmap.mmap], list[mmap.mmap], list[int]]:
    """All workers' desks (where others put records), stores (where their regions lie) and processes.

    The memory has no name: it is opened through the process that made it, and gone with the last that has it.
    """
    # A store is twice as long as there is memory at all, and all of them fit into a process: pages are taken
    # when they are written.
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    lengths = (
        HEAD + 2 * size * Mailbox.nbytes(RECORDS),
        min(2 * memory, ADDRESSES // size // mmap.PAGESIZE * mmap.PAGESIZE),
    )
    number = random.SystemRandom().getrandbits(62)
    opened: list[int] = []
    reason, maps = "", {}
    try:
        for length in lengths:
            opened.append(os.memfd_create("halobench"))
            os.ftruncate(opened[-1], length)
        maps[rank] = [mmap.mmap(descriptor, length) for descriptor, length in zip(opened, lengths)]
        maps[rank][0][:8] = number.to_bytes(8, "little")
        for p in range(size):
            _box(maps[rank][0], p, 0, new=True), _box(maps[rank][0], p, 1, new=True)
    except (AttributeError, OSError, ValueError) as error:
        reason = str(error)
    told = [torch.zeros(4, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(told, torch.tensor([os.getpid(), number, *(opened if not reason else (-1, -1))]))
    try:
        for p in range(size):
            pid, theirs, *descriptors = told[p].tolist()
            if -1 in descriptors:
                reason = reason or f"worker {p} has none to give"
            elif p != rank and not reason:
                maps[p] = [
                    _map(f"/proc/{pid}/fd/{descriptor}", length)
                    for descriptor, length in zip(descriptors, lengths)
                ]
                if maps[p][0][:8] != theirs.to_bytes(8, "little"):
                    raise OSError(f"process {pid} is another one here")
    except (OSError, ValueError) as error:
        reason = str(error)
    failed = torch.tensor([int(bool(reason))])
    dist.all_reduce(failed)  # besides, everybody has mapped everything
    for descriptor in opened:
        os.close(descriptor)
    if failed:
        raise InputError(
            f"transport=memory: the workers cannot share memory{f' ({reason})' if reason else ''}; give"
            " transport=sockets"
        )
    return (
        [maps[p][0] for p in range(size)],
        [maps[p][1] for p in range(size)],
        [int(each[0]) for each in told],
    )


def _map(path: str, length: int) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), length)
