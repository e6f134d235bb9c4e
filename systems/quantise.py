"""Linear quantisation of rows to B bits, packed into the bytes that travel.

    q = (x - low) / (high - low) (2^B - 1), rounded;   x' = low + q (high - low) / (2^B - 1)

with low and high the least and largest entry of each row. Rounding is to the nearest, or stochastic: floor(q + u) with u uniform in
[0, 1), which is unbiased. A row whose entries are all equal is restored exactly. A row travels as B F bits of codes (whole bytes) and
the two constants in the rows' own precision.
"""

from __future__ import annotations

import torch

BITS = (2, 4, 8, 16)


def row_bytes(width: int, bits: int, dtype: torch.dtype) -> int:
    """Bytes of one row on the wire: B F bits rounded up, and two constants."""
    return -(-width * bits // 8) + 2 * dtype.itemsize


def quantise(x: torch.Tensor, bits: int, noise: torch.Tensor | float | None = None) -> torch.Tensor:
    """The wire form [k, row_bytes] uint8 of x [k, F]; `noise` [k, F] in [0, 1) rounds stochastically, 0.5 rounds halves up."""
    assert bits in BITS
    top = (1 << bits) - 1
    if not x.numel():
        return x.new_empty(len(x), row_bytes(x.shape[1], bits, x.dtype), dtype=torch.uint8)
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    step = (high - low) / top
    q = (x - low) / torch.where(step > 0, step, torch.ones_like(step))
    q = torch.round(q) if noise is None else torch.floor(q + noise)
    q = q.clamp_(0, top)
    constants = torch.cat([low, high], 1).contiguous().view(torch.uint8)
    return torch.cat([_pack(q, bits), constants.view(len(x), -1)], 1)


def dequantise(wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The rows [k, width] that a wire form stands for."""
    size = 2 * dtype.itemsize
    if not len(wire):
        return torch.empty(0, width, dtype=dtype, device=wire.device)
    low, high = wire[:, -size:].clone(memory_format=torch.contiguous_format).view(dtype).split(1, 1)
    return low + _unpack(wire[:, :-size], width, bits).to(dtype) * ((high - low) / ((1 << bits) - 1))


def _pack(q: torch.Tensor, bits: int) -> torch.Tensor:
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


def _unpack(packed: torch.Tensor, width: int, bits: int) -> torch.Tensor:
    if bits == 16:
        pairs = packed.reshape(len(packed), -1, 2).to(torch.int32)
        return pairs[:, :, 0] | (pairs[:, :, 1] << 8)
    if bits == 8:
        return packed
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8, device=packed.device)
    return ((packed[:, :, None] >> shifts) & ((1 << bits) - 1)).flatten(1)[:, :width]
