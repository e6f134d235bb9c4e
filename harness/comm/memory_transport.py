"""Workers of one Linux host exchange tensors through memory that they share.

Each worker owns a piece of memory, which all workers have mapped (`harness.comm.segments`). It begins with
the worker's inbox: from every sender one ring of messages and one ring of acknowledgements
(`harness.comm.ring`). Behind it are the worker's data, the bytes that it sends.

One message, from worker a to worker b:

    1. a writes the tensor into a free region of its own data.
    2. a puts a record into its message ring in b's inbox: where the bytes lie, how many, of which operation,
       and when.
    3. b takes the record, copies the bytes from a's data into its own tensor, and puts the message's
       number into its acknowledgement ring in a's inbox.
    4. a takes the acknowledgement. Once all receivers of a region have acknowledged it, the region is free.

A socket from a to b would do the same, but for who copies: its bytes are copied into the kernel and out of
it, while here b copies them itself from where a wrote them.

Why it is correct:

- b never reads bytes that are not yet written: a puts the record after the bytes, and a ring's semaphore
  orders memory.
- a never overwrites bytes that b still reads: b acknowledges after its copy, and only then a uses the region
  again.
- No ring overflows: a sends b nothing more while `RECORDS` messages to b are unacknowledged. Neither, then,
  are there more acknowledgements than that.
- b knows what a message is for without a tag: all workers start the same operations in the same order, so
  the k-th message that b's operations ask of a is the k-th that a has sent to b. The operation's number in
  the record is a check of that.
- Nobody waits for ever for a worker that is gone: a worker that waits looks every `PATIENCE_S` seconds
  whether the other process is alive and has not said that it left.

Nothing runs in the background. What a worker posts can be read by the others at once, and `wait` makes the
copies. Over loopback sockets the same row passes the kernel twice, and every operation wakes a chain of
threads, which costs more CPU than what is computed meanwhile (docs/log.md).
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from harness.comm.meeting import Meeting
from harness.comm.ring import Record, Ring
from harness.comm.segments import (
    ACKNOWLEDGEMENTS,
    LEFT,
    LINE,
    MESSAGES,
    RECORDS,
    inbox_bytes,
    pages,
    ring,
    share,
)
from harness.comm.transport import PeerLost

PATIENCE_S = 0.2  # between two looks at whether a silent peer is still there


class MemoryTransport:
    """The transport of workers that share memory, as the module's docstring describes.

    Making one is collective. InputError where these workers cannot share memory.
    """

    name, on_host = "memory", True

    def __init__(self, meeting: Meeting):
        self.rank, self.size = rank, size = meeting.rank, meeting.size
        self.peers = [p for p in range(size) if p != rank]
        self.memory, self.pids = share(meeting)
        # The memory, by worker, as tensors and as numpy arrays. Bytes are copied with numpy: for small
        # messages, calling a torch operation takes longer than the copy itself.
        self.bytes = [torch.frombuffer(each, dtype=torch.uint8) for each in self.memory]
        self.arrays = [each.numpy() for each in self.bytes]
        own = self.memory[rank]
        # By worker: the rings that it fills in this worker's inbox, and those that this worker fills in its.
        self.messages = [ring(own, p, MESSAGES) for p in range(size)]
        self.acknowledgements = [ring(own, p, ACKNOWLEDGEMENTS) for p in range(size)]
        self.messages_to = [ring(inbox, rank, MESSAGES) for inbox in self.memory]
        self.acknowledgements_to = [ring(inbox, rank, ACKNOWLEDGEMENTS) for inbox in self.memory]
        # Receiving, by sender: how many messages this worker's operations have asked for so far; and, by the
        # message's number, the records that were taken from the ring and whose bytes are not copied yet.
        self.expected = [0] * size
        self.early: list[dict[int, Record]] = [{} for _ in range(size)]
        # Sending, by receiver: {number of an unacknowledged message: its region}.
        self.unread: list[dict[int, int]] = [{} for _ in range(size)]
        # The own data. A region is known by the offset in the memory where it begins.
        self.holds: dict[int, int] = {}  # {region: its unacknowledged messages, plus 1 while it is written}
        self.lengths: dict[int, int] = {}  # {region: its length}
        self.free: dict[int, list[int]] = defaultdict(list)  # {length: the free regions of this length}
        self.end = inbox_bytes(size)  # where the part begins that no region has used yet
        self.once = False  # whether `for_once` is open: what is sent now is sent once in a run
        self.apart: set[int] = set()  # regions of whole pages, made while `once`
        self.passing: set[int] = set()  # those of `apart` whose pages go back to the system when read
        self.lent: dict[int, int] = {}  # {address of a tensor given out by `outgoing`: its region}
        self.operation = 0

    def close(self) -> None:
        """Tell the others that this worker has left: a worker that still waits for it has lost a peer."""
        self.memory[self.rank][LEFT] = 1

    # -- operations --

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A tensor inside a region of this worker's data. Whoever fills it and hands it to `exchange`
        has written it where receivers read it, so step 1 copies nothing."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes:
            return torch.empty(shape, dtype=dtype)
        region = self._claim(nbytes)
        tensor = self.view(self.rank, region, nbytes, dtype).view(*shape)
        self.lent[tensor.data_ptr()] = region
        return tensor

    @contextlib.contextmanager
    def for_once(self) -> Iterator[None]:
        """Give the pages of regions claimed while this is open back to the system once they have been read.
        Kept pages would count as memory of their sender and of every reader."""
        before, self.once = self.once, True
        try:
            yield
        finally:
            self.once = before

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Copies:
        row, row_in = (each.itemsize * math.prod(each.shape[1:]) for each in (outgoing, incoming))
        self.operation += 1
        # Write all rows once, into one region. Tell each receiver that gets rows which part of the region is
        # its own; copy the worker's rows for itself at once. Expect one message from each worker that sends
        # rows here: `receive` here is `send` there.
        region, into = self._written(outgoing), _array(incoming)
        groups, at, end = [], region, 0
        for p, (count, come) in enumerate(zip(send, receive)):
            begin, end = end, end + come * row_in
            if p == self.rank:
                into[begin:end] = self.arrays[p][at : at + count * row]
            elif come:
                groups.append((p, into[begin:end]))
            if p != self.rank and count:
                self._post(p, region, at, count * row)
            at += count * row
        self._release(region)
        return Copies(self, groups)

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Copies:
        self.operation += 1
        # A root writes its block once, and tells all others of the same region.
        if self.rank in blocks:
            self._post_to_all(blocks[self.rank])
        wanted = {root: _array(block) for root, block in blocks.items() if root != self.rank and block.nbytes}
        return Copies(self, list(wanted.items()))

    def all_reduce(self, tensor: torch.Tensor) -> Sum:
        self.operation += 1
        assert tensor.data_ptr() not in self.lent, "peers would read it while it is summed up in place"
        # Every worker shows its tensor to all others, and every worker adds up all of them (`Sum`). The
        # others read a copy in the data, so the sum may be written into the tensor while they still
        # read.
        self._post_to_all(tensor)
        return Sum(self, tensor)

    # -- sending --

    def look(self) -> None:
        """Step 4: take the acknowledgements that have come. Elsewhere this worker takes them only where it
        needs a region or room in a ring."""
        for p in self.peers:
            while self.unread[p] and (record := self.acknowledgements[p].take()):
                self._accept(p, record)

    def _written(self, tensor: torch.Tensor) -> int:
        """Step 1: write a tensor's bytes into a region, unless `outgoing` gave the tensor, which lies in one;
        returns the region.

        It is held until the caller releases it: an acknowledgement between two posts must not free it.
        """
        region = self.lent.pop(tensor.data_ptr(), None) if tensor.nbytes else self._claim(0)
        assert region is None or tensor.is_contiguous(), "a lent tensor is sent as it lies"
        if region is None:
            region = self._claim(tensor.nbytes)
            self.arrays[self.rank][region : region + tensor.nbytes] = _array(tensor.contiguous())
        return region

    def _post_to_all(self, tensor: torch.Tensor) -> None:
        region = self._written(tensor)
        for p in self.peers if tensor.nbytes else []:
            self._post(p, region, region, tensor.nbytes)
        self._release(region)

    def _post(self, receiver: int, region: int, at: int, nbytes: int) -> None:
        """Step 2: tell `receiver` that `nbytes` bytes lie at `at`, inside `region`."""
        messages, unread = self.messages_to[receiver], self.unread[receiver]
        # A ring has room while fewer than RECORDS messages are unacknowledged; else wait for one to be.
        while len(unread) >= RECORDS:
            self._accept(receiver, self._await(self.acknowledgements[receiver], receiver))
        # Hold the region before the receiver can acknowledge the message.
        unread[messages.count] = region
        self.holds[region] += 1
        messages.put(at, nbytes, self.operation, time.monotonic())

    def _claim(self, nbytes: int) -> int:
        """A region of at least `nbytes` bytes that nobody reads; held, so that it is not given out again."""
        # Lengths are powers of two. There are few of them, so a freed region soon fits another tensor.
        length = max(LINE, 1 << (nbytes - 1).bit_length()) if nbytes else LINE
        if not self.free[length]:
            self.look()
        if self.free[length]:
            region = self.free[length].pop()
        else:
            if self.once:
                # Make the region of whole pages: only whole pages can be given back to the system.
                length, self.end = pages(length), pages(self.end)
                self.apart.add(self.end)
            region, self.end = self.end, self.end + length
            if self.end > len(self.bytes[self.rank]):
                raise MemoryError(
                    f"worker {self.rank} has {self.end:,} bytes under way, too many to share; give"
                    " transport=sockets"
                )
            self.lengths[region] = length
        if self.once and region in self.apart:
            self.passing.add(region)
        self.holds[region] = 1
        return region

    def _accept(self, receiver: int, acknowledgement: Record) -> None:
        """Step 4: `receiver` has copied one message, and does not need its region any more."""
        self._release(self.unread[receiver].pop(acknowledgement[0]))

    def _release(self, region: int) -> None:
        self.holds[region] -= 1
        if self.holds[region]:
            return
        if region in self.passing:
            self.passing.remove(region)
            with contextlib.suppress(AttributeError, OSError):  # files that cannot lose pages keep them
                # Free its pages for all processes that have them mapped; a later write there gets new pages.
                self.memory[self.rank].madvise(mmap.MADV_REMOVE, region, self.lengths[region])
        self.free[self.lengths[region]].append(region)

    # -- receiving --

    def expect(self, sender: int) -> int:
        """The number of the next message from `sender` that no operation has asked for."""
        self.expected[sender] += 1
        return self.expected[sender] - 1

    def come(self, sender: int, number: int) -> Record:
        """Wait for message `number` of `sender`: where its bytes lie, how many they are, its operation, and
        when it was posted."""
        # Operations may be waited for in any order: records of earlier messages are kept in `early`.
        early, messages = self.early[sender], self.messages[sender]
        while number not in early:
            record = self._await(messages, sender)
            early[messages.count - 1] = record
        return early[number]

    def find(self, sender: int, number: int) -> Record | None:
        """As `come`, without waiting: None where the message has not come."""
        early, messages = self.early[sender], self.messages[sender]
        while number not in early and (record := messages.take()) is not None:
            early[messages.count - 1] = record
        return early.get(number)

    def acknowledge(self, sender: int, number: int) -> None:
        """End of step 3: message `number` has been copied, and `sender` may use its region again."""
        del self.early[sender][number]
        self.acknowledgements_to[sender].put(number)

    def view(self, worker: int, at: int, nbytes: int, dtype: torch.dtype) -> torch.Tensor:
        """The bytes at `at` of a worker's memory, as a flat tensor."""
        return self.bytes[worker][at : at + nbytes].view(dtype)

    def _await(self, records: Ring, peer: int) -> Record:
        """Wait for the next record of a ring that `peer` fills. PeerLost where the peer is gone and the ring
        is empty."""
        while (record := records.take(PATIENCE_S)) is None:
            if self._left(peer):
                if (record := records.take()) is None:  # what it had put before it left still counts
                    raise PeerLost(f"worker {peer} has left")
                break
        return record

    def _left(self, peer: int) -> bool:
        """Whether a worker's process is gone, or its inbox says that it has left."""
        try:
            os.kill(self.pids[peer], 0)  # signal 0 is sent to nobody: it asks whether it could be
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it is there, and somebody else's
        return bool(self.memory[peer][LEFT])


def _array(tensor: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor as a flat array, without a copy."""
    array: np.ndarray = tensor.detach().view(-1).view(torch.uint8).numpy()
    return array


class Copies:
    """An operation under way, on the side that receives. For each (sender, target) of `wanted`, the next
    message of the sender is copied into target, a flat array of just its bytes.
    """

    def __init__(self, transport: MemoryTransport, wanted: Sequence[tuple[int, np.ndarray]]):
        self.transport, self.operation, self.begun = transport, transport.operation, time.monotonic()
        self.parts = [(p, transport.expect(p), target) for p, target in wanted]
        self.ended: float | None = None if self.parts else self.begun

    def look(self) -> None:
        # The operation is through when its last message was posted: from then on it can be copied.
        found = [self.transport.find(p, number) for p, number, _ in self.parts]
        posted = [record[-1] for record in found if record is not None]
        if posted and len(posted) == len(found):
            self.ended = max(self.begun, *posted)

    def wait(self) -> None:
        if not self.parts:
            return
        # Wait until all messages have come, then copy them all.
        posted = max(self.begun, *(self.transport.come(p, number)[-1] for p, number, _ in self.parts))
        started = time.monotonic()
        self.take()
        # the copies are the transfer: count their time from the last post on, whenever they are made
        self.ended = posted + (time.monotonic() - started)
        self.parts = []

    def take(self) -> None:
        """Step 3: copy every message, and acknowledge it."""
        for p, number, target in self.parts:
            at = self._place(p, number, target.nbytes)
            target[:] = self.transport.arrays[p][at : at + target.nbytes]
            self.transport.acknowledge(p, number)

    def _place(self, sender: int, number: int, wanted: int) -> int:
        """Where the bytes of a message lie, of which `wanted` are expected.

        Raises ValueError where the message has another operation or length: then the workers did not start
        the same operations in the same order.
        """
        at, nbytes, operation, _ = self.transport.come(sender, number)
        if (nbytes, operation) != (wanted, self.operation):
            raise ValueError(
                f"worker {sender} sent {nbytes} bytes in operation {operation} where {wanted} were to"
                f" come in {self.operation}"
            )
        return at


class Sum(Copies):
    """A sum of the workers' tensors under way, written into this worker's tensor."""

    def __init__(self, transport: MemoryTransport, tensor: torch.Tensor):
        self.tensor = tensor.detach()
        own = _array(tensor)
        super().__init__(transport, [(p, own) for p in transport.peers] if tensor.nbytes else [])

    def take(self) -> None:
        """Add up all workers' tensors, in the order of ranks, so that rounding is the same everywhere."""
        # The tensor is overwritten by the first term. On rank 0 that is its own; the others keep a copy of
        # their own term until its turn comes.
        own = self.tensor.clone() if self.transport.rank else self.tensor
        terms = {p: self._rows(p, number) for p, number, _ in self.parts} | {self.transport.rank: own}
        for k, (_, term) in enumerate(sorted(terms.items())):
            if k:
                self.tensor.add_(term)
            elif term is not self.tensor:
                self.tensor.copy_(term)
        for p, number, _ in self.parts:
            self.transport.acknowledge(p, number)

    def _rows(self, sender: int, number: int) -> torch.Tensor:
        """The sender's tensor, where it wrote it."""
        like, at = self.tensor, self._place(sender, number, self.tensor.nbytes)
        return self.transport.view(sender, at, like.nbytes, like.dtype).view(like.shape)
