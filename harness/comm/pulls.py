"""Rows and neighbour lists of other workers, asked for by vertex: what mini-batch training moves.

Every worker holds *arrays* of its own vertices, by name, one entry per local row. Workers ask each other for
rows of an array, or for lists that are computed from several arrays (`draw`). Every step asks for other
vertices, so neither a plan nor a buffer can be kept. There are two ways:

    Mapped     workers of one host: every worker has all workers' arrays mapped. The reader copies what it
               wants, and is counted as if it had asked the owner
    Exchanged  over any transport: ids travel to the owner and answers back, through `Comm`. All workers ask
               at the same time; a worker that wants nothing asks for nothing

`beside()` gives another thread the same access. That thread touches no recorder: the training thread counts
what it has read (`book`), in the step that uses it.

Counted, by (purpose, peer), 4 bytes per id:

    asked      the ids, at the worker that asks
    answered   the rows or lists; Exchanged: at the worker that answers; Mapped: at the reader, by owner
    counts     Exchanged only: 8 bytes to every peer before the ids, which say how many ids come
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.host import map_shared
from harness.comm.work import pack
from harness.data.partition.shard import Csr

Arrays = Mapping[str, Any]  # by name: an array, or compressed rows (`Csr`), which are indexed as an array is
Asked = Sequence[np.ndarray]  # by owner: [q] int32 local rows there
# (an owner's arrays, rows [q], the worker that asks) -> how many neighbours each row has [q] int32, and the
# chosen neighbours of all rows, one row's after another's [items, c]
Draw = Callable[[Arrays, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
Taken = Callable[[np.ndarray], np.ndarray]  # how many neighbours each row has [q] -> how many are chosen [q]
Lists = tuple[np.ndarray, np.ndarray]

Answer = TypeVar("Answer")

COUNTS = "counts"
CSR = ("indptr", "indices", "values")


@dataclass(frozen=True)
class Purpose:
    """What a pull is counted under: purpose `asked` for its ids, `answered` for the answers; the layer."""

    asked: str
    answered: str
    layer: int


class Pulls(ABC):
    """One worker's access to the arrays of all. What it asks of itself is answered and not counted.

    own   this worker's arrays, by name; every worker has the same names, each with the same type and width
    """

    def __init__(self, comm: Comm, own: Arrays):
        self.comm, self.own = comm, own

    @abstractmethod
    def rows(self, name: str, asked: Asked, purpose: Purpose) -> list[np.ndarray]:
        """By owner: the rows asked[owner] [q, ...] of its array `name`. They must not be written: they may
        lie in this worker's own array."""

    @abstractmethod
    def lists(self, draw: Draw, taken: Taken, asked: Asked, purpose: Purpose) -> list[Lists]:
        """By owner: what `draw` gives for its arrays and the rows asked[owner]: the number of neighbours of
        each row [q], and `taken` of that number of items per row [items, c]."""

    def beside(self) -> Beside | None:
        """Access for a thread beside the training; None where all workers have to pull at the same time."""
        return None


class Local(Pulls):
    """Pulls from arrays that this process reads by itself.

    arrays   every worker's arrays, by worker; {} for a worker that is never asked
    """

    def __init__(self, comm: Comm, arrays: Sequence[Arrays]):
        super().__init__(comm, arrays[comm.rank])
        self.arrays = arrays

    def rows(self, name: str, asked: Asked, purpose: Purpose) -> list[np.ndarray]:
        return self._answers(lambda arrays, rows: arrays[name][rows], asked, purpose)

    def lists(self, draw: Draw, taken: Taken, asked: Asked, purpose: Purpose) -> list[Lists]:
        return self._answers(lambda arrays, rows: draw(arrays, rows, self.comm.rank), asked, purpose)

    def beside(self) -> Beside:
        return Beside(self.comm, self.arrays)

    def _answers(
        self, answer: Callable[[Arrays, np.ndarray], Answer], asked: Asked, purpose: Purpose
    ) -> list[Answer]:
        """By owner: what `answer` gives for its arrays and the rows asked[owner]."""
        nothing = np.empty(0, np.int32)
        # A worker that is asked nothing may have no arrays here; an empty answer of the same type is made
        # with this worker's own.
        return [
            answer(arrays, rows) if len(rows) else answer(self.own, nothing)
            for arrays, rows in zip(self.arrays, asked)
        ]


class Own(Local):
    """The pulls of a worker that asks nobody but itself."""

    def __init__(self, comm: Comm, own: Arrays):
        super().__init__(comm, [own if p == comm.rank else {} for p in range(comm.size)])


class Mapped(Local):
    """The pulls of workers on one host. Setting up is collective, outside the train clock, and copies the
    arrays into memory that all workers map.

    instead   what a user should give where this fails; ends the error message

    Raises InputError where workers are on several hosts, or there is too little shared memory.
    """

    def __init__(self, comm: Comm, own: Arrays, instead: str):
        super().__init__(comm, _map(comm, own, instead))
        self.own = own  # own rows are read where they lay, not from the copy

    def _answers(
        self, answer: Callable[[Arrays, np.ndarray], Answer], asked: Asked, purpose: Purpose
    ) -> list[Answer]:
        """Record as a wait the time in which this worker reads other workers' arrays, and count it."""
        comm = self.comm
        answers = [answer(self.own, asked[comm.rank])] * comm.size
        sizes = dict.fromkeys(comm.peers, 0)
        with comm.waiting("pull", purpose.layer, 0, sizes, "take") as span:
            for owner in comm.peers:
                answers[owner] = answer(self.arrays[owner], asked[owner])
                _count(comm, purpose, owner, len(asked[owner]), _size(answers[owner]))
                sizes[owner] = 4 * len(asked[owner]) + _size(answers[owner])
        if span is not None:
            span.peer_bytes, span.bytes = tuple(sizes.values()), sum(sizes.values())
        return answers


@dataclass
class Read:
    """One read of other workers' arrays, from `start` to `end` in seconds of CLOCK_MONOTONIC.

    taken   (owner, number of rows asked for, bytes of the answer), for every owner but the reader
    """

    purpose: Purpose
    start: float
    end: float
    taken: list[tuple[int, int, int]]


class Beside(Local):
    """The pulls of a thread beside the training; used by one thread at a time.

    reads    what has been read since `take_reads` was last called
    """

    def __init__(self, comm: Comm, arrays: Sequence[Arrays]):
        super().__init__(comm, arrays)
        self.reads = list[Read]()

    def _answers(
        self, answer: Callable[[Arrays, np.ndarray], Answer], asked: Asked, purpose: Purpose
    ) -> list[Answer]:
        rank, peers = self.comm.rank, self.comm.peers
        own = answer(self.own, asked[rank])
        start, nothing = time.monotonic(), np.empty(0, np.int32)
        others = [nothing if p == rank else rows for p, rows in enumerate(asked)]
        answers = super()._answers(answer, others, purpose)
        if peers and all(self.arrays):  # there are others to read from
            taken = [(p, len(asked[p]), _size(answers[p])) for p in peers]
            self.reads.append(Read(purpose, start, time.monotonic(), taken))
        answers[rank] = own
        return answers

    def take_reads(self) -> list[Read]:
        """What has been read, which is then forgotten."""
        reads, self.reads = self.reads, []
        return reads


def together(reads: Iterable[Read], purpose: Purpose, peers: Iterable[int], now: float) -> Read:
    """Those of `reads` that are for `purpose`, as one read: from the first start to the last end, summed up
    by peer. Where there are none it begins and ends at `now`."""
    own = [read for read in reads if read.purpose == purpose]
    taken = dict.fromkeys(peers, (0, 0))
    for read in own:
        for owner, asked, size in read.taken:
            taken[owner] = taken[owner][0] + asked, taken[owner][1] + size
    start = min((read.start for read in own), default=now)
    end = max((read.end for read in own), default=now)
    return Read(purpose, start, end, [(peer, *each) for peer, each in taken.items()])


def book(comm: Comm, reads: Iterable[Read]) -> None:
    """Count what other threads have read as if the training thread had read it in this epoch."""
    for read in reads:
        purpose, recorder = read.purpose, comm.recorder
        sizes = {owner: 4 * asked + size for owner, asked, size in read.taken}
        recorder.done("pull", purpose.layer, sizes, comm.next_id(), read.start, read.end, route="take")
        for taken in read.taken:
            _count(comm, purpose, *taken)


def _size(answer: Any) -> int:
    """Bytes of the arrays that an answer is made of."""
    return sum(array.nbytes for array in (answer if isinstance(answer, tuple) else (answer,)))


def _count(comm: Comm, purpose: Purpose, owner: int, asked: int, size: int) -> None:
    """Count what was taken as if it had been asked for."""
    comm.recorder.count(purpose.layer, "forward", purpose.asked, owner, asked, 4 * asked)
    comm.recorder.count(purpose.layer, "forward", purpose.answered, owner, asked, size)


def _map(comm: Comm, own: Arrays, instead: str) -> list[Arrays]:
    """Every worker's arrays, by worker, in memory that all map."""
    # Compressed rows are shared as their three arrays.
    compressed = {name: rows for name, rows in own.items() if isinstance(rows, Csr)}
    own = {name: array for name, array in own.items() if name not in compressed}
    for name, rows in compressed.items():
        parts = rows.indptr, rows.indices, rows.entries()
        own |= {f"{name}.{part}": array for part, array in zip(CSR, parts)}
    # Every worker tells all others how long each of its arrays is, so that all know where each begins: at a
    # multiple of 64 bytes.
    mine = torch.tensor([len(array) for array in own.values()], dtype=torch.int64).to(comm.device)
    lengths = [each.tolist() for each in comm.all_gather(mine, -1, COUNTS)]
    row_bytes = [_width(array) * array.itemsize for array in own.values()]
    sizes = [[-(-n * size // 64) * 64 for n, size in zip(counts, row_bytes)] for counts in lengths]
    # Map all workers' memory, lay views of the arrays over it, and copy the own arrays into the own ones.
    views: list[dict[str, Any]] = []
    for memory, counts, size in zip(map_shared(comm, list(map(sum, sizes)), instead), lengths, sizes):
        found: dict[str, Any] = {}
        for (name, array), n, begin in zip(own.items(), counts, np.cumsum([0, *size]).tolist()):
            flat = np.frombuffer(memory, array.dtype, n * _width(array), begin)
            found[name] = flat.reshape(n, *array.shape[1:])
        views.append(found)
    for name, array in own.items():
        np.copyto(views[comm.rank][name], array)
    comm.barrier()  # nobody reads before all have copied
    for found in views:
        for name, rows in compressed.items():
            indptr, indices, values = (found.pop(f"{name}.{part}") for part in CSR)
            found[name] = Csr(indptr, indices, rows.num_columns, values)
    return list(views)


def _width(array: np.ndarray) -> int:
    """Values per row."""
    return int(np.prod(array.shape[1:]))


class Exchanged(Pulls):
    """The pulls of workers that send each other ids and answers through `Comm`, in the training thread; all
    workers call the same methods in the same order.
    """

    def rows(self, name: str, asked: Asked, purpose: Purpose) -> list[np.ndarray]:
        own = self.own[name]
        questions = self._ask(asked, purpose)
        answers = [own[question] for question in questions]
        for answer in answers:
            self.comm.recorder.work(pack(len(answer), _width(answer), answer.itemsize))
        expected = [len(each) for each in asked]
        back = self.comm.send_parts(answers, expected, purpose.layer, purpose.answered)
        back[self.comm.rank] = answers[self.comm.rank]
        return back

    def lists(self, draw: Draw, taken: Taken, asked: Asked, purpose: Purpose) -> list[Lists]:
        rank = self.comm.rank
        questions = self._ask(asked, purpose)
        answers = [draw(self.own, question, asker) for asker, question in enumerate(questions)]
        send, layer, name = self.comm.send_parts, purpose.layer, purpose.answered
        counts = send([each for each, _ in answers], [len(each) for each in asked], layer, name)
        chosen = [int(taken(each).sum()) for each in counts]
        items = send([each for _, each in answers], chosen, layer, name, slot=1)
        back = list(zip(counts, items))
        back[rank] = answers[rank]
        return back

    def _ask(self, asked: Asked, purpose: Purpose) -> list[np.ndarray]:
        """Send each owner the ids of asked[owner]; returns, by asking worker, the rows that it wants of this
        worker's arrays. This worker's own question is among them."""
        comm = self.comm
        told = comm.exchange_counts([len(each) for each in asked], purpose.layer, "forward", COUNTS)
        questions = comm.send_parts(asked, told, purpose.layer, purpose.asked)
        questions[comm.rank] = asked[comm.rank]
        return questions
