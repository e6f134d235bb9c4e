"""Rows in which most values are 0, fetched without loss in fewer bytes.

A message of k rows of width F, values of s bytes, is one byte that says its form, and

    dense     k F s bytes: the rows as they are
    ids       the number of values of each row and the column of each value, 2 bytes each (4 where F >= 2^16),
              and the values
    bits      a bit per column of each row, ceil(F / 8) bytes per row, and the values

A value counts as 0 only where all its bits are 0, so -0.0 travels as it is. Where all values of a message
that are not 0 are alike (as in word lists: a word occurs or does not), only one of them is sent.
`form="auto"` takes the smallest of the three forms, message by message, "sparse" the smaller of the last two,
"dense" plain rows without this coding. Under "auto" and "sparse" each peer is also told the length of its
message: 8 bytes, of purpose `lengths`.

Rows that a worker holds compressed (`Csr`) are coded, and arrive, without being made dense. Where they have
to travel dense, they are made dense one block of rows after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numba
import numpy as np
import torch

from harness.base.heap import give_back_freed_memory
from harness.base.hollow import UNLIKE, Hollow, filled_of, passing
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.data.partition.shard import Csr

FORMS = ("auto", "dense", "sparse")
DENSE, IDS, BITS, ALIKE = 0, 1, 2, 4  # of a message's first byte; ALIKE is added to one of the others
WORDS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # what values are read as
BLOCK = 16 << 20  # bytes of compressed rows that are made dense at a time

Given = torch.Tensor | Csr  # features [n, F], dense or compressed


def fetch_halo(comm: Comm, plan: HaloPlan, x: Given, most: int, purpose: str, form: str) -> Given:
    """Fetch the features [m, F] of the halo, in halo order, by `plan`; compressed where x is. Collective.

    x      [n, F] this worker's own features
    most   no worker sends another more rows than this; the same number on every worker
    form   "auto", "dense" or "sparse", as the module says
    """
    rows = plan.send_rows.split(plan.send_counts)
    if isinstance(x, Csr):
        pieces = [x.rows(each.numpy()) for each in rows]
        if form == "dense":
            return _fetch_dense(comm, pieces, plan.receive_counts, most, purpose)
        coded, messages = _exchanged(comm, pieces, 0, purpose, form)
        shapes = [(count, x.num_columns) for count in plan.receive_counts]
        parts = [_decoded(*each, coded.dtype) for each in zip(messages, shapes)]
        return _joined(parts, coded.dtype, _type(x))
    if form == "dense":
        rows_of_halo: torch.Tensor = comm.exchange(plan, x, layer=0, purpose=purpose).wait()
        return rows_of_halo
    chosen = (x.index_select(0, each) for each in rows)
    return fetch_rows(comm, chosen, plan.receive_counts, 0, purpose, form)


def fetch_rows(
    comm: Comm, pieces: Iterable[torch.Tensor], receive: list[int], layer: int, purpose: str, form: str
) -> torch.Tensor:
    """Send the p-th of pieces [k_p, F] to worker p; returns the rows [sum(receive), F] that arrive, grouped
    by sender. Collective.

    pieces    one per worker, taken one after the other; this worker's own is not sent. The same tensor for
              several workers in a row is coded once
    receive   how many rows come from each worker
    form      "auto" or "sparse"; rows that are to travel dense are sent by `Comm.start_exchange`
    """
    coded, messages = _exchanged(comm, pieces, layer, purpose, form)
    found = torch.zeros(sum(receive), coded.like.shape[1], dtype=coded.dtype)
    if isinstance(found, Hollow):  # a dry run: tell the receivers, uncounted, how full the rows are
        filled = torch.from_numpy(np.concatenate([np.empty((0, 2), np.int64), *coded.filled]))
        theirs = torch.empty(sum(receive), 2, dtype=torch.int64)
        comm.transport.exchange(theirs, filled, receive, coded.rows).wait()
        found.filled = theirs.numpy()
        return found
    for message, rows in zip(messages, found.split(receive)):
        decode(message, rows)
    return found.to(coded.like.device, coded.like.dtype)


def _exchanged(
    comm: Comm, pieces: Iterable[Given], layer: int, purpose: str, form: str
) -> tuple[_Coded, Sequence[torch.Tensor]]:
    """Code the pieces and exchange the messages; returns the coded pieces and the messages that arrived, by
    sender."""
    coded = _coded(comm, pieces, layer, purpose, form)
    lengths = [len(message) for message in coded.messages]
    incoming = comm.exchange_counts(lengths, layer, "forward", "lengths")
    packed = comm.outgoing(("forward", purpose, layer, "coded"), (sum(lengths), 1), torch.uint8, False)
    for place in packed.split(lengths):
        place[:, 0] = coded.messages.pop(0)
    give_back_freed_memory()  # what arrives may need as much, in one block
    arrived = comm.exchange_now(packed, lengths, incoming, layer, "forward", purpose, counted=coded.rows)
    return coded, arrived[:, 0].cpu().split(incoming)


def _fetch_dense(comm: Comm, pieces: Sequence[Csr], receive: list[int], most: int, purpose: str) -> Csr:
    """`fetch_halo` of compressed rows that travel dense, in blocks: `most` says how many, so that all workers
    start as many exchanges."""
    step = max(1, BLOCK // (pieces[0].num_columns * pieces[0].dtype.itemsize * comm.size))
    found: list[list[Csr]] = [[] for _ in receive]
    for first in range(0, most, step):
        block = [piece[first : first + step] for piece in pieces]
        incoming = [max(0, min(step, count - first)) for count in receive]
        rows = torch.from_numpy(np.concatenate(block))
        arrived = comm.exchange_now(rows, [len(each) for each in block], incoming, 0, "forward", purpose)
        for parts, each in zip(found, arrived.split(incoming)):
            parts.append(_compressed(each))
        give_back_freed_memory()  # else small arrays keep the next block from the place of this one
    return _joined([part for parts in found for part in parts], _type(pieces[0]), _type(pieces[0]))


@dataclass
class _Coded:
    """The messages of one exchange, by receiver.

    rows    how many rows each message holds
    like    [0, F], of the rows' own type and device
    dtype   the type in which their values travel
    filled  of a dry run's rows, how full they are (`harness.base.hollow.count_filled`)
    """

    messages: list[torch.Tensor]
    rows: list[int]
    like: torch.Tensor
    dtype: torch.dtype
    filled: list[np.ndarray]


def _coded(comm: Comm, pieces: Iterable[Given], layer: int, purpose: str, form: str) -> _Coded:
    """Code the pieces for each worker. Rows may take most of a worker's memory, so no more than two pieces
    are held at a time."""
    made: _Coded | None = None
    nothing = message = torch.zeros(0, dtype=torch.uint8)
    before: Given | None = None
    for worker, piece in enumerate(pieces):
        if made is None:
            device = "cpu" if isinstance(piece, Csr) else piece.device
            like = torch.empty(0, piece.shape[1], dtype=_type(piece), device=device)
            dtype = torch.bfloat16 if comm.halved(like.dtype, layer, purpose) else like.dtype
            made = _Coded([], [], like, dtype, [])
        sent = worker != comm.rank and len(piece) > 0
        if sent and piece is not before:
            before, message = piece, encoded(piece, form, made.dtype)
        made.messages.append(message if sent else nothing)
        made.rows.append(len(piece) * sent)
        if sent and isinstance(piece, Hollow):
            made.filled.append(filled_of(piece))
    assert made is not None, "a piece for each worker"
    return made


def encoded(rows: torch.Tensor | Csr, form: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The message [bytes] uint8, on the CPU, of rows [k, F]; values travel as `dtype` (None: unchanged)."""
    if isinstance(rows, Hollow):
        message = torch.empty(1 + _size(rows, form, dtype or rows.dtype), dtype=torch.uint8)
        passing(int(filled_of(rows)[:, 0].sum()) * (4 + (dtype or rows.dtype).itemsize))  # `given` below
        return message
    given = _compressed(rows, dtype)
    places, values = given.indices, given.entries()
    wide = _id_type(given.num_columns)
    alike = len(values) > 0 and bool((values == values[0]).all())
    kept = values[:1] if alike else values
    sizes = _sizes(given.shape, form, len(places), kept.nbytes, values.itemsize)
    kind = min(sizes, key=lambda each: sizes[each])
    if kind == DENSE:
        parts = [given.dense() if isinstance(rows, Csr) else _words(rows, dtype)]
    elif kind == IDS:
        parts = [np.diff(given.indptr).astype(wide), places.astype(wide), kept]
    else:
        parts = [np.packbits(given.dense() != 0, axis=1, bitorder="little"), kept]
    kind += ALIKE if alike and kind != DENSE else 0
    joined = [np.array([kind], np.uint8), *(part.reshape(-1).view(np.uint8) for part in parts)]
    return torch.from_numpy(np.concatenate(joined))


def _compressed(rows: torch.Tensor | Csr, dtype: torch.dtype | None = None) -> Csr:
    """Rows [k, F], compressed; their values are made `dtype` (None: left as they are), and their bits stand
    in the result as whole numbers."""
    if isinstance(rows, Csr):
        values = torch.from_numpy(rows.entries())
        return Csr(rows.indptr, rows.indices, rows.num_columns, _words(values, dtype))
    return _gathered(_words(rows, dtype))


def _gathered(words: np.ndarray) -> Csr:
    """Rows [k, F], compressed: without the words that are 0."""
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(words, axis=1))])
    places, found = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], words.dtype)
    _gather(words, places, found)
    return Csr(indptr, places, words.shape[1], found)


def _words(values: torch.Tensor, dtype: torch.dtype | None) -> np.ndarray:
    values = values.detach().cpu().to(dtype or values.dtype).contiguous()
    return values.view(WORDS[values.dtype.itemsize]).numpy()


def _type(rows: torch.Tensor | Csr) -> torch.dtype:
    return torch.from_numpy(rows.entries()).dtype if isinstance(rows, Csr) else rows.dtype


def _joined(parts: Sequence[Csr], dtype: torch.dtype, wanted: torch.dtype) -> Csr:
    """The rows of parts that `_compressed` gave, one after the other. Their values are the bits of `dtype`;
    they are converted to `wanted`."""
    words = torch.from_numpy(np.concatenate([part.entries() for part in parts]))
    counts = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)])
    indptr, indices = np.cumsum(counts), np.concatenate([part.indices for part in parts])
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    return Csr(indptr, indices, parts[0].num_columns, words.view(dtype).to(wanted).numpy())


def _sizes(shape: Sequence[int], form: str, filled: int, kept: int, itemsize: int) -> dict[int, int]:
    """Bytes of rows [k, F] in each form that `form` allows, without the first byte. `filled`: how many values
    are not 0; `kept`: bytes of the values that are sent."""
    k, width = shape
    sizes = {IDS: (k + filled) * _id_type(width).itemsize + kept, BITS: k * -(-width // 8) + kept}
    return sizes | ({DENSE: k * width * itemsize} if form == "auto" else {})


def _size(rows: Hollow, form: str, dtype: torch.dtype) -> int:
    """Bytes of the message of a dry run's rows, without the first byte."""
    counts, values = filled_of(rows).T
    filled, told = int(counts.sum()), np.unique(values[counts > 0])
    alike = len(told) == 1 and told[0] != UNLIKE
    kept = (1 if alike else filled) * dtype.itemsize
    return min(_sizes(rows.shape, form, filled, kept, dtype.itemsize).values())


def decode(message: torch.Tensor, rows: torch.Tensor) -> None:
    """Write a message's rows into `rows` [k, F], which must be 0 before."""
    if not len(rows):
        return
    words = rows.view(WORDS[rows.dtype.itemsize]).numpy()
    if int(message[0]) == DENSE:
        words.reshape(-1).view(np.uint8)[:] = message[1:].numpy()
        return
    found = _decoded(message, rows.shape, rows.dtype)
    words[np.repeat(np.arange(len(found)), np.diff(found.indptr)), found.indices] = found.entries()


def _decoded(message: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> Csr:
    """A message's rows, of this shape [k, F], as `_compressed` gives them."""
    (count, width), words = shape, np.dtype(f"i{dtype.itemsize}")
    data, wide = message.numpy(), _id_type(width)
    kind, data = int(data[0]) if count else DENSE, data[1:]
    if kind == DENSE:
        return _gathered(data.copy().view(words).reshape(count, width))
    if kind & IDS:
        counts, data = _read(data, count, wide)
        places, data = _read(data, int(counts.sum(dtype=np.int64)), wide)
    else:
        bits, data = _read(data, count * -(-width // 8), np.dtype(np.uint8))
        at = np.nonzero(np.unpackbits(bits.reshape(count, -1), axis=1, count=width, bitorder="little"))
        counts, places = np.bincount(at[0], minlength=count), at[1]
    values, _ = _read(data, 1 if kind & ALIKE else len(places), words)
    indptr = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return Csr(indptr, places.astype(np.int32), width, np.broadcast_to(values, places.shape))


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
