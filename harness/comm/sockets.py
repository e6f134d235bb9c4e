"""Bytes over gloo's sockets, as messages between pairs of workers.

Every worker posts what it expects before what it sends. When it posts a receive, gloo tells the peer that it
may send; this word travels over the same connection as the worker's own rows, in the order of posting. Were
the rows posted first, the word would come behind them, and two workers would send one after the other.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue

import torch
import torch.distributed as dist

from harness.comm.transport import UNLIMITED, PeerLost, Transfer, Transport, losing_peers

AT_ONCE = datetime.timedelta(milliseconds=1)
LEAVING = 0.5  # seconds that operations under way have to end when this worker leaves
LEFT = 5.0  # seconds that they have when another worker has left
NEVER = 2**31 - 1  # the number of a message that nobody sends


class SocketTransport(Transport):
    """The default group of torch.distributed, over gloo. Making one is collective, in an open group.

    Messages carry the number of their operation, by which gloo tells them apart. Two threads wait for
    operations in the order in which they were posted, and note when each was through: one thread for rows,
    one for sums, which must not queue behind rows that nobody waits for yet.

    gloo does not end a message that is half-way when its connection ends. So each worker also posts, to every
    peer, a receive that never gets a message. Where such a receive fails, the peer has left; operations that
    are still under way LEFT seconds later then fail too.
    """

    name, on_host = "sockets", True

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        group = dist.group.WORLD
        assert group is not None, "a group is open"
        self.group: dist.ProcessGroup | None = group
        # The next worker first, so that not all send to worker 0 at once.
        self.peers = [(self.rank + k) % self.size for k in range(1, self.size)]
        self.number = 0
        self.under_way: dict[int, list[dist.Work]] = {}  # by number
        self.rows, self.sums = Lane("rows"), Lane("sums")
        self.leaving = threading.Event()
        self.never = [group.recv([torch.empty(1)], p, NEVER) for p in self.peers]
        self.listeners = [
            threading.Thread(target=self._listen, args=(place,), name="peer", daemon=True)
            for place in range(len(self.peers))
        ]
        for listener in self.listeners:
            listener.start()

    def exchange(
        self, incoming: torch.Tensor, outgoing: torch.Tensor, receive: Sequence[int], send: Sequence[int]
    ) -> Transfer:
        return self._of_rows(incoming.split(list(receive)), outgoing.split(list(send)))

    def broadcast(self, blocks: dict[int, torch.Tensor]) -> Transfer:
        nothing = torch.empty(0)
        receive = [blocks.get(p, nothing) for p in range(self.size)]
        return self._of_rows(receive, [receive[self.rank]] * self.size)

    def all_reduce(self, tensor: torch.Tensor) -> Transfer:
        total = OrderedSum(self, tensor.detach().view(-1))
        return self.sums.see_through(total.finish)

    def close(self) -> None:
        self.leaving.set()
        for lane in (self.rows, self.sums):
            lane.close()
        # A message that waits keeps its connections open, and peers would never hear that this worker left.
        # gloo closes them where a wait runs out of time.
        for work in [*self.never, *(work for works in list(self.under_way.values()) for work in list(works))]:
            with contextlib.suppress(RuntimeError):
                work.wait(AT_ONCE)
        for thread in (*self.listeners, self.rows.thread, self.sums.thread):
            thread.join(LEAVING)
        self.never.clear()
        self.group = None

    def _listen(self, place: int) -> None:
        try:
            with losing_peers():
                self.never[place].wait(UNLIMITED)
        except RuntimeError as error:
            if self.leaving.wait(LEFT):
                return
            for lane in (self.rows, self.sums):
                lane.lose(error)

    def reserved(self) -> int:
        """The number of the next operation. It is the same on all workers, as they start the same ones."""
        number, self.number = self.number, self.number + 1
        return number

    def post(self, number: int, receive: Sequence[torch.Tensor], send: Sequence[torch.Tensor]) -> None:
        """Post a receive into receive[p] and a send of send[p] for every other worker p, where these are not
        empty; copy what this worker sends itself. PeerLost where a peer is lost or this worker has left."""
        mine, own = receive[self.rank], send[self.rank]
        if own.numel() and mine.data_ptr() != own.data_ptr():
            mine.copy_(own)
        works: list[dist.Work] = []
        with losing_peers():
            if self.group is None:
                raise PeerLost("this worker has left")
            works += [self.group.recv([receive[p]], p, number) for p in self.peers if receive[p].numel()]
            works += [self.group.send([send[p]], p, number) for p in self.peers if send[p].numel()]
        self.under_way[number] = works

    def wait(self, number: int) -> None:
        """Wait for an operation's messages, once per operation. Raises PeerLost where a peer is lost, or this
        worker has left."""
        works = self.under_way[number]
        try:
            with losing_peers():
                for place in range(len(works)):
                    works[place].wait(UNLIMITED)
        finally:
            # A message that is held keeps its connections open. A traceback's frame must not hold one either.
            del self.under_way[number]
            works.clear()

    def _of_rows(self, receive: Sequence[torch.Tensor], send: Sequence[torch.Tensor]) -> Transfer:
        number = self.reserved()
        self.post(number, receive, send)
        return self.rows.see_through(partial(self.wait, number))


class Lane:
    """A thread that finishes operations, one after the other, in the order in which they were posted."""

    def __init__(self, name: str):
        self.posted: SimpleQueue[tuple[Callable[[], None], Seen] | None] = SimpleQueue()
        self.under_way: set[Seen] = set()
        self.lock = threading.Lock()
        self.lost: Exception | None = None  # a peer that has left
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def see_through(self, finish: Callable[[], None]) -> Seen:
        """Have the thread call `finish`; gives the operation, which is through when `finish` has returned."""
        seen = Seen()
        with self.lock:
            self.under_way.add(seen)
        self.posted.put((finish, seen))
        if self.lost is not None:
            self._end(seen, self.lost)
        return seen

    def lose(self, error: Exception) -> None:
        """A peer has left: fail what is under way or posted later. The thread itself may wait for ever."""
        self.lost = error
        with self.lock:
            left = list(self.under_way)
        for seen in left:
            self._end(seen, error)

    def close(self) -> None:
        """Let the thread end after the operations that it was given; wait LEAVING seconds at most."""
        self.posted.put(None)
        self.thread.join(LEAVING)

    def _run(self) -> None:
        while (given := self.posted.get()) is not None:
            finish, seen = given
            try:
                finish()
            except Exception as error:
                self._end(seen, error)
            else:
                self._end(seen)

    def _end(self, seen: Seen, error: Exception | None = None) -> None:
        """Note that an operation is through, or has failed; a second call for it changes nothing."""
        with self.lock:
            if seen not in self.under_way:
                return
            self.under_way.remove(seen)
            seen.ended, seen.error = time.monotonic(), error
        seen.through.set()


class Seen:
    """An operation that a `Lane` finishes.

    ended   when it was through, in seconds of CLOCK_MONOTONIC; never before an operation posted before it in
            the same lane
    error   why it failed; None where it has not
    """

    def __init__(self) -> None:
        self.through = threading.Event()
        self.ended: float | None = None
        self.error: Exception | None = None

    def wait(self) -> None:
        self.through.wait()
        if self.error is not None:
            raise self.error

    def look(self) -> None:
        pass  # the lane's thread sets `ended`


class OrderedSum:
    """A tensor's sum over the workers under way, in place, in the order of ranks: ((t_0 + t_1) + t_2) + ...
    `harness.comm.memory_transport.Sum` adds in this order too, so that both give the same bits.

    Each of P > 2 workers adds up one block of the n elements:

        first half    every worker sends its terms of block j to worker j, which adds the P terms in order
        second half   worker j sends block j of the sum to all others

    All workers together send (P - 1) n elements in either half: 2 (P - 1) n, the traffic of a ring. Two
    workers send each other all n terms, which is 2 (P - 1) n too, and have no second half.

    Making one posts the first half, in the training thread; a lane's thread calls `finish`.
    """

    def __init__(self, transport: SocketTransport, tensor: torch.Tensor):
        self.transport, self.tensor = transport, tensor
        rank, size = transport.rank, transport.size
        if size == 2:
            theirs, nothing = torch.empty_like(tensor), tensor[:0]
            receive, send = ([nothing if p == rank else each for p in range(2)] for each in (theirs, tensor))
            self.terms = [theirs, tensor] if rank else [tensor, theirs]
        else:
            self.blocks = tensor.tensor_split(size)
            self.terms = list(tensor.new_empty(size, len(self.blocks[rank])))
            receive, send = self.terms, list(self.blocks)
        self.first, self.second = transport.reserved(), transport.reserved()
        transport.post(self.first, receive, send)

    def finish(self) -> None:
        """Wait for the first half, add, then post the second half and wait for it."""
        self.transport.wait(self.first)
        size = self.transport.size
        if size == 2:
            torch.add(*self.terms, out=self.tensor)
            return
        total = self.terms[0]
        for term in self.terms[1:]:
            total += term
        self.transport.post(self.second, self.blocks, [total] * size)
        self.transport.wait(self.second)
