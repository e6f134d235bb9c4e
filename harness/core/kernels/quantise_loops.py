"""Compiled loops of `harness.core.quantise`. One call codes or reads whole messages: where rows are few, a
call takes longer than its work.

`places` [p, 3] int64 say where rows of a matrix lie in bytes: rows from the first number up to the second,
one after the other from the byte on that the third one tells.
"""

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def row_maxima(x, whole, largest):
    """largest [k] <- max |x| of each row of x, NaN where one of its values is.

    Without signs, floats have the order of their bits read as whole numbers, and NaN is beyond all others.
    Whole numbers are compared, which is vectorised; `whole` is an array of their type.
    """
    bits, most, number = x.view(whole.dtype), largest.view(whole.dtype), whole.dtype.type
    for r in range(len(x)):
        found = number(0)
        for k in range(x.shape[1]):
            found = max(found, number(bits[r, k] << 1))
        most[r] = found >> 1


@numba.njit(cache=True, nogil=True)
def scales(largest, most, low, step, tails):
    """tails [n, 2] <- the bytes of the scales of `largest` [n], which are 0 or more; low, step [n] <- the
    least value and the step of their codes: what `_rounded_up` and `_range` give, the step 1 in place of 0.
    """
    number = largest.dtype.type
    whole = np.empty(1, np.float32)
    bits = whole.view(np.uint32)
    for i in range(len(largest)):
        whole[0] = largest[i]
        # A bfloat16 is the upper half of a float32: any bit below it makes it the next one.
        upper = (np.int64(bits[0]) + (0xFFFF if largest[i] == largest[i] else 0)) >> 16
        bits[0] = upper << 16
        if number(whole[0]) < largest[i]:  # a float64 that lies above its float32
            upper += 1
            bits[0] = upper << 16
        tails[i, 0], tails[i, 1] = np.uint8(upper & 255), np.uint8(upper >> 8)
        step[i] = number(whole[0]) / number(most)
        low[i] = -step[i] * number(most)
        if not step[i] > 0:
            step[i] = number(1)


@numba.njit(cache=True, nogil=True)
def read_scales(wire, most, low, step):
    """low, step [k] <- the least value and the step of each row's codes, by the scale in its last bytes."""
    number = low.dtype.type
    whole = np.empty(1, np.float32)
    bits = whole.view(np.uint32)
    for r in range(len(wire)):
        bits[0] = (np.int64(wire[r, -2]) | np.int64(wire[r, -1]) << 8) << 16
        step[r] = number(whole[0]) / number(most)
        low[r] = -step[r] * number(most)


@numba.njit(cache=True, nogil=True, inline="always")
def pack(codes, bits, wire):
    """The first bytes of wire <- codes [n] of 1, 2, 4 or 8 bits, the first of a byte in its lowest bits."""
    whole = len(codes) * bits >> 3
    # What the loop at the end says, without one inside another.
    if bits == 8:
        for b in range(whole):
            wire[b] = np.uint8(codes[b])
    elif bits == 4:
        for b in range(whole):
            wire[b] = np.uint8(codes[2 * b] | codes[2 * b + 1] << 4)
    elif bits == 2:
        for b in range(whole):
            low, high = codes[4 * b] | codes[4 * b + 1] << 2, codes[4 * b + 2] | codes[4 * b + 3] << 2
            wire[b] = np.uint8(low | high << 4)
    else:
        for b in range(whole):
            low, high = codes[8 * b] | codes[8 * b + 1] << 1, codes[8 * b + 4] | codes[8 * b + 5] << 1
            low |= codes[8 * b + 2] << 2 | codes[8 * b + 3] << 3
            high |= codes[8 * b + 6] << 2 | codes[8 * b + 7] << 3
            wire[b] = np.uint8(low | high << 4)
    if whole << 3 < len(codes) * bits:
        packed, first = 0, whole * (8 // bits)
        for k in range(first, len(codes)):
            packed |= codes[k] << bits * (k - first)
        wire[whole] = packed


@numba.njit(cache=True, nogil=True, inline="always")
def unpack(wire, bits, codes):
    """codes [n] uint8 <- what `pack` made wire of."""
    whole, mask = len(codes) * bits >> 3, np.uint8((1 << bits) - 1)
    if bits == 8:
        for b in range(whole):
            codes[b] = wire[b]
    elif bits == 4:
        for b in range(whole):
            codes[2 * b], codes[2 * b + 1] = wire[b] & mask, wire[b] >> 4
    elif bits == 2:
        for b in range(whole):
            for k in range(4):
                codes[4 * b + k] = wire[b] >> (2 * k) & mask
    else:
        for b in range(whole):
            for k in range(8):
                codes[8 * b + k] = wire[b] >> k & mask
    if whole << 3 < len(codes) * bits:
        first = whole * (8 // bits)
        for k in range(first, len(codes)):
            codes[k] = wire[whole] >> bits * (k - first) & mask


@numba.njit(cache=True, nogil=True)
def code(x, low, step, bits, noise, stochastic, shift, wire):
    """The first bytes of each row of wire [k, ..] <- the codes of x [k, F]; low, step [k]. What is added
    before rounding down is noise [k, F] where `stochastic`, else `shift`."""
    top, width = np.int32((1 << bits) - 1), x.shape[1]
    codes = np.empty(width, np.int32)
    for r in range(len(x)):
        # Read here: inside, the compiler would read them again for every value, since `codes` might be
        # the same memory.
        least, each = low[r], step[r]
        # No value lies below `low`: to truncate is to round down.
        if stochastic:
            for k in range(width):
                codes[k] = min(np.int32((x[r, k] - least) / each + noise[r, k]), top)
        else:
            for k in range(width):
                codes[k] = min(np.int32((x[r, k] - least) / each + shift), top)
        # The first two are as in `pack`, which takes half as long again here.
        if bits == 8:
            for k in range(width):
                wire[r, k] = np.uint8(codes[k])
        elif bits == 4:
            for b in range(width // 2):
                wire[r, b] = np.uint8(codes[2 * b] | codes[2 * b + 1] << 4)
            if width % 2:
                wire[r, width // 2] = np.uint8(codes[width - 1])
        elif bits == 16:
            for k in range(width):
                code = codes[k]
                wire[r, 2 * k] = code & 255
                wire[r, 2 * k + 1] = code >> 8
        else:
            pack(codes, bits, wire[r])


@numba.njit(cache=True, nogil=True)
def restore(wire, low, step, bits, rows):
    """rows [k, F] <- those that the codes of `code` in wire [k, ..] stand for."""
    width, number = rows.shape[1], rows.dtype.type
    codes = np.empty(width, np.uint8)
    for r in range(len(rows)):
        least, each = low[r], step[r]
        if bits == 16:
            for k in range(width):
                code = np.int32(wire[r, 2 * k]) | np.int32(wire[r, 2 * k + 1]) << 8
                rows[r, k] = least + number(code) * each
        else:
            # First codes, then numbers: both loops are vectorised.
            unpack(wire[r], bits, codes)
            for k in range(width):
                rows[r, k] = least + number(codes[k]) * each


@numba.njit(cache=True, nogil=True, fastmath={"reassoc"})
def total(values):
    """Their sum, several at a time."""
    found: np.floating = values.dtype.type(0)
    for k in range(len(values)):
        found += values[k]
    return found


@numba.njit(cache=True, nogil=True)
def nearest(x, last, rate, ahead, ends, bits, choices, wire):
    """choices [k] <- 0, 1 or 2 where c, p or (c + p) / 2 is nearest to a row of x [k, F], by the sum of
    absolute differences; p is ahead rate + last, c the middles of the buckets between `ends` [2] that x is
    in. wire [bytes] <- the codes of the rows whose choice is not p; returns how many these are
    (`systems.ecgraph`).
    """
    count, width, number, top = 0, x.shape[1], x.dtype.type, np.int32((1 << bits) - 1)
    low, bucket, half = ends[0], (ends[1] - ends[0]) / number(1 << bits), number(0.5)
    step = bucket if bucket > 0 else number(1)
    codes, errors = np.empty(x.shape, np.uint8), np.empty((3, width), x.dtype)
    for r in range(len(x)):
        for k in range(width):
            code = min(np.int32((x[r, k] - low) / step), top)
            codes[count, k] = np.uint8(code)
            p = number(ahead) * rate[r, k] + last[r, k]
            of_c, of_p = (number(code) + half) * bucket + low - x[r, k], p - x[r, k]
            errors[0, k], errors[1, k], errors[2, k] = abs(of_c), abs(of_p), abs(of_c + of_p)
        least, other = total(errors[0]), total(errors[1])
        chosen = int(other < least)
        if total(errors[2]) / number(2) < min(least, other):
            chosen = 2
        choices[r] = chosen
        count += chosen != 1
    pack(codes[:count].reshape(-1), bits, wire)
    return count


@numba.njit(cache=True, nogil=True)
def restore_nearest(wire, choices, ends, bits, last, rate, ahead, rows):
    """rows [k, F] <- those that `nearest` chose."""
    at, width, number = 0, rows.shape[1], rows.dtype.type
    low, bucket, half = ends[0], (ends[1] - ends[0]) / number(1 << bits), number(0.5)
    codes = np.empty(rows.shape, np.uint8)
    unpack(wire, bits, codes.reshape(-1)[: len(wire) * 8 // bits])  # the last byte may hold fewer
    for r in range(len(rows)):
        if choices[r] == 1:
            for k in range(width):
                rows[r, k] = number(ahead) * rate[r, k] + last[r, k]
            continue
        if choices[r] == 0:
            for k in range(width):
                rows[r, k] = (number(codes[at, k]) + half) * bucket + low
        else:
            for k in range(width):
                p = number(ahead) * rate[r, k] + last[r, k]
                rows[r, k] = ((number(codes[at, k]) + half) * bucket + low + p) / number(2)
        at += 1


@numba.njit(cache=True, nogil=True)
def compensate(x, ends, bits, wire):
    """wire [bytes] <- the codes of x [k, F]; x <- what is left out, x less the middles of its buckets."""
    number, top = x.dtype.type, np.int32((1 << bits) - 1)
    low, bucket, half = ends[0], (ends[1] - ends[0]) / number(1 << bits), number(0.5)
    step = bucket if bucket > 0 else number(1)
    codes = np.empty(x.shape, np.uint8)
    for r in range(len(x)):
        for k in range(x.shape[1]):
            code = min(np.int32((x[r, k] - low) / step), top)
            codes[r, k] = np.uint8(code)
            x[r, k] -= (number(code) + half) * bucket + low
    pack(codes.reshape(-1), bits, wire)


@numba.njit(cache=True, nogil=True)
def column_maxima(rows, ends, most):
    """most [messages, F], 0 before, <- max |x| of each column of each message, NaN where a value is."""
    first = 0
    for message in range(len(ends)):
        for r in range(first, ends[message]):
            for k in range(rows.shape[1]):
                value, before = abs(rows[r, k]), most[message, k]
                most[message, k] = value if (value > before) | (value != value) else before
        first = ends[message]


@numba.njit(cache=True, nogil=True)
def code_columns(rows, ends, low, step, bits, noise, tails, wire):
    """`code` of the columns of each message, bits 4 or 8; tails [messages, F, 2] are the scales' bytes."""
    top, width, first, at, drawn = np.int32((1 << bits) - 1), rows.shape[1], 0, 0, 0
    for message in range(len(ends)):
        count = ends[message] - first
        for k in range(width if count else 0):
            least, each = low[message, k], step[message, k]
            for r in range(count):
                code = np.int32((rows[first + r, k] - least) / each + noise[drawn + r])
                code = min(code, top)
                if bits == 8:
                    wire[at + r] = np.uint8(code)
                elif r % 2:
                    wire[at + r // 2] |= np.uint8(code << 4)
                else:
                    wire[at + r // 2] = np.uint8(code)
            at += count if bits == 8 else (count + 1) // 2
            wire[at], wire[at + 1] = tails[message, k, 0], tails[message, k, 1]
            at += 2
            drawn += count
        first = ends[message]


@numba.njit(cache=True, nogil=True)
def scaled(x, whole, places, bits, noise, shift, wire):
    """wire [bytes] <- the codes and the scale of each row of x [r, c] that has a place; noise [r, c], or
    nothing: `shift` for each value.
    """
    most, size = (1 << (bits - 1)) - 1, (x.shape[1] * bits + 7) // 8 + 2
    for p in range(len(places)):
        first, last, at = places[p]
        count = last - first
        rows, into = x[first:last], wire[at : at + count * size].reshape((count, size))
        largest, low, step = np.empty(count, x.dtype), np.empty(count, x.dtype), np.empty(count, x.dtype)
        row_maxima(rows, whole, largest)
        scales(largest, most, low, step, into[:, size - 2 :])
        code(rows, low, step, bits, noise[first:last], len(noise) > 0, shift, into)


@numba.njit(cache=True, nogil=True)
def restored(wire, bits, rows):
    """rows [k, c] <- those that wire [bytes], as `scaled` wrote it, stands for."""
    count, width = rows.shape
    parts = wire.reshape((count, (width * bits + 7) // 8 + 2))
    low, step = np.empty(count, rows.dtype), np.empty(count, rows.dtype)
    read_scales(parts, (1 << (bits - 1)) - 1, low, step)
    restore(parts, low, step, bits, rows)


@numba.njit(cache=True, nogil=True)
def add_restored(wire, places, bits, into):
    """Those rows of `into` [r, c] that have a place in wire [bytes] += the rows that are coded there."""
    size = (into.shape[1] * bits + 7) // 8 + 2
    for p in range(len(places)):
        first, last, at = places[p]
        rows = np.empty((last - first, into.shape[1]), into.dtype)
        restored(wire[at : at + (last - first) * size], bits, rows)
        for r in range(len(rows)):
            for k in range(rows.shape[1]):
                into[first + r, k] += rows[r, k]


@numba.njit(cache=True, nogil=True)
def sum_restored(wire, starts, before, own, bits, total):
    """total [k, c] <- the sum of the rows that begin at each of `starts` in wire [bytes], one after the
    other, and of `own` after the first `before` of them."""
    count, width = total.shape
    rows, nbytes = np.empty_like(total), count * ((width * bits + 7) // 8 + 2)
    total[:] = 0
    for s in range(len(starts) + 1):
        if s != before:
            start = starts[s - (s > before)]
            restored(wire[start : start + nbytes], bits, rows)
        term = own if s == before else rows
        for r in range(count):
            for k in range(width):
                total[r, k] += term[r, k]


@numba.njit(cache=True, nogil=True)
def scaled_columns(rows, ends, bits, noise, wire):
    """wire [bytes] <- messages of rows that end at `ends`, each with a scale per column."""
    shape = len(ends), rows.shape[1]
    largest, low, step = np.zeros(shape, rows.dtype), np.empty(shape, rows.dtype), np.empty(shape, rows.dtype)
    tails = np.empty((len(ends), rows.shape[1], 2), np.uint8)
    column_maxima(rows, ends, largest)
    most = (1 << (bits - 1)) - 1
    scales(largest.ravel(), most, low.ravel(), step.ravel(), tails.reshape((largest.size, 2)))
    code_columns(rows, ends, low, step, bits, noise, tails, wire)


@numba.njit(cache=True, nogil=True)
def restore_columns(wire, ends, bits, rows):
    """rows [k, F] <- those that wire [bytes], as `scaled_columns` wrote it, stands for."""
    first, at, width = 0, 0, rows.shape[1]
    for message in range(len(ends)):
        count = ends[message] - first
        if not count:
            continue
        nbytes, columns = width * ((count * bits + 7) // 8 + 2), np.empty((width, count), rows.dtype)
        restored(wire[at : at + nbytes], bits, columns)
        rows[first : ends[message]] = columns.T
        first, at = ends[message], at + nbytes
