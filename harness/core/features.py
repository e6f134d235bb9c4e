"""Features of which few are not 0 (bags of words): rows of layer 0's input kept sparse, so that X W is a
sparse product.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeVar

import numba
import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from harness.base.hollow import Hollow, count_filled, dry, filled_of, rows_like, storage_of
from harness.comm.recorder import UNCOUNTED, Recorder
from harness.comm.sparse import Given
from harness.core.counting import times
from harness.core.dropout import drop_entries, dropout
from harness.core.kernels.spmm import Kernel, SparseOperator, spmm
from harness.data.partition.shard import Csr, Table

BLOCK = 4096  # rows that a dry run looks at together
CHUNK = 16  # values that are looked at together: nearly all chunks of a bag of words are 0


class SparseRows(SparseOperator):
    """Rows X [n, F] as an operator with `spmm(X, W) = x @ W`; `entries` are the values that are not 0, in the
    order of `block`.
    """

    def __init__(self, block: Csr, entries: np.ndarray, kernel: Kernel, device: torch.device):
        super().__init__(block, values=entries, kernel=kernel, device=device)
        self.entries = entries

    def dropped(self, ids: torch.Tensor, p: float, key: int) -> SparseRows:
        """These rows after `dropout` by vertex ids [n]: it drops the same values from the dense rows."""
        entries = drop_entries(self.block, self.entries, ids, p, key)
        return self if entries is self.entries else SparseRows(self.block, entries, self.kernel, self.device)

    def first(self, count: int) -> SparseRows:
        """The first `count` rows."""
        indptr = self.block.indptr[: count + 1]
        block = Csr(indptr, self.block.indices[: indptr[-1]], self.block.num_columns)
        return SparseRows(block, self.entries[: indptr[-1]], self.kernel, self.device)


Rows = torch.Tensor | SparseRows  # rows [n, F], kept dense or as an operator
R = TypeVar("R", bound=Rows)
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # indptr, indices and entries of sparse rows


def precision() -> str:
    """The default precision, as numpy names it."""
    return str(torch.get_default_dtype()).removeprefix("torch.")


def as_precise(table: Table) -> Table:
    """A shard's features [n, F] in the default precision."""
    return (
        table.astype(precision(), False)
        if isinstance(table, Csr)
        else np.ascontiguousarray(table, precision())
    )


def given(table: Table, device: torch.device) -> Given:
    """A shard's features on a device, in the default precision. Compressed rows stay so on the CPU."""
    if not isinstance(table, Csr):
        return torch.as_tensor(table).to(device, torch.get_default_dtype())
    rows = table.astype(precision(), False)
    return rows if device.type == "cpu" else dense(rows, device)


def dense(x: Given, device: torch.device | str = "cpu") -> torch.Tensor:
    """The rows x [n, F] as a tensor, which is x itself where it is one."""
    if not isinstance(x, Csr):
        return x
    if dry():
        blocks = [count_filled(x[first : first + BLOCK]) for first in range(0, len(x), BLOCK)]
        return rows_like(*x.shape, np.concatenate(blocks))
    return torch.from_numpy(x.dense()).to(device)


def filled(x: Given) -> int:
    """How many values are not 0."""
    return x.num_entries if isinstance(x, Csr) else int(torch.count_nonzero(x))


def filled_by_row(x: Table | torch.Tensor) -> np.ndarray:
    """[n] how many values of each row are not 0, of a shard's features."""
    if isinstance(x, Csr):
        return np.diff(x.indptr).astype(np.int64)
    return filled_of(x)[:, 0] if isinstance(x, Hollow) else np.count_nonzero(x, axis=1)


def saves(entries: int, x: Given, rows: int | None = None) -> bool:
    """Whether sparse products over `entries` are cheaper than the dense one with x [n, F]. The sparse form
    reads its operands at random where the dense one streams: it has to save more than half.

    rows   of the dense product; None: n. A X has fewer where not all of its rows are needed
    """
    on_cpu = isinstance(x, Csr) or x.device.type == "cpu"
    return on_cpu and 2 * entries < (len(x) if rows is None else rows) * x.shape[1]


def rows_times(
    x: Rows, weight: torch.Tensor, recorder: Recorder = UNCOUNTED, fixed: bool = False
) -> torch.Tensor:
    """X W  [n, f_out], differentiable in W. `recorder`, who counts it, and `fixed`, that X has the same shape
    in every epoch, matter where X is dense: sparse rows have a recorder of their own."""
    return spmm(x, weight) if isinstance(x, SparseRows) else times(x, weight, recorder, fixed)


def drop_rows(x: R, ids: torch.Tensor, p: float, key: int) -> R:
    """`dropout` of rows of either form."""
    dropped: Any = x.dropped(ids, p, key) if isinstance(x, SparseRows) else dropout(x, ids, p, key)
    return dropped  # type: ignore[no-any-return]


def first_rows(x: R, count: int) -> R:
    """The first `count` rows of either form; x itself where it has no more."""
    first: Any = x
    if isinstance(x, SparseRows):
        first = x if x.num_rows == count else x.first(count)
    elif len(x) != count:
        first = x[:count]
    return first  # type: ignore[no-any-return]


def sparse_rows(x: Given, kernel: Kernel) -> SparseRows:
    """The rows of x [n, F] as an operator."""
    rows = compact(x, kernel, len(x) * x.shape[1])
    assert isinstance(rows, SparseRows)
    return rows


def compact(x: Given, kernel: Kernel, most: int) -> Rows:
    """x [n, F] on the CPU as an operator where at most `most` of its values are not 0, else x, dense."""
    if isinstance(x, Csr):
        return SparseRows(x, x.entries(), kernel, torch.device("cpu")) if x.num_entries <= most else dense(x)
    if isinstance(x, Hollow):
        ends = np.concatenate([[0], np.cumsum(filled_of(x)[:, 0])])
        block = Csr(ends.astype(np.int32), np.empty(ends[-1], np.int32), x.shape[1])
        few = block.num_entries <= most
        return SparseRows(block, np.empty(ends[-1], np.float32), kernel, x.device) if few else x
    array = x.detach().contiguous().numpy()
    # Memory that is never written to costs nothing, so both have room for all that may come.
    indices, entries = np.empty(most, np.int32), np.empty(most, array.dtype)
    indptr = np.zeros(len(array) + 1, np.int32 if most < 2**31 else np.int64)
    found = _compact(array, indptr, indices, entries)
    if found < 0:
        return x
    block = Csr(indptr, indices[:found].copy(), array.shape[1])
    return SparseRows(block, entries[:found].copy(), kernel, x.device)


@numba.njit(cache=True, nogil=True)
def _compact(x: np.ndarray, indptr: np.ndarray, indices: np.ndarray, entries: np.ndarray) -> int:
    """Fill the arrays with the values of x that are not 0. Returns how many there are, -1 without room."""
    at, width = 0, x.shape[1]
    for v in range(len(x)):
        row = x[v]
        for first in range(0, width, CHUNK):
            last = min(first + CHUNK, width)
            some = False
            for k in range(first, last):
                some |= row[k] != 0
            if not some:
                continue
            for k in range(first, last):
                if row[k] != 0:
                    if at == len(indices):
                        return -1
                    indices[at], entries[at] = k, row[k]
                    at += 1
        indptr[v + 1] = at
    return at


def interleaved(
    kept: SparseRows, slots: np.ndarray, hit: np.ndarray, arrived: torch.Tensor, most: int | None = None
) -> SparseRows | None:
    """Rows [k, F] of two sources as an operator: where `hit` [k] is true the next of the rows `slots` of
    `kept`, elsewhere the next of the rows `arrived` [a, F]. Its entries are those that `compact` finds in the
    dense rows. None where more than `most` of all values are not 0, or, without `most`, more than half of
    those that arrived.
    """
    starts = kept.block.indptr
    present = int((starts[slots + 1].astype(np.int64) - starts[slots]).sum())
    room = arrived.numel() // 2 if most is None else most - present
    others = compact(arrived, kept.kernel, room) if room >= 0 else arrived
    if not isinstance(others, SparseRows):
        return None
    total = present + others.num_entries
    indptr = np.zeros(len(hit) + 1, np.int32 if total < 2**31 else np.int64)
    indices, entries = np.empty(total, np.int32), np.empty(total, others.entries.dtype)
    first, second = ((rows.block.indptr, rows.block.indices, rows.entries) for rows in (kept, others))
    _interleave(hit, slots, first, second, indptr, indices, entries)
    return SparseRows(Csr(indptr, indices, others.num_columns), entries, kept.kernel, arrived.device)


@numba.njit(cache=True, nogil=True)
def _interleave(
    hit: np.ndarray,
    slots: np.ndarray,
    kept: Arrays,
    others: Arrays,
    indptr: np.ndarray,
    indices: np.ndarray,
    entries: np.ndarray,
) -> None:
    """Fill the last three arrays with the rows of `interleaved`. kept, others: such arrays of the sources, of
    which the rows `slots` and all rows are taken."""
    at, of_kept, of_others = 0, 0, 0
    for v in range(len(hit)):
        if hit[v]:
            row = slots[of_kept]
            for e in range(kept[0][row], kept[0][row + 1]):
                indices[at], entries[at] = kept[1][e], kept[2][e]
                at += 1
            of_kept += 1
        else:
            for e in range(others[0][of_others], others[0][of_others + 1]):
                indices[at], entries[at] = others[1][e], others[2][e]
                at += 1
            of_others += 1
        indptr[v + 1] = at


class Features:
    """A worker's own rows of X, and layer 0's products with them and with the halo's.

    given     [n, f0], dense or compressed
    entries   of the propagation matrix that is applied after X W
    """

    def __init__(self, given: Given, entries: int, kernel: Kernel):
        self.given, self._entries, self._kernel = given, entries, kernel
        self._halo: tuple[tuple[StorageWeakRef, int, torch.Size], Rows] | None = None

    @cached_property
    def x(self) -> torch.Tensor:
        """X, dense, as the model is given it: a layer whose input is this very tensor is layer 0. Where rows
        are compressed, it is made when first asked for, as under `features=refetch`."""
        return dense(self.given)

    @cached_property
    def own(self) -> Rows:
        """X, sparse where that saves."""
        x = self.given
        most = len(x) * x.shape[1] // 2 - self._entries
        if not saves(self._entries, x) or (isinstance(x, Csr) and x.num_entries > most):
            return self.x
        return compact(x, self._kernel, most)

    def are(self, h: torch.Tensor) -> bool:
        """Whether h is X, which is not made dense for the question."""
        return h is self.given or h is vars(self).get("x")

    @property
    def sparse(self) -> bool:
        return isinstance(self.own, SparseRows)

    def halo(self, x_halo: torch.Tensor) -> Rows:
        """The halo's rows x_halo [m, f0], sparse where X is and where that saves. Where a system gives the
        same memory as the time before, not written to since, their sparse form is not made again.
        """
        if not self.sparse or x_halo.requires_grad:
            return x_halo
        # A weak reference keeps the storage's identity from being given to another, but not its memory.
        same = StorageWeakRef(storage_of(x_halo)), x_halo._version, x_halo.shape
        if self._halo is None or self._halo[0] != same:
            self._halo = same, compact(x_halo, self._kernel, x_halo.numel() // 2)
        rows = self._halo[1]
        if not isinstance(rows, SparseRows):
            self._halo = None  # dense rows are the system's to keep
        return rows
