"""Dropout of `harness.core.dropout` as one kernel of a GPU: each entry is read once and written once.

Imported only where rows are on a GPU, since Triton comes with torch's wheels for GPUs alone.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from harness.base.splitmix import GOLDEN, MIX_1, MIX_2, signed

ROWS, COLUMNS = 16, 64  # of a program's tile; without one an entry's row would take a division of int64
# A kernel reads no globals but those of type `constexpr`. Numbers are int64, which Triton shifts to the right
# with its sign: the masks BELOW_30, BELOW_27 and BELOW_31 take the copies of the sign away.
PER_WORD = tl.constexpr(signed(GOLDEN))
FIRST, SECOND = tl.constexpr(signed(MIX_1)), tl.constexpr(signed(MIX_2))
BELOW_30, BELOW_27, BELOW_31 = (tl.constexpr((1 << (64 - bits)) - 1) for bits in (30, 27, 31))


@triton.jit
def _drop_tile(  # type: ignore[no-untyped-def]  # annotations are globals, which a kernel may not read
    x, ids, out, rows, width, base, threshold, scale, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    vertex = tl.load(ids + row, mask=row < rows, other=0).to(tl.int64)
    # The word of each entry's vertex and group of four columns.
    z = base + ((vertex << 32)[:, None] + (column >> 2)[None, :]) * PER_WORD
    z = (z ^ ((z >> 30) & BELOW_30)) * FIRST
    z = (z ^ ((z >> 27) & BELOW_27)) * SECOND
    z = z ^ ((z >> 31) & BELOW_31)
    lane = (z >> ((column & 3) * 16)[None, :]) & 0xFFFF
    place = row[:, None] * width + column[None, :]
    value = tl.load(x + place, mask=inside, other=0.0)
    tl.store(out + place, tl.where(lane >= threshold, value * scale, 0.0), mask=inside)


def drop_rows(x: torch.Tensor, ids: torch.Tensor, base: int, threshold: int, scale: float) -> torch.Tensor:
    """x [rows, F] float32 with the entries of `drop_with_torch` dropped; arguments as there."""
    x, out = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        tiles = triton.cdiv(len(x), ROWS), triton.cdiv(x.shape[1], COLUMNS)
        _drop_tile[tiles](
            x, ids.contiguous(), out, *x.shape, signed(base), threshold, scale, ROWS=ROWS, COLUMNS=COLUMNS
        )
    return out
