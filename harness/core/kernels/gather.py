"""Vector instructions of the sparse product: sums of gathered rows, and reading ahead.

A row's sum lives in registers over all its entries, which neither numba nor LLVM arrives at by itself, so the
loop over entries is written here as vector instructions, one form per number of cache lines.
"""

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LINE = 64  # bytes of a cache line and of the widest vector register
LINES = (1, 2, 3, 4, 8)  # cache lines of a packed row that there is a loop for


def _fetch(builder, where, write: int = 0) -> None:
    """Ask for the cache line at pointer `where`: for reading or for writing, into every cache."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    options = [ir.Constant(flag, value) for value in (write, 3, 1)]  # to be kept in all caches, data
    builder.call(fetch, [builder.bitcast(where, byte), *options])


@intrinsic
def fetch_entry(typing, indices, entry):
    """Read the cache line of indices[entry] ahead."""
    signature = types.void(indices, types.int64)

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        _fetch(builder, builder.gep(array.data, [args[1]]))
        return context.get_dummy_value()

    return signature, generate


def _fetch_row(write: int):
    """Ask for columns [first, last) of a row of an array [rows, columns]."""

    @intrinsic
    def fetch(typing, rows, row, first, last):
        signature = types.void(rows, types.int64, types.int64, types.int64)

        def generate(context, builder, signature, args):
            array = context.make_array(signature.args[0])(context, builder, args[0])
            word = ir.IntType(64)
            columns = cgutils.unpack_tuple(builder, array.shape)[1]
            begin = builder.gep(array.data, [builder.mul(args[1], columns)])
            step = ir.Constant(word, LINE // (rows.dtype.bitwidth // 8))
            with cgutils.for_range_slice(builder, args[2], args[3], step, inc=True) as (k, _):
                _fetch(builder, builder.gep(begin, [k]), write)
            return context.get_dummy_value()

        return signature, generate

    return fetch


fetch_to_read, fetch_to_write = _fetch_row(0), _fetch_row(1)


def _gather_sum(lines: int, weighted: bool):
    """total += sum of packed[indices[e], at : at + F] (times values[e]) for e = start, start + 1, ... while
    e < end and indices[e] < high, one accumulator per column; F the values of `lines` cache lines. Returns
    the first e left.

    The row of entry min(e + ahead, last) is read ahead where it is below `high`; nothing where ahead is 0.
    """

    @intrinsic
    def gather_sum(typing, total, packed, indices, values, at, start, end, high, ahead, last):
        whole = types.int64
        signature = whole(total, packed, indices, values, *[whole] * 6)

        def generate(context, builder, signature, args):
            arrays = [
                context.make_array(kind)(context, builder, value)
                for kind, value in zip(signature.args[:4], args)
            ]
            data = [array.data for array in arrays]
            between = cgutils.unpack_tuple(builder, arrays[1].shape)[1]  # values from row to row
            first, start, end, high, ahead, last = args[4:]
            element = context.get_data_type(packed.dtype)
            size = packed.dtype.bitwidth // 8
            vector, word, flag = ir.VectorType(element, LINE // size), ir.IntType(64), ir.IntType(32)
            out = builder.bitcast(data[0], vector.as_pointer())
            rows = builder.gep(data[1], [first])
            at = [ir.Constant(word, line) for line in range(lines)]
            sums = [cgutils.alloca_once(builder, vector) for _ in at]
            cursor = cgutils.alloca_once_value(builder, start)
            for line, place in zip(at, sums):
                builder.store(builder.load(builder.gep(out, [line]), align=size), place)

            def column(e):
                return builder.sext(builder.load(builder.gep(data[2], [e])), word)

            def row(column):
                begin = builder.gep(rows, [builder.mul(column, between)])
                return builder.bitcast(begin, vector.as_pointer())

            # The loop over entries. `more`: is there one before `end`? `below`: is its column below `high`?
            # `look`: ask for the row of the entry `ahead` of it. `add`: add its own row to the sums.
            more, below, look, add, done = (
                builder.append_basic_block(name) for name in ("more", "below", "look", "add", "done")
            )
            looks = builder.icmp_signed(">", ahead, ir.Constant(word, 0))
            builder.branch(more)
            builder.position_at_end(more)
            e = builder.load(cursor)
            builder.cbranch(builder.icmp_signed("<", e, end), below, done)

            builder.position_at_end(below)
            here = column(e)
            source = row(here)
            builder.cbranch(builder.icmp_signed("<", here, high), look, done)

            builder.position_at_end(look)
            with builder.if_then(looks):
                later = builder.add(e, ahead)
                later = column(builder.select(builder.icmp_signed("<", later, last), later, last))
                later = row(builder.select(builder.icmp_signed("<", later, high), later, here))
                for line in at:
                    _fetch(builder, builder.gep(later, [line]))
            builder.branch(add)

            builder.position_at_end(add)
            if weighted:
                value = builder.load(builder.gep(data[3], [e]))
                if value.type != element:
                    cast = builder.fpext if element != ir.FloatType() else builder.fptrunc
                    value = cast(value, element)
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
            builder.store(builder.add(e, ir.Constant(word, 1)), cursor)
            builder.branch(more)

            builder.position_at_end(done)
            for line, place in zip(at, sums):
                builder.store(builder.load(place), builder.gep(out, [line]), align=size)
            return builder.load(cursor)

        return signature, generate

    return gather_sum


_sum_1, _sum_2, _sum_3, _sum_4, _sum_8 = (_gather_sum(lines, False) for lines in LINES)
_weighted_1, _weighted_2, _weighted_3, _weighted_4, _weighted_8 = (
    _gather_sum(lines, True) for lines in LINES
)


@numba.njit(nogil=True)
def add_entries(total, packed, indices, values, at, start, end, high, ahead, last):
    """total [F] += packed[indices[e], at : at + F] (times values[e] where there are values) for e = start,
    start + 1, ... while e < end and indices[e] < high. Returns the first e left.

    total   as long as one of `LINES`
    ahead   how many entries ahead a row is read, none beyond entry `last`; 0: rows are near already
    """
    lines = len(total) * packed.itemsize // LINE
    if len(values):
        if lines == 1:
            return _weighted_1(total, packed, indices, values, at, start, end, high, ahead, last)
        if lines == 2:
            return _weighted_2(total, packed, indices, values, at, start, end, high, ahead, last)
        if lines == 3:
            return _weighted_3(total, packed, indices, values, at, start, end, high, ahead, last)
        if lines == 4:
            return _weighted_4(total, packed, indices, values, at, start, end, high, ahead, last)
        return _weighted_8(total, packed, indices, values, at, start, end, high, ahead, last)
    if lines == 1:
        return _sum_1(total, packed, indices, values, at, start, end, high, ahead, last)
    if lines == 2:
        return _sum_2(total, packed, indices, values, at, start, end, high, ahead, last)
    if lines == 3:
        return _sum_3(total, packed, indices, values, at, start, end, high, ahead, last)
    if lines == 4:
        return _sum_4(total, packed, indices, values, at, start, end, high, ahead, last)
    return _sum_8(total, packed, indices, values, at, start, end, high, ahead, last)
