"""The sparse product compiled here: rows packed to whole cache lines, sums in registers.

For each block of up to 128 float32 columns the (scaled) rows of x are packed into a buffer, and every output
row then adds up its entries' packed rows. Packing applies the column scale once per vertex instead of once
per edge and rounds rows up to whole cache lines, so that the sum has no ragged end. A row's sum lives in
registers over all its entries, which neither numba nor LLVM arrives at by itself: the inner loop is written
as vector instructions.
"""

from __future__ import annotations

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from harness.core.parallel import use_threads
from harness.partition.shard import Csr

LINE = 64  # bytes of a cache line and of the widest vector register
PREFETCH = 8  # entries ahead
SERIAL_BELOW = 1 << 17  # additions: waking threads costs more than it saves


def _gather_sum(lines: int, weighted: bool, prefetch: bool):
    """total += sum of packed[indices[e]] (times values[e]) for e in [start, end), rows of `lines` cache lines
    each.
    """

    @intrinsic
    def gather_sum(typing, total, packed, indices, values, start, end):
        signature = types.void(total, packed, indices, values, types.int64, types.int64)

        def generate(context, builder, signature, args):
            data = [
                context.make_array(kind)(context, builder, value).data
                for kind, value in zip(signature.args[:4], args)
            ]
            element = context.get_data_type(packed.dtype)
            size = packed.dtype.bitwidth // 8
            vector, word, flag = ir.VectorType(element, LINE // size), ir.IntType(64), ir.IntType(32)
            out = builder.bitcast(data[0], vector.as_pointer())
            rows = builder.bitcast(data[1], vector.as_pointer())
            at = [ir.Constant(word, line) for line in range(lines)]
            sums = [cgutils.alloca_once(builder, vector) for _ in at]
            for line, place in zip(at, sums):
                builder.store(builder.load(builder.gep(out, [line]), align=size), place)
            last = builder.sub(args[5], ir.Constant(word, 1))

            def row(e):
                column = builder.sext(builder.load(builder.gep(data[2], [e])), word)
                return builder.gep(rows, [builder.mul(column, ir.Constant(word, lines))])

            with cgutils.for_range_slice(builder, args[4], args[5], ir.Constant(word, 1), inc=True) as (e, _):
                if prefetch:
                    byte = ir.IntType(8).as_pointer()
                    fetch = cgutils.get_or_insert_function(
                        builder.module,
                        ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]),
                        "llvm.prefetch.p0",
                    )
                    ahead = builder.add(e, ir.Constant(word, PREFETCH))
                    ahead = row(builder.select(builder.icmp_signed("<", ahead, last), ahead, last))
                    for line in at:
                        where = builder.bitcast(builder.gep(ahead, [line]), byte)
                        builder.call(
                            fetch, [where, ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)]
                        )
                source = row(e)
                if weighted:
                    value = builder.load(builder.gep(data[3], [e]))
                    if value.type != element:
                        value = (
                            builder.fpext(value, element)
                            if element != ir.FloatType()
                            else builder.fptrunc(value, element)
                        )
                    weight = builder.insert_element(
                        ir.Constant(vector, ir.Undefined), value, ir.Constant(flag, 0)
                    )
                    weight = builder.shuffle_vector(
                        weight, weight, ir.Constant(ir.VectorType(flag, LINE // size), None)
                    )
                for line, place in zip(at, sums):
                    term = builder.load(builder.gep(source, [line]), align=size)
                    if weighted:
                        term = builder.fmul(term, weight)
                    builder.store(builder.fadd(builder.load(place), term), place)
            for line, place in zip(at, sums):
                builder.store(builder.load(place), builder.gep(out, [line]), align=size)
            return context.get_dummy_value()

        return signature, generate

    return gather_sum


# The longest rows pay for reading ahead; on short ones it costs more than it hides.
_sum_1, _sum_2, _sum_3, _sum_4, _sum_8 = (_gather_sum(lines, False, lines == 8) for lines in (1, 2, 3, 4, 8))
_weighted_1, _weighted_2, _weighted_3, _weighted_4, _weighted_8 = (
    _gather_sum(lines, True, lines == 8) for lines in (1, 2, 3, 4, 8)
)


@numba.njit(nogil=True)
def _add_entries(total, packed, indices, values, start, end):
    lines = packed.shape[1] * packed.itemsize // LINE
    if lines == 1:
        _sum_1(total, packed, indices, values, start, end)
    elif lines == 2:
        _sum_2(total, packed, indices, values, start, end)
    elif lines == 3:
        _sum_3(total, packed, indices, values, start, end)
    elif lines == 4:
        _sum_4(total, packed, indices, values, start, end)
    else:
        _sum_8(total, packed, indices, values, start, end)


@numba.njit(nogil=True)
def _add_weighted_entries(total, packed, indices, values, start, end):
    lines = packed.shape[1] * packed.itemsize // LINE
    if lines == 1:
        _weighted_1(total, packed, indices, values, start, end)
    elif lines == 2:
        _weighted_2(total, packed, indices, values, start, end)
    elif lines == 3:
        _weighted_3(total, packed, indices, values, start, end)
    elif lines == 4:
        _weighted_4(total, packed, indices, values, start, end)
    else:
        _weighted_8(total, packed, indices, values, start, end)


# Stands for "no scale" and "no values": an array like the others, so that one compiled form serves every
# combination.
_NONE = np.empty(0, np.float32)


@numba.njit(cache=True, nogil=True)
def _pack(first, last, x, k0, column, packed):
    """packed[v] = column[v] * x[v, k0 : k0 + block], zeros beyond the width."""
    width = min(packed.shape[1], x.shape[1] - k0)
    for v in range(first, last):
        scale = x.dtype.type(column[v]) if len(column) else x.dtype.type(1)
        for k in range(width):
            packed[v, k] = scale * x[v, k0 + k]
        for k in range(width, packed.shape[1]):
            packed[v, k] = 0


@numba.njit(cache=True, nogil=True)
def _sum(first, last, indptr, indices, values, packed, k0, row, self_loops, out, accumulate):
    """out[v, k0 : k0 + block] (+)= row[v] * (sum of v's packed rows)."""
    block = packed.shape[1]
    width = min(block, out.shape[1] - k0)
    total = np.empty(block, packed.dtype)
    for v in range(first, last):
        start, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        if self_loops:
            for k in range(block):
                total[k] = packed[v, k]
        else:
            for k in range(block):
                total[k] = 0
        if len(values):
            _add_weighted_entries(total, packed, indices, values, start, end)
        else:
            _add_entries(total, packed, indices, values, start, end)
        scale = out.dtype.type(row[v]) if len(row) else out.dtype.type(1)
        if accumulate:
            for k in range(width):
                out[v, k0 + k] += scale * total[k]
        else:
            for k in range(width):
                out[v, k0 + k] = scale * total[k]


@numba.njit(cache=True, nogil=True)
def _product(indptr, indices, values, x, row, column, self_loops, out, accumulate, packed):
    for k0 in range(0, x.shape[1], packed.shape[1]):
        _pack(0, len(x), x, k0, column, packed)
        _sum(0, len(out), indptr, indices, values, packed, k0, row, self_loops, out, accumulate)


@numba.njit(cache=True, nogil=True, parallel=True)
def _product_parallel(bounds, indptr, indices, values, x, row, column, self_loops, out, accumulate, packed):
    parts, columns = len(bounds) - 1, len(x)
    for k0 in range(0, x.shape[1], packed.shape[1]):
        for part in numba.prange(parts):
            _pack(columns * part // parts, columns * (part + 1) // parts, x, k0, column, packed)
        for part in numba.prange(parts):
            _sum(
                bounds[part],
                bounds[part + 1],
                indptr,
                indices,
                values,
                packed,
                k0,
                row,
                self_loops,
                out,
                accumulate,
            )


def balanced_bounds(indptr: np.ndarray, parts: int) -> np.ndarray:
    """[parts + 1] int64 row bounds that give every part about the same number of entries plus rows."""
    rows = len(indptr) - 1
    load = indptr[1:].astype(np.int64) + np.arange(1, rows + 1)
    targets = np.arange(1, parts) * (load[-1] if rows else 0) // parts
    return np.concatenate([[0], np.searchsorted(load, targets, side="right"), [rows]]).astype(np.int64)


def block_lines(width_bytes: int) -> int:
    """Cache lines (1, 2, 3, 4 or 8) of a packed row: the whole row where it fits, else equal blocks with
    little waste.
    """
    lines = -(-width_bytes // LINE)
    lines = -(-lines // -(-lines // 8))
    return lines if lines <= 4 or lines == 8 else 8 if lines == 7 else 3


class NumbaProduct:
    """out (+)= row * (B + s I) (column * x) for one block B, over any float type."""

    def __init__(self, block: Csr, values: np.ndarray | None = None):
        self._block = block
        self._values = _NONE if values is None else np.ascontiguousarray(values)
        self._bounds: dict[int, np.ndarray] = {}

    def is_small(self, width: int) -> bool:
        """Whether a product with rows of `width` is done sooner by one thread."""
        block = self._block
        return (block.num_entries + block.num_rows + block.num_columns) * width < SERIAL_BELOW

    def apply(self, x, row, column, self_loops: bool, out, accumulate: bool) -> None:
        """x [cols, F] and out [rows, F] contiguous; row [rows] and column [cols] float32 or None."""
        block, (columns, width) = self._block, x.shape
        if width == 0 or block.num_rows == 0:
            return
        lines = block_lines(width * x.element_size())
        packed = torch.empty(columns, lines * LINE // x.element_size(), dtype=x.dtype).numpy()
        arguments = (
            block.indptr, block.indices, self._values, x.numpy(), _NONE if row is None else row.numpy(),
            _NONE if column is None else column.numpy(), self_loops, out.numpy(), accumulate, packed,
        )  # fmt: skip
        threads = 1 if self.is_small(width) else use_threads()
        if threads == 1:
            _product(*arguments)
            return
        if threads not in self._bounds:
            self._bounds[threads] = balanced_bounds(block.indptr, threads)
        _product_parallel(self._bounds[threads], *arguments)
