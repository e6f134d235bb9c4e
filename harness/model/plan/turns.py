"""How the workers of a dry run exchange what they send: threads of one process that take turns.

Integers arrive as they are. Of hollow rows it arrives only how many of their values are not 0
(`harness.base.hollow.Fill`). Where workers would share memory, the bytes that they write and read there are
counted as `harness.comm.memory_transport` would use them.
"""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from harness.base.heap import Heap
from harness.base.hollow import Held, Hollow, joined, storage_of
from harness.comm.transport import PeerLost, Through, Transport

Taken = Callable[[list[Any]], None]  # called with the parts that have arrived


@dataclass
class Region:
    """Shared memory that its owner, a sender, writes a message to, and from which the receivers copy it.

    free      the owner's unused regions of the same length, a power of two; the region returns there after
              its last read
    touched   by worker: how many of its bytes this worker has written or read
    reads     how many reads are still to come
    once      whether its memory is given back after the last read
    """

    free: list[Region]
    touched: dict[int, int]
    reads: int = 0
    once: bool = False


Part = tuple[int, int]  # what a worker brings to an operation: the operation's number, and the worker


class Turns:
    """Decides which worker runs. One runs at a time, until it waits for what others bring or for others to
    read what it brought.

    shares   whether workers exchange through memory that they share
    heaps    whether memory that workers free stays resident
    """

    def __init__(self, workers: int, shares: bool, heaps: bool):
        self.workers, self.shares = workers, shares
        self.held = [Held(Heap() if heaps else None) for _ in range(workers)]
        self.brought: dict[Part, list[Any]] = {}  # [what, how many workers are still to read it]
        self.failed: BaseException | None = None
        self._running = workers  # workers whose jobs have not ended
        self._missing: dict[int, set[Part]] = {}  # by waiting worker, the parts that it waits for
        self._wanted: dict[Part, list[int]] = defaultdict(list)  # the workers that wait for a part
        self._unread: dict[int, Part] = {}  # by worker that waits until its own part is read
        self._lock = threading.Lock()
        self._go = [threading.Condition(self._lock) for _ in range(workers)]

    def bring(self, number: int, rank: int, what: Any, readers: int) -> None:
        """A worker brings its part of an operation, which `readers` others will read; wakes those that wait
        for it alone."""
        if not readers:
            return
        self.brought[number, rank] = [what, readers]
        for reader in self._wanted.pop((number, rank), ()):
            self._missing[reader].remove((number, rank))
            if not self._missing[reader]:
                del self._missing[reader]
                self._go[reader].notify()

    def of(self, number: int, rank: int, ranks: Sequence[int]) -> list[Any]:
        """What the workers `ranks` have brought to an operation. Waits until all of them have."""
        parts = [(number, each) for each in ranks]
        if missing := set(parts) - self.brought.keys():
            self._missing[rank] = missing
            for part in missing:
                self._wanted[part].append(rank)
            self._pause(rank, self._missing)
        found = []
        for part in parts:
            self.brought[part][1] -= 1
            found.append(self.brought[part][0])
            if not self.brought[part][1]:
                del self.brought[part]
                if self._unread.get(part[1]) == part:
                    del self._unread[part[1]]
                    self._go[part[1]].notify()
        return found

    def keep_step(self, number: int, rank: int) -> None:
        """Wait until others have read this worker's part of an operation. Returns before that if no worker
        could go on otherwise."""
        if (number, rank) in self.brought:
            self._unread[rank] = number, rank
            self._pause(rank, self._unread)

    def _pause(self, rank: int, waiting: Mapping[int, object]) -> None:
        self._see_to_it()
        self._go[rank].wait_for(lambda: self.failed is not None or rank not in waiting)
        if self.failed is not None:
            raise PeerLost("another worker of the dry run failed")

    def _see_to_it(self) -> None:
        """Wake a worker where all of them wait: the first that waits only for its part to be read. Fails
        where there is none, since the workers then wait for each other."""
        if not self._running or len(self._missing) + len(self._unread) < self._running:
            return
        if self._unread:
            first = min(self._unread)
            del self._unread[first]
            self._go[first].notify()
        else:
            self._fail(RuntimeError("the workers of the dry run wait for each other"))

    def _fail(self, error: BaseException) -> None:
        self.failed = self.failed or error
        for each in self._go:
            each.notify()

    def touch(self, rank: int, region: Region | None, size: int) -> None:
        """A worker writes or reads so many bytes of a region."""
        if region is not None and (more := size - region.touched.get(rank, 0)) > 0:
            region.touched[rank] = size
            self.held[rank].add(more)

    def run(self, jobs: Sequence[Callable[[], None]]) -> None:
        """Run all jobs to their ends, each as a worker. Raises what the first of them to fail raised."""

        def own(job: Callable[[], None]) -> None:
            with self._lock:
                try:
                    job()
                except BaseException as error:  # which the caller gets
                    self._fail(error)
                self._running -= 1
                self._see_to_it()

        threads = [threading.Thread(target=own, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failed is not None:
            raise self.failed


class _Arrival:
    """One worker's side of an operation, which is through when the others have brought their parts."""

    def __init__(self, turns: Turns, number: int, rank: int, ranks: Sequence[int], take: Taken):
        self.turns, self.number, self.rank, self.ranks, self.take = turns, number, rank, ranks, take
        self.ended: float | None = None

    def wait(self) -> None:
        if self.ended is None:
            self.take(self.turns.of(self.number, self.rank, self.ranks))
            self.turns.keep_step(self.number, self.rank)
            self.ended = Through().ended

    def look(self) -> None:
        pass


class DryTransport(Transport):
    """A transport between workers that are threads of one process and take turns. Integers arrive as they
    are; of hollow rows it arrives how full they are."""

    name, on_host = "dry", False

    def __init__(self, rank: int, turns: Turns):
        self.rank, self.turns, self._number, self._once = rank, turns, 0, False
        self.free: dict[int, list[Region]] = defaultdict(list)
        self.lent: dict[int, Region] = {}  # by the storage of the tensor that `outgoing` gave out

    def outgoing(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor | None:
        if not self.turns.shares:
            return None
        with self.turns.held[self.rank].elsewhere():  # a region's memory, which is counted with the region
            tensor = torch.empty(tuple(shape), dtype=dtype)
        self.lent[id(storage_of(tensor))] = self._claim(tensor.nbytes)
        return tensor

    @contextlib.contextmanager
    def for_once(self) -> Iterator[None]:
        before, self._once = self._once, True
        try:
            yield
        finally:
            self._once = before

    def _claim(self, size: int) -> Region:
        """A region of this worker for a message of `size` bytes: an unused one where there is one."""
        free = self.free[max(size - 1, 0).bit_length()]
        region = free.pop() if free else Region(free, {})
        region.once = self._once
        self.turns.touch(self.rank, region, size)
        return region

    def _region(self, tensor: torch.Tensor, readers: int) -> Region | None:
        """The region in which the bytes of an outgoing tensor lie; None where no memory is shared or nobody
        reads them."""
        region = self.lent.pop(id(storage_of(tensor)), None)
        if region is None and self.turns.shares and readers:
            region = self._claim(tensor.nbytes)
        if region is not None:
            region.reads = readers
            if not readers:
                self._read(region, 0)
        return region

    def _read(self, region: Region | None, size: int) -> None:
        """This worker copies `size` bytes of a region. After the last read the region is unused again."""
        if region is None:
            return
        self.turns.touch(self.rank, region, size)
        region.reads -= 1
        if region.reads <= 0:
            if region.once:
                for rank, touched in region.touched.items():
                    self.turns.held[rank].add(-touched)
                region.touched = {}
            region.free.append(region)

    def _post(self, what: Any, readers: int, ranks: Sequence[int], take: Taken) -> _Arrival:
        self._number += 1
        self.turns.bring(self._number, self.rank, what, readers)
        return _Arrival(self.turns, self._number, self.rank, ranks, take)

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> _Arrival:
        readers = sum(count > 0 for count in send)
        region = self._region(outgoing, readers)
        parts = [_kept(part) for part in outgoing.split(list(send))] if readers else []

        def take(brought: list[Any]) -> None:
            arrived = [each[self.rank] for each, _ in brought]
            for (_, where), part in zip(brought, arrived):
                self._read(where, part.nbytes)
            if arrived:
                _arrive(incoming, arrived)

        senders = [p for p, count in enumerate(receive) if count]
        return self._post((parts, region), readers, senders, take)

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> _Arrival:
        others = [root for root in blocks if root != self.rank]
        own, readers = blocks.get(self.rank), self.turns.workers - 1

        def take(brought: list[Any]) -> None:
            for root, (block, where) in zip(others, brought):
                self._read(where, block.nbytes)
                _arrive(blocks[root], [block])

        what = None if own is None else (_kept(own), self._region(own, readers))
        return self._post(what, 0 if own is None else readers, others, take)

    def all_reduce(self, tensor: torch.Tensor) -> _Arrival:
        everyone = range(self.turns.workers)

        def take(brought: list[Any]) -> None:
            for each, where in brought:
                self._read(where, each.nbytes)
            if not isinstance(tensor, Hollow):
                tensor.copy_(torch.stack([each for each, _ in brought]).sum(0))

        what = _kept(tensor), self._region(tensor, len(everyone))
        return self._post(what, len(everyone), everyone, take)


def _kept(rows: torch.Tensor) -> torch.Tensor:
    """A copy of rows, since their sender may write to them again; hollow rows have no values that could
    change."""
    return rows if isinstance(rows, Hollow) else torch.from_numpy(rows.numpy().copy())


def _arrive(to: torch.Tensor, parts: list[torch.Tensor]) -> None:
    assert sum(len(part) for part in parts) == len(to), "both ends know how many rows are sent"
    if isinstance(to, Hollow):
        to.filled = joined(parts)
        return
    for into, part in zip(to.split([len(part) for part in parts]), parts):
        into.copy_(part)
