"""Linear quantisation of rows to B bits, packed into the bytes that travel.

    q = (x - low) / (high - low) (2^B - 1), rounded;   x' = low + q (high - low) / (2^B - 1)

with low and high the least and largest entry of each row. To round is floor(q + u): u = 0.5 to the nearest,
halves up; u uniform in [0, 1) stochastically, which is unbiased. A row whose entries are all equal is
restored exactly. A row travels as B F bits of codes (whole bytes) and the two constants in the rows' own
precision; `quantise_scaled` has one constant instead, of two bytes, and `quantise_even` has both in two bytes
each. On the CPU codes are made and read by compiled loops, which give the bits of the torch operations.
"""

from collections.abc import Sequence

import numpy as np
import torch

from harness.base.hollow import hollow
from harness.core.kernels import quantise_loops as loops

BITS = (1, 2, 4, 8, 16)
# By a float's bytes, an array of the whole numbers of as many bytes: it tells compiled loops their type.
WHOLE: dict[int, np.ndarray] = {4: np.empty(0, np.uint32), 8: np.empty(0, np.uint64)}


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
    if x.device.type == "cpu":
        write_scaled(x, np.array([[0, len(x), 0]]), bits, noise, wire.view(-1))
    elif x.numel():
        scale = _rounded_up(x.abs().amax(1, keepdim=True))
        wire[:, -2:] = scale.view(torch.uint8)
        low, step = _range(scale, bits, x.dtype)
        _write_codes(wire, x, low, torch.where(step > 0, step, torch.ones_like(step)), bits, noise)
    return wire


def dequantise_scaled(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows [k, width] that a wire form of `quantise_scaled` stands for."""
    if wire.device.type == "cpu":
        rows = torch.empty(len(wire), width, dtype=dtype)
        if hollow(rows):
            return rows
        loops.restored(wire.contiguous().view(-1).numpy(), bits, rows.numpy())
        return rows
    scale = wire[:, -2:].clone(memory_format=torch.contiguous_format).view(torch.bfloat16)
    return _read_codes(wire, width, *_range(scale, bits, dtype), bits)


def quantise_even(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The wire form [k, code_bytes + 4] uint8 of x [k, F] whose constants are rounded to bfloat16 first:

        q = (x - low) / S, rounded to the nearest, halves to the even one, in 0..2^B - 1;   x' = low + q S

    with S = (high - low) / (2^B - 1), and 1 where that is 0.
    """
    if not x.numel():
        return x.new_empty(len(x), code_bytes(x.shape[1], bits) + 4, dtype=torch.uint8)
    least, top = x.amin(1, keepdim=True), (1 << bits) - 1
    ends = torch.cat([least, (x.amax(1, keepdim=True) - least) / top], 1).to(torch.bfloat16)
    ends[:, 1] = torch.where(ends[:, 1] == 0, 1, ends[:, 1])
    low, step = ends.to(x.dtype).split(1, 1)
    codes = (x - low).div_(step).round_().clamp_(0, top)
    return torch.cat([packed(codes, bits), ends.view(torch.uint8)], 1)


def dequantise_even(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows [k, width] that a wire form of `quantise_even` stands for."""
    ends = wire[:, -4:].clone(memory_format=torch.contiguous_format).view(torch.bfloat16)
    low, step = ends.to(dtype).split(1, 1)
    return _read_codes(wire, width, low, step, bits)


def packed(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """The bytes [k, code_bytes] uint8 of codes [k, F], whole numbers from 0 to 2^B - 1 in floating point."""
    wire = codes.new_empty(len(codes), code_bytes(codes.shape[1], bits), dtype=torch.uint8)
    low = codes.new_zeros(len(codes), 1)
    _write_codes(wire, codes, low, torch.ones_like(low), bits, 0.0)
    return wire


def unpacked(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The codes [k, width] in such bytes, in floating point."""
    low = torch.zeros(len(wire), 1, dtype=dtype, device=wire.device)
    return _read_codes(wire, width, low, torch.ones_like(low), bits)


# The next functions write a matrix's rows to several places of one message, or read them from there.
# `places` [p, 3] int64: for each place the first row, the one after the last, and the byte of the message at
# which these rows begin.


def write_scaled(
    x: torch.Tensor, places: np.ndarray, bits: int, noise: torch.Tensor | float, wire: torch.Tensor
) -> None:
    """Write those rows of x [r, c] that have a place to it in wire [bytes], as `quantise_scaled` codes them;
    `noise` is one number or [r, c]."""
    if not x.numel() or hollow(x):
        return
    if x.device.type == "cpu":
        values = x.contiguous().numpy()
        drawn = noise.contiguous().numpy() if isinstance(noise, torch.Tensor) else values[:0]
        shift = values.dtype.type(0.0 if isinstance(noise, torch.Tensor) else noise)
        whole = WHOLE[values.itemsize]
        loops.scaled(values, whole, places, bits, drawn, shift, wire.numpy())
        return
    for first, last, at in places.tolist():
        u = noise[first:last] if isinstance(noise, torch.Tensor) else noise
        coded = quantise_scaled(x[first:last], bits, u)
        wire[at : at + coded.numel()] = coded.flatten()


def add_scaled(wire: torch.Tensor, places: np.ndarray, bits: int, into: torch.Tensor) -> None:
    """Add to those rows of `into` [r, c] that have a place in wire [bytes] the rows that are coded there."""
    if hollow(into):
        return
    if into.device.type == "cpu":
        loops.add_restored(wire.numpy(), places, bits, into.numpy())
        return
    for first, last, at in places.tolist():
        into[first:last] += _rows_at(wire, at, last - first, into, bits)


def sum_scaled(
    wire: torch.Tensor, starts: np.ndarray, before: int, own: torch.Tensor, bits: int
) -> torch.Tensor:
    """The sum [k, c] of the rows that begin at each of `starts` [s] in wire [bytes], in this order, and of
    `own` [k, c], whose turn comes after the first `before` of them."""
    if own.device.type == "cpu":
        total = torch.empty_like(own, memory_format=torch.contiguous_format)
        if hollow(own):
            return total
        loops.sum_restored(wire.numpy(), starts, before, own.contiguous().numpy(), bits, total.numpy())
        return total
    terms = [_rows_at(wire, start, len(own), own, bits) for start in starts.tolist()]
    total = torch.zeros_like(own)
    for term in [*terms[:before], own, *terms[before:]]:
        total += term
    return total


def _rows_at(wire: torch.Tensor, at: int, count: int, like: torch.Tensor, bits: int) -> torch.Tensor:
    """The `count` rows, as wide as those of `like`, that are coded from byte `at` of wire [bytes] on."""
    size = scaled_bytes(like.shape[1], bits)
    part = wire[at : at + count * size].view(count, size)
    return dequantise_scaled(part, like.shape[1], bits, like.dtype)


class ColumnCode:
    """One message per number in `counts`, one after the other: each is `quantise_scaled` of the transpose of
    so many rows, so that it has a scale per column.

    counts, width   rows of each message, and their width; what follows from them is found once for all epochs
    sizes           bytes of each message
    """

    def __init__(self, counts: Sequence[int], width: int, bits: int):
        self.counts, self.width, self.bits = list(counts), width, bits
        self.sizes = [width * scaled_bytes(count, bits) if count else 0 for count in counts]
        self._rows, self._bytes, self._ends = sum(counts), sum(self.sizes), np.cumsum(counts)

    def quantise(self, rows: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """The messages [bytes] of rows [sum(counts), F]; noise [sum(counts) F]: u, message after message,
        column after column.
        """
        if rows.device.type == "cpu":
            wire = torch.empty(self._bytes, dtype=torch.uint8)
            if hollow(rows):
                return wire
            values = rows.contiguous().numpy()
            loops.scaled_columns(values, self._ends, self.bits, noise.numpy(), wire.numpy())
            return wire
        parts = zip(rows.split(self.counts), noise.split([count * self.width for count in self.counts]))
        coded = [
            quantise_scaled(part.t(), self.bits, u.view(self.width, -1)).flatten()
            for part, u in parts
            if len(part)
        ]
        return torch.cat(coded) if coded else torch.zeros(0, dtype=torch.uint8, device=rows.device)

    def dequantise(self, wire: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The rows [sum(counts), F] of such messages."""
        rows = torch.empty(self._rows, self.width, dtype=dtype, device=wire.device)
        if hollow(rows):
            return rows
        if wire.device.type == "cpu":
            loops.restore_columns(wire.numpy(), self._ends, self.bits, rows.numpy())
            return rows
        for into, part, count in zip(rows.split(self.counts), wire.split(self.sizes), self.counts):
            if count:
                message = part.view(self.width, scaled_bytes(count, self.bits))
                into.copy_(dequantise_scaled(message, count, self.bits, dtype).t())
        return rows


class RowCode:
    """As `ColumnCode`, each message being `quantise_scaled` of its rows: a scale per row, and noise row after
    row."""

    def __init__(self, counts: Sequence[int], width: int, bits: int):
        self.counts, self.width, self.bits = list(counts), width, bits
        self.sizes = [count * scaled_bytes(width, bits) for count in counts]

    def quantise(self, rows: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return quantise_scaled(rows.contiguous(), self.bits, noise.view_as(rows)).flatten()

    def dequantise(self, wire: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        rows = wire.view(-1, scaled_bytes(self.width, self.bits))
        return dequantise_scaled(rows, self.width, self.bits, dtype)


Code = ColumnCode | RowCode


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
    if hollow(x):
        return
    if x.device.type != "cpu":
        wire[:, : code_bytes(x.shape[1], bits)] = code_with_torch(x, low, step, bits, noise)
        return
    values = x.contiguous().numpy()
    drawn = noise.contiguous().numpy() if isinstance(noise, torch.Tensor) else values[:0]
    constant = 0.0 if isinstance(noise, torch.Tensor) else noise
    ends = low.numpy()[:, 0], step.numpy()[:, 0]
    loops.code(values, *ends, bits, drawn, len(drawn) > 0, values.dtype.type(constant), wire.numpy())


def _read_codes(
    wire: torch.Tensor, width: int, low: torch.Tensor, step: torch.Tensor, bits: int
) -> torch.Tensor:
    """The rows [k, width] of the codes with which wire [k, ..] begins; low, step [k, 1]."""
    if not len(wire) or not width:
        return torch.empty(len(wire), width, dtype=low.dtype, device=wire.device)
    if wire.device.type != "cpu":
        packed = wire[:, : code_bytes(width, bits)]
        return low + codes_with_torch(packed, width, bits).to(low.dtype) * step
    rows = torch.empty(len(wire), width, dtype=low.dtype)
    if hollow(rows):
        return rows
    ends = low.contiguous().numpy()[:, 0], step.contiguous().numpy()[:, 0]
    loops.restore(wire.numpy(), *ends, bits, rows.numpy())
    return rows


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
