"""Rows of which few values are not 0, fetched without loss in fewer bytes.

A message of k rows of width F, values of s bytes, is one byte that says its form, and

    dense     k F s bytes: the rows as they are
    ids       the number of values of each row and the column of each value, 2 bytes each (4 where F >= 2^16),
              and the values
    bits      a bit per column of each row, ceil(F / 8) bytes per row, and the values

What is 0 is all its bits: -0.0 and NaN travel as they are. Where all values of a message are alike (words
that occur or do not) one of them is sent. "auto" takes the least of the three, message by message, "sparse"
the lesser of the last two. Either also tells each peer the length of its message, 8 bytes of purpose
`lengths`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numba
import numpy as np
import torch

from harness.base.heap import give_back_freed_memory
from harness.base.hollow import UNLIKE, Hollow, filled_of
from harness.comm.comm import Comm

FORMS = ("auto", "dense", "sparse")
DENSE, IDS, BITS, ALIKE = 0, 1, 2, 4  # of a message's first byte; ALIKE is added to one of the others
WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # what values are read as


def fetch_rows(
    comm: Comm, pieces: Iterable[torch.Tensor], receive: list[int], layer: int, purpose: str, form: str
) -> torch.Tensor:
    """Send the p-th of pieces [k_p, F] to worker p and return the rows [sum(receive), F] that arrive, by
    sender.

    pieces   taken one after the other; one tensor for several workers in a row is coded once. Nothing is sent
             to oneself
    form     "auto" or "sparse"; what is to travel dense, `Comm.start_exchange` sends
    """
    coded = _coded(comm, pieces, layer, purpose, form)
    lengths = [len(message) for message in coded.messages]
    incoming = comm.exchange_counts(lengths, layer, "forward", "lengths")
    packed = comm.outgoing(("forward", purpose, layer, "coded"), (sum(lengths), 1), torch.uint8, False)
    for place in packed.split(lengths):
        place[:, 0] = coded.messages.pop(0)
    give_back_freed_memory()  # what arrives may need as much, in one block
    flight, arrived = comm.start_exchange(
        packed, lengths, incoming, layer, "forward", purpose, counted=coded.rows
    )
    flight.wait()
    found = torch.zeros(sum(receive), coded.like.shape[1], dtype=coded.dtype)
    if isinstance(found, Hollow):  # how full the rows are that travel is told apart
        filled = torch.from_numpy(np.concatenate([np.empty((0, 2), np.int64), *coded.filled]))
        theirs = torch.empty(sum(receive), 2, dtype=torch.int64)
        comm.transport.exchange(theirs, filled, receive, coded.rows).wait()
        found.filled = theirs.numpy()
        return found
    for message, rows in zip(arrived[:, 0].cpu().split(incoming), found.split(receive)):
        decode(message, rows)
    return found.to(coded.like.device, coded.like.dtype)


@dataclass
class _Coded:
    """Messages by worker, and how many rows [.., F] each holds; like [0, F] what the rows are, and dtype as
    what they travel."""

    messages: list[torch.Tensor]
    rows: list[int]
    like: torch.Tensor
    dtype: torch.dtype
    filled: list[np.ndarray]  # of a dry run's rows


def _coded(comm: Comm, pieces: Iterable[torch.Tensor], layer: int, purpose: str, form: str) -> _Coded:
    """Of `fetch_rows`. Rows may be most of a worker's memory: at most two pieces are there at a time."""
    made: _Coded | None = None
    nothing = message = torch.zeros(0, dtype=torch.uint8)
    before: torch.Tensor | None = None
    for worker, piece in enumerate(pieces):
        if made is None:
            dtype = torch.bfloat16 if comm.halved(piece.dtype, layer, purpose) else piece.dtype
            made = _Coded([], [], piece.new_empty(0, piece.shape[1]), dtype, [])
        sent = worker != comm.rank and len(piece) > 0
        if sent and piece is not before:
            before, message = piece, encoded(piece.to(made.dtype), form)
        made.messages.append(message if sent else nothing)
        made.rows.append(len(piece) * sent)
        if sent and isinstance(piece, Hollow):
            made.filled.append(filled_of(piece))
    assert made is not None, "a piece for each worker"
    return made


def encoded(rows: torch.Tensor, form: str) -> torch.Tensor:
    """The message [bytes] uint8 of rows [k, F], on the CPU."""
    if isinstance(rows, Hollow):
        return torch.empty(1 + _size(rows, form), dtype=torch.uint8)
    words = rows.detach().cpu().contiguous().view(WORDS[rows.dtype.itemsize]).numpy()
    counts = np.count_nonzero(words, axis=1)
    places = np.empty(int(counts.sum()), np.int32)
    values = np.empty(len(places), words.dtype)
    _gather(words, places, values)
    wide = _id_type(words.shape[1])
    alike = len(values) > 0 and bool((values == values[0]).all())
    kept = values[:1] if alike else values
    sizes = _sizes(words, form, len(places), kept.nbytes)
    kind = min(sizes, key=lambda each: sizes[each])
    if kind == DENSE:
        parts = [words]
    elif kind == IDS:
        parts = [counts.astype(wide), places.astype(wide), kept]
    else:
        parts = [np.packbits(words != 0, axis=1, bitorder="little"), kept]
    kind += ALIKE if alike and kind != DENSE else 0
    joined = [np.array([kind], np.uint8), *(part.reshape(-1).view(np.uint8) for part in parts)]
    return torch.from_numpy(np.concatenate(joined))


def _sizes(rows: np.ndarray | torch.Tensor, form: str, filled: int, kept: int) -> dict[int, int]:
    """Bytes of rows [k, F] with so many values that are not 0 in each form, `kept` of them for values."""
    k, width = rows.shape
    sizes = {IDS: (k + filled) * _id_type(width).itemsize + kept, BITS: k * -(-width // 8) + kept}
    return sizes | ({DENSE: rows.nbytes} if form == "auto" else {})


def _size(rows: Hollow, form: str) -> int:
    """Bytes of the rows of a dry run, the first byte left out."""
    counts, values = filled_of(rows).T
    filled, told = int(counts.sum()), np.unique(values[counts > 0])
    alike = len(told) == 1 and told[0] != UNLIKE
    return min(_sizes(rows, form, filled, (1 if alike else filled) * rows.itemsize).values())


def decode(message: torch.Tensor, rows: torch.Tensor) -> None:
    """Write a message's rows into `rows` [k, F], which are 0."""
    count, width = rows.shape
    if not count:
        return
    words = rows.view(WORDS[rows.dtype.itemsize]).numpy()
    data, wide = message.numpy(), _id_type(width)
    kind, data = int(data[0]), data[1:]
    if kind == DENSE:
        words.reshape(-1).view(np.uint8)[:] = data
        return
    at: tuple[np.ndarray, ...]
    if kind & IDS:
        counts, data = _read(data, count, wide)
        places, data = _read(data, int(counts.sum()), wide)
        at = np.repeat(np.arange(count), counts), places
    else:
        bits, data = _read(data, count * -(-width // 8), np.dtype(np.uint8))
        at = np.nonzero(np.unpackbits(bits.reshape(count, -1), axis=1, count=width, bitorder="little"))
    values, _ = _read(data, 1 if kind & ALIKE else len(at[0]), words.dtype)
    words[at] = values


def _id_type(width: int) -> np.dtype:
    return np.dtype(np.uint16 if width < 2**16 else np.uint32)


def _read(data: np.ndarray, count: int, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` values of a message's rest, and what follows them."""
    size = count * dtype.itemsize
    return data[:size].copy().view(dtype), data[size:]


@numba.njit(cache=True, nogil=True)
def _gather(words: np.ndarray, places: np.ndarray, values: np.ndarray) -> None:
    at = 0
    for v in range(len(words)):
        for k in range(words.shape[1]):
            if words[v, k] != 0:
                places[at], values[at] = k, words[v, k]
                at += 1
