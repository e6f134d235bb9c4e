"""Linear quantisation of rows to B bits, packed into the bytes that travel.

    q = (x - low) / (high - low) (2^B - 1), rounded;   x' = low + q (high - low) / (2^B - 1)

with low and high the least and largest entry of each row. To round is floor(q + u): u = 0.5 to the nearest,
halves up; u uniform in [0, 1) stochastically, which is unbiased. A row whose entries are all equal is
restored exactly. A row travels as B F bits of codes (whole bytes) and the two constants in the rows' own
precision; `quantise_scaled` has one constant instead, of two bytes. On the CPU codes are made and read by
compiled loops, to the bit what the torch operations give.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
import torch

BITS = (2, 4, 8, 16)


def code_bytes(width: int, bits: int) -> int:
    """Bytes of the codes of one row: B F bits rounded up."""
    return -(-width * bits // 8)


def row_bytes(width: int, bits: int, dtype: torch.dtype) -> int:
    """Bytes of one row on the wire: its codes and two constants."""
    return code_bytes(width, bits) + 2 * dtype.itemsize


def quantise(x: torch.Tensor, bits: int, noise: torch.Tensor | float = 0.5) -> torch.Tensor:
    """The wire form [k, row_bytes] uint8 of x [k, F]; `noise` is u, one number or [k, F]."""
    wire = x.new_empty(len(x), row_bytes(x.shape[1], bits, x.dtype), dtype=torch.uint8)
    if not x.numel():
        return wire
    size = 2 * x.dtype.itemsize
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)  # aminmax takes three times as long
    step = (high - low) / ((1 << bits) - 1)
    step = torch.where(step > 0, step, torch.ones_like(step))
    wire[:, -size:] = torch.cat([low, high], 1).view(torch.uint8)
    _write_codes(wire, x, low, step, bits, noise)
    return wire


def dequantise(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows [k, width] that a wire form stands for."""
    size = 2 * dtype.itemsize
    if not len(wire) or not width:
        return torch.empty(len(wire), width, dtype=dtype, device=wire.device)
    low, high = wire[:, -size:].clone(memory_format=torch.contiguous_format).view(dtype).split(1, 1)
    return _read_codes(wire, width, low, (high - low) / ((1 << bits) - 1), bits)


def rounding_error(x: torch.Tensor, wire: torch.Tensor, bits: int) -> float:
    """The largest |x - x'| of x [k, F] and what its wire form stands for, over its row's
    (high - low) / 2^(B+1); 0 without rows. Rows whose precision is no finer than a hundredth of that are left
    out: what they lose is due to arithmetic.
    """
    if not x.numel():
        return 0.0
    bound = (x.amax(1) - x.amin(1)) / (1 << (bits + 1))
    known = bound > 100 * torch.finfo(x.dtype).eps * x.abs().amax(1)
    error = (x - dequantise(wire, x.shape[1], bits, x.dtype)).abs().amax(1)
    return float((error[known] / bound[known]).max()) if known.any() else 0.0


def scaled_bytes(width: int, bits: int) -> int:
    """Bytes of one row on the wire of `quantise_scaled`: its codes and a scale of 2 bytes."""
    return code_bytes(width, bits) + 2


def quantise_scaled(x: torch.Tensor, bits: int, noise: torch.Tensor | float = 0.5) -> torch.Tensor:
    """The wire form [k, scaled_bytes] uint8 of x [k, F] with one constant per row, for values on both sides
    of 0:

        q = floor(x / S + u) + K,   x' = (q - K) S,   S = scale / K,   K = 2^(B-1) - 1

    The scale is max |x|, rounded up to bfloat16 so that no value lies beyond it: with u uniform in [0, 1)
    E x' = x. `noise` is u, one number or [k, F].
    """
    wire = x.new_empty(len(x), scaled_bytes(x.shape[1], bits), dtype=torch.uint8)
    if not x.numel():
        return wire
    if x.device.type == "cpu":
        values = x.contiguous().numpy()
        largest, low, step = np.empty((3, len(x)), values.dtype)
        _row_maxima(values, largest)
        _scales(largest, (1 << (bits - 1)) - 1, low, step, wire.numpy()[:, -2:])
        _write_codes(wire, x, torch.from_numpy(low)[:, None], torch.from_numpy(step)[:, None], bits, noise)
        return wire
    scale = _rounded_up(x.abs().amax(1, keepdim=True))
    wire[:, -2:] = scale.view(torch.uint8)
    low, step = _range(scale, bits, x.dtype)
    _write_codes(wire, x, low, torch.where(step > 0, step, torch.ones_like(step)), bits, noise)
    return wire


def dequantise_scaled(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows [k, width] that a wire form of `quantise_scaled` stands for."""
    if not len(wire) or not width:
        return torch.empty(len(wire), width, dtype=dtype, device=wire.device)
    if wire.device.type == "cpu":
        low, step = torch.empty(2, len(wire), 1, dtype=dtype)
        _read_scales(wire.numpy(), (1 << (bits - 1)) - 1, low[:, 0].numpy(), step[:, 0].numpy())
        return _read_codes(wire, width, low, step, bits)
    scale = wire[:, -2:].clone(memory_format=torch.contiguous_format).view(torch.bfloat16)
    return _read_codes(wire, width, *_range(scale, bits, dtype), bits)


def column_bytes(counts: Sequence[int], width: int, bits: int) -> list[int]:
    """Bytes of messages [count, width] on the wire of `quantise_columns`; none of one without rows."""
    return [width * scaled_bytes(count, bits) if count else 0 for count in counts]


def quantise_columns(rows: torch.Tensor, counts: list[int], bits: int, noise: torch.Tensor) -> torch.Tensor:
    """Messages of `counts` rows each, of rows [sum(counts), F], one after the other [bytes]: each is
    `quantise_scaled` of its transpose, a scale per column. noise [sum(counts) F]: u, message after message,
    column after column.
    """
    width = rows.shape[1]
    if rows.device.type == "cpu" and rows.numel():
        ends, wire = np.cumsum(counts), torch.empty(sum(column_bytes(counts, width, bits)), dtype=torch.uint8)
        values = rows.contiguous().numpy()
        largest, low, step = np.zeros((3, len(counts), width), values.dtype)
        tails = np.empty((len(counts), width, 2), np.uint8)
        _column_maxima(values, ends, largest)
        flat = largest.ravel(), low.ravel(), step.ravel(), tails.reshape(-1, 2)
        _scales(flat[0], (1 << (bits - 1)) - 1, *flat[1:])
        _code_columns(values, ends, low, step, bits, noise.numpy(), tails, wire.numpy())
        return wire
    parts = zip(rows.split(counts), noise.split([count * width for count in counts]))
    wires = [quantise_scaled(part.t(), bits, u.view(width, -1)).flatten() for part, u in parts if len(part)]
    return torch.cat(wires) if wires else torch.zeros(0, dtype=torch.uint8, device=rows.device)


def dequantise_columns(
    wire: torch.Tensor, counts: list[int], width: int, bits: int, dtype: torch.dtype
) -> torch.Tensor:
    """The rows [sum(counts), width] of the messages of `quantise_columns`."""
    rows = torch.empty(sum(counts), width, dtype=dtype, device=wire.device)
    for into, part, count in zip(rows.split(counts), wire.split(column_bytes(counts, width, bits)), counts):
        if count:
            message = part.view(width, scaled_bytes(count, bits))
            into.copy_(dequantise_scaled(message, count, bits, dtype).t())
    return rows


def _rounded_up(x: torch.Tensor) -> torch.Tensor:
    """Numbers of 0 or more as bfloat16, none of them less."""
    nearest = x.to(torch.bfloat16)
    return torch.where(nearest.to(x.dtype) < x, (nearest.view(torch.int16) + 1).view(torch.bfloat16), nearest)


def _range(scale: torch.Tensor, bits: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The least value and the step of codes of these scales."""
    most = (1 << (bits - 1)) - 1
    step = scale.to(dtype) / most
    return -step * most, step


def _write_codes(
    wire: torch.Tensor,
    x: torch.Tensor,
    low: torch.Tensor,
    step: torch.Tensor,
    bits: int,
    noise: torch.Tensor | float,
) -> None:
    """The first code_bytes of each row of wire [k, ..] <- the codes of x [k, F]; low, step [k, 1]."""
    assert bits in BITS
    if x.device.type != "cpu":
        wire[:, : code_bytes(x.shape[1], bits)] = code_with_torch(x, low, step, bits, noise)
        return
    values = x.contiguous().numpy()
    drawn = noise.contiguous().numpy() if isinstance(noise, torch.Tensor) else values[:0]
    constant = 0.0 if isinstance(noise, torch.Tensor) else noise
    ends = low.numpy()[:, 0], step.numpy()[:, 0]
    _code(values, *ends, bits, drawn, len(drawn) > 0, values.dtype.type(constant), wire.numpy())


def _read_codes(
    wire: torch.Tensor, width: int, low: torch.Tensor, step: torch.Tensor, bits: int
) -> torch.Tensor:
    """The rows [k, width] of the codes with which wire [k, ..] begins; low, step [k, 1]."""
    if wire.device.type != "cpu":
        packed = wire[:, : code_bytes(width, bits)]
        return low + codes_with_torch(packed, width, bits).to(low.dtype) * step
    rows = torch.empty(len(wire), width, dtype=low.dtype)
    ends = low.contiguous().numpy()[:, 0], step.contiguous().numpy()[:, 0]
    _restore(wire.numpy(), *ends, bits, rows.numpy())
    return rows


@numba.njit(cache=True, nogil=True)
def _row_maxima(x: np.ndarray, largest: np.ndarray) -> None:
    """largest [k] <- max |x| of each row, not a number where one of its values is none."""
    for r in range(len(x)):
        most, known = x.dtype.type(0), True
        for k in range(x.shape[1]):
            size = abs(x[r, k])
            most = max(most, size)
            known &= size == size
        largest[r] = most if known else x.dtype.type(np.nan)


@numba.njit(cache=True, nogil=True)
def _scales(largest: np.ndarray, most: int, low: np.ndarray, step: np.ndarray, tails: np.ndarray) -> None:
    """The bytes [n, 2] of the scales of numbers of 0 or more [n], and the least value and the step of their
    codes: what `_rounded_up` and `_range` give, the step 1 where it would be 0.
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
def _read_scales(wire: np.ndarray, most: int, low: np.ndarray, step: np.ndarray) -> None:
    """The least value and the step of each row's codes, of the scale in its last two bytes."""
    number = low.dtype.type
    whole = np.empty(1, np.float32)
    bits = whole.view(np.uint32)
    for r in range(len(wire)):
        bits[0] = (np.int64(wire[r, -2]) | np.int64(wire[r, -1]) << 8) << 16
        step[r] = number(whole[0]) / number(most)
        low[r] = -step[r] * number(most)


@numba.njit(cache=True, nogil=True)
def _code(
    x: np.ndarray,
    low: np.ndarray,
    step: np.ndarray,
    bits: int,
    noise: np.ndarray,
    stochastic: bool,
    shift: np.floating,
    wire: np.ndarray,
) -> None:
    top, width, per = np.int32((1 << bits) - 1), x.shape[1], 8 // bits
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
        if bits == 8:
            for k in range(width):
                wire[r, k] = np.uint8(codes[k])
        elif bits == 16:
            for k in range(width):
                code = codes[k]
                wire[r, 2 * k] = code & 255
                wire[r, 2 * k + 1] = code >> 8
        elif bits == 4:
            # What the loop below says, without one inside another.
            for b in range(width // 2):
                wire[r, b] = np.uint8(codes[2 * b] | codes[2 * b + 1] << 4)
            if width % 2:
                wire[r, width // 2] = np.uint8(codes[width - 1])
        else:
            for b in range((width + per - 1) // per):
                packed = 0
                for k in range(b * per, min((b + 1) * per, width)):
                    packed |= codes[k] << (bits * (k - b * per))
                wire[r, b] = packed


@numba.njit(cache=True, nogil=True)
def _restore(wire: np.ndarray, low: np.ndarray, step: np.ndarray, bits: int, rows: np.ndarray) -> None:
    width, per, mask = rows.shape[1], 8 // bits, (1 << bits) - 1
    number = rows.dtype.type
    for r in range(len(rows)):
        least, each = low[r], step[r]
        if bits == 8:
            for k in range(width):
                rows[r, k] = least + number(wire[r, k]) * each
        elif bits == 16:
            for k in range(width):
                code = np.int32(wire[r, 2 * k]) | np.int32(wire[r, 2 * k + 1]) << 8
                rows[r, k] = least + number(code) * each
        elif bits == 4:
            for b in range(width // 2):
                pair = wire[r, b]
                rows[r, 2 * b] = least + number(pair & np.uint8(15)) * each
                rows[r, 2 * b + 1] = least + number(pair >> np.uint8(4)) * each
            if width % 2:
                rows[r, width - 1] = least + number(wire[r, width // 2] & np.uint8(15)) * each
        else:
            for k in range(width):
                rows[r, k] = least + number(wire[r, k // per] >> (bits * (k % per)) & mask) * each


@numba.njit(cache=True, nogil=True)
def _column_maxima(rows: np.ndarray, ends: np.ndarray, most: np.ndarray) -> None:
    """most [messages, F] <- max |x| of each column of each message."""
    first = 0
    for message in range(len(ends)):
        for r in range(first, ends[message]):
            for k in range(rows.shape[1]):
                most[message, k] = max(most[message, k], abs(rows[r, k]))
        first = ends[message]


@numba.njit(cache=True, nogil=True)
def _code_columns(
    rows: np.ndarray,
    ends: np.ndarray,
    low: np.ndarray,
    step: np.ndarray,
    bits: int,
    noise: np.ndarray,
    tails: np.ndarray,
    wire: np.ndarray,
) -> None:
    """`_code` of the columns of each message, bits 4 or 8; tails [messages, F, 2] are the scales' bytes."""
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


def code_with_torch(
    x: torch.Tensor, low: torch.Tensor, step: torch.Tensor, bits: int, noise: torch.Tensor | float
) -> torch.Tensor:
    """The codes' bytes [k, ceil(B F / 8)] by torch operations, on any device; low and step [k, 1]."""
    q = torch.floor((x - low) / step + noise).clamp_(0, (1 << bits) - 1)
    if bits == 16:
        # There is no unsigned 16-bit arithmetic: the codes' two bytes one after the other.
        codes = q.to(torch.int32)
        return torch.stack([codes & 255, codes >> 8], 2).to(torch.uint8).flatten(1)
    codes, per = q.to(torch.uint8), 8 // bits
    if per == 1:
        return codes
    missing = -codes.shape[1] % per
    codes = torch.nn.functional.pad(codes, (0, missing)).view(len(codes), -1, per)
    packed = codes[:, :, 0].clone()
    for k in range(1, per):
        packed |= codes[:, :, k] << (bits * k)
    return packed


def codes_with_torch(packed: torch.Tensor, width: int, bits: int) -> torch.Tensor:
    """The codes [k, F] in those bytes."""
    if bits == 16:
        pairs = packed.reshape(len(packed), -1, 2).to(torch.int32)
        return pairs[:, :, 0] | (pairs[:, :, 1] << 8)
    if bits == 8:
        return packed
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & ((1 << bits) - 1)).flatten(1)[:, :width]
