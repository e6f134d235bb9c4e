"""The sparse product compiled here: rows packed to whole cache lines where that pays, sums in registers.

For each pass over a few columns the (scaled) rows of x are packed into a buffer, and every output row then
adds up its entries' packed rows. Packing applies the column scale once per vertex instead of once per edge
and rounds rows up to whole cache lines, so that the sum has no ragged end. The tiling says how many columns a
pass takes, how far ahead it reads and whether it goes block by block over the source rows
(`harness.core.kernels.tiling`). Rows without a scale that few entries share, as in a mini-batch, or that lie
in the caches anyway, are gathered from where they are. None of this changes a bit: each column of a row has
one accumulator, to which the entries are added in ascending order.
"""

import functools
import math
from typing import NamedTuple

import numba
import numpy as np

from harness.core.kernels.gather import LINE, LINES, add_entries, fetch_entry, fetch_to_read, fetch_to_write
from harness.core.kernels.huge_pages import HugePages
from harness.core.kernels.parallel import by_threads, use_threads
from harness.core.kernels.tiling import Tiling, Tilings, shape_class
from harness.data.partition.shard import Csr

SERIAL_BELOW = 1 << 17  # additions: waking threads costs more than it saves
FEW = 8  # entries per row of x: with fewer, packing it does not pay
HELD, WIDE = 16 << 20, 4 * LINE  # nor does it for at most HELD bytes of x in rows of at least WIDE
NEXT, MOST = 4, 64  # output rows whose entries are read ahead, and the cache lines of each, at most


@functools.cache
def none(dtype: np.dtype) -> np.ndarray:
    """Stands for "no scale" and "no values" beside rows of this type: an array like the others, so that one
    compiled form serves every combination."""
    return np.empty(0, dtype)


@numba.njit(cache=True, nogil=True)
def _pack(first, last, x, k0, column, packed):
    """packed[p, v] = column[v] * x[v, k0 + p F : k0 + (p + 1) F], zeros beyond the width.

    packed   [passes, cols, F]
    """
    block = packed.shape[2]
    for v in range(first, last):
        scale = x.dtype.type(column[v]) if len(column) else x.dtype.type(1)
        for p in range(len(packed)):
            begin = min(k0 + p * block, x.shape[1])
            # Indices into slices start at 0: others might be negative, and a loop is then not vectorised.
            source, target = x[v, begin : begin + block], packed[p, v]
            for k in range(len(source)):
                target[k] = scale * source[k]
            for k in range(len(source), block):
                target[k] = 0


@numba.njit(cache=True, nogil=True)
def _begin(v, packed, at, self_loops, total):
    """total = packed[v, at : at + F] with self-loops, else 0."""
    if self_loops:
        row = packed[v, at : at + len(total)]
        for k in range(len(row)):
            total[k] = row[k]
    else:
        for k in range(len(total)):
            total[k] = 0


@numba.njit(cache=True, nogil=True)
def _write(v, total, skipped, k0, row, out, accumulate):
    """out[v, k0 : k0 + F] (+)= row[v] * total[skipped:], F values of it, or as many as out has."""
    scale = out.dtype.type(row[v]) if len(row) else out.dtype.type(1)
    width = min(len(total) - skipped, out.shape[1] - k0)
    # An index that might be negative would be looked at for each value; a slice costs more than a short row.
    if accumulate:
        for k in range(width):
            out[v, np.uintp(k0 + k)] += scale * total[np.uintp(skipped + k)]
    else:
        for k in range(width):
            out[v, np.uintp(k0 + k)] = scale * total[np.uintp(skipped + k)]


@numba.njit(cache=True, nogil=True)
def sum_rows(
    first, last, indptr, indices, values, packed, k0, row, self_loops, out, accumulate, ahead, block, partial,
    cursor
):  # fmt: skip
    """out[v, k0 : k0 + F] (+)= row[v] * (sum of v's packed rows), v in [first, last). With `accumulate` a row
    to which nothing is added is not touched.

    ahead     entries that are read ahead; 0: a block's rows are near
    block     source rows taken at a time; `partial` [rows, F] keeps the sums and `cursor` [rows] the first
              entry beyond the block; 0: all at once
    """
    columns = len(packed)
    # All source rows at once: the sum of an output row is held in `total` until it is written.
    if block == 0:
        total = np.empty(packed.shape[1], packed.dtype)
        final = np.int64(indptr[last]) - 1
        for v in range(first, last):
            start, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
            if accumulate and start == end and not self_loops:
                continue
            fetch_to_write(out, v, k0, min(k0 + len(total), out.shape[1]))
            _begin(v, packed, 0, self_loops, total)
            add_entries(total, packed, indices, values, 0, start, end, columns, ahead, final)
            _write(v, total, 0, k0, row, out, accumulate)
        return
    # Block by block: every output row goes on in `partial`, from the entry at its `cursor`.
    for v in range(first, last):
        _begin(v, packed, 0, self_loops, partial[v])
        cursor[v] = indptr[v]
    per_line, share = LINE // indices.itemsize, block / columns
    for low in range(0, columns, block):
        high = min(low + block, columns)
        for v in range(first, last):
            # Entries and the sum of a row soon to come: no processor sees by itself which ones are next.
            if v + NEXT < last:
                soon, begin = v + NEXT, cursor[v + NEXT]
                expected = np.int64(share * (np.int64(indptr[soon + 1]) - np.int64(indptr[soon])))
                for line in range(min(MOST, 1 + expected // per_line)):
                    fetch_entry(indices, begin + line * per_line)  # type: ignore[call-arg]  # numba's context
                fetch_to_write(partial, soon, 0, partial.shape[1])
            # The first rows that the next output row needs: its entries do not follow this one's.
            if ahead and v + 1 < last:
                for e in range(cursor[v + 1], min(cursor[v + 1] + ahead, np.int64(indptr[v + 2]))):
                    if indices[e] >= high:
                        break
                    fetch_to_read(packed, np.int64(indices[e]), 0, packed.shape[1])
            end = np.int64(indptr[v + 1])
            cursor[v] = add_entries(
                partial[v], packed, indices, values, 0, cursor[v], end, high, ahead, end - 1
            )
    for v in range(first, last):
        if not accumulate or self_loops or indptr[v] < indptr[v + 1]:
            _write(v, partial[v], 0, k0, row, out, accumulate)


@numba.njit(cache=True, nogil=True)
def sum_unpacked(
    first, last, indptr, indices, values, x, row, self_loops, out, accumulate, ahead, taken
):  # fmt: skip
    """out[v] (+)= row[v] * (sum of v's rows of x), v in [first, last), `taken` columns at a time from where
    they lie. The last ones begin so that they end with the row: some columns are summed twice, none is
    written twice.
    """
    total, columns, width = np.empty(taken, x.dtype), len(x), x.shape[1]
    final = np.int64(indptr[last]) - 1
    for v in range(first, last):
        start, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        if accumulate and start == end and not self_loops:
            continue
        for k0 in range(0, width, taken):
            at = min(k0, width - taken)
            fetch_to_write(out, v, k0, min(k0 + taken, width))
            _begin(v, x, at, self_loops, total)
            add_entries(total, x, indices, values, at, start, end, columns, ahead, final)
            _write(v, total, k0 - at, k0, row, out, accumulate)


@numba.njit(cache=True, nogil=True)
def _passes(
    first, last, indptr, indices, values, packed, k0, row, self_loops, out, accumulate, ahead, block, partial,
    cursor,
):  # fmt: skip
    """`sum_rows` for each pass that is packed."""
    for p in range(len(packed)):
        begin = k0 + p * packed.shape[2]
        if begin < out.shape[1]:
            sum_rows(
                first, last, indptr, indices, values, packed[p], begin, row, self_loops, out, accumulate,
                ahead, block, partial, cursor,
            )  # fmt: skip


@by_threads
def _product(
    bounds, indptr, indices, values, x, row, column, self_loops, out, accumulate, packed, packs, ahead, block,
    partial, cursor,
):  # fmt: skip
    parts, columns = len(bounds) - 1, len(x)
    for k0 in range(0, x.shape[1], len(packed) * packed.shape[2]):
        if packs:
            for part in numba.prange(parts):
                _pack(columns * part // parts, columns * (part + 1) // parts, x, k0, column, packed)
        for part in numba.prange(parts):
            _passes(
                bounds[part], bounds[part + 1], indptr, indices, values, packed, k0, row, self_loops, out,
                accumulate, ahead, block, partial, cursor,
            )  # fmt: skip


@by_threads
def _unpacked(
    bounds, indptr, indices, values, x, row, self_loops, out, accumulate, ahead, taken
):  # fmt: skip
    for part in numba.prange(len(bounds) - 1):
        sum_unpacked(
            bounds[part], bounds[part + 1], indptr, indices, values, x, row, self_loops, out, accumulate,
            ahead, taken,
        )  # fmt: skip


def balanced_bounds(indptr: np.ndarray, parts: int) -> np.ndarray:
    """[parts + 1] int64 row bounds that give every part about the same number of entries plus rows."""
    rows = len(indptr) - 1
    if parts == 1:
        return np.array([0, rows], np.int64)
    load = indptr[1:].astype(np.int64) + np.arange(1, rows + 1)
    targets = np.arange(1, parts) * (load[-1] if rows else 0) // parts
    return np.concatenate([[0], np.searchsorted(load, targets, side="right"), [rows]]).astype(np.int64)


def buffer(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of undefined content that begins at a cache line."""
    size = math.prod(shape)
    memory = np.empty(size + LINE // dtype.itemsize, dtype)
    begin = -memory.ctypes.data % LINE // dtype.itemsize
    return memory[begin : begin + size].reshape(shape)


def leaves_unpacked(columns: int, entries: int, width_bytes: int, tiling: Tiling) -> bool:
    """Whether rows that have no scale are gathered from where they lie: where few entries share one, or where
    all of them fit the caches and are so long that a ragged end counts for little.

    width_bytes   of a row
    """
    if width_bytes < LINE or tiling.block_rows(columns):
        return False
    near = columns * width_bytes <= HELD and width_bytes >= WIDE
    return near or entries < FEW * columns


class _Way(NamedTuple):
    """How a product with rows of one width is computed.

    unpacked   rows are gathered from where they lie, `taken` columns at a time
    passes, taken   else they are packed, for `passes` passes at a time, each over `taken` columns
    whole      a pass takes whole rows, without a scale: they need no packing where they begin at a cache line
    """

    tiling: Tiling
    unpacked: bool
    taken: int
    passes: int
    whole: bool


class NumbaProduct:
    """out (+)= row * (B + s I) (column * x) for one block B, over any float type.

    memory   where rows are packed; None: its own
    """

    def __init__(
        self,
        block: Csr,
        values: np.ndarray | None = None,
        tilings: Tilings | None = None,
        memory: HugePages | None = None,
    ):
        self._block, self._tilings, self._memory = block, tilings or Tilings(), memory or HugePages()
        self._values = None if values is None else np.ascontiguousarray(values)
        self._bounds: dict[int, np.ndarray] = {}
        self._ways: dict[tuple[int, int, bool], _Way] = {}

    def is_small(self, width: int) -> bool:
        """Whether a product with rows of `width` is done sooner by one thread."""
        block = self._block
        return (block.num_entries + block.num_rows + block.num_columns) * width < SERIAL_BELOW

    def memory(self, width: int, itemsize: int, unscaled: bool) -> tuple[int, int]:
        """The most bytes in which rows of `width` are packed, and in which sums are kept between blocks of
        source rows (0 where the shape is too small to be measured: only measured tilings have blocks)."""
        way, block = self._way(width, itemsize, unscaled), self._block
        packed = 0 if way.unpacked or way.whole else way.passes * block.num_columns * way.taken * itemsize
        blocked = shape_class(block.num_rows, block.num_columns, block.num_entries) is not None
        return packed, block.num_rows * way.taken * itemsize * blocked

    def apply(self, x, row, column, self_loops: bool, out, accumulate: bool) -> None:
        """x [cols, F] and out [rows, F] contiguous; row [rows] and column [cols] or None."""
        width, block = x.shape[1], self._block
        if width == 0 or block.num_rows == 0:
            return
        # These steps take longer than a product of few rows, so what they find is kept where it can be.
        given, target = x.numpy(), out.numpy()
        key = width, given.itemsize, column is None
        way = self._ways.get(key)
        if way is None:
            way = self._ways[key] = self._way(*key)
        nothing = none(given.dtype)
        # Scales and values that have another type than the rows, as in a test, get theirs here and not in the
        # loops, which would be compiled for each combination of types.
        scale = nothing if row is None else row.numpy().astype(given.dtype, copy=False)
        values = nothing if self._values is None else self._values.astype(given.dtype, copy=False)
        bounds = self._parts(width)
        if way.unpacked:
            _unpacked(
                bounds, block.indptr, block.indices, values, given, scale, self_loops, target, accumulate,
                way.tiling.ahead, way.taken,
            )  # fmt: skip
        elif way.whole and x.data_ptr() % LINE == 0:
            # Rows that are whole cache lines, and are not scaled, are gathered from where they lie.
            self._sum(
                values, given, scale, nothing, self_loops, target, accumulate, given[None], False, way, bounds
            )
        else:
            columns = nothing if column is None else column.numpy().astype(given.dtype, copy=False)
            packed = self._memory.array((way.passes, len(given), way.taken), given.dtype)
            self._sum(
                values, given, scale, columns, self_loops, target, accumulate, packed, True, way, bounds
            )

    def _way(self, width: int, itemsize: int, unscaled: bool) -> _Way:
        """How a product with rows of `width` values is computed; unscaled: it has no column scale."""
        block, width_bytes = self._block, width * itemsize
        line, lines = LINE // itemsize, -(-width_bytes // LINE)
        tiling = self._tilings.choose(block.num_rows, block.num_columns, block.num_entries, lines)
        unpacked = unscaled and leaves_unpacked(block.num_columns, block.num_entries, width_bytes, tiling)
        # Columns of a pass; of rows that are not packed the most that a pass can take.
        taken = line * (max(n for n in LINES if n * line <= width) if unpacked else tiling.lines)
        # Threads wait for each other once per buffer, not once per pass.
        passes = min(-(-width // taken), max(1, LINES[-1] // tiling.lines))
        return _Way(tiling, unpacked, taken, passes, unscaled and taken == width)

    def _sum(
        self,
        values,
        x,
        row,
        column,
        self_loops,
        out,
        accumulate,
        packed,
        packs: bool,
        way: _Way,
        bounds: np.ndarray,
    ) -> None:
        """`apply`, with rows packed, or as they are, in `packed` [passes, cols, columns of a pass]."""
        block = self._block
        block_rows = way.tiling.block_rows(block.num_columns)
        kept = block.num_rows if block_rows else 0  # rows whose sums are kept between blocks of source rows
        partial = (buffer if kept else np.empty)((kept, way.taken), packed.dtype)
        _product(
            bounds, block.indptr, block.indices, values, x, row, column, self_loops, out, accumulate,
            packed, packs, way.tiling.ahead, block_rows, partial, np.empty(kept, np.int64),
        )  # fmt: skip

    def _parts(self, width: int) -> np.ndarray:
        """Bounds of the rows that each thread of a product with rows of `width` takes."""
        threads = 1 if self.is_small(width) else use_threads()
        if threads not in self._bounds:
            self._bounds[threads] = balanced_bounds(self._block.indptr, threads)
        return self._bounds[threads]
