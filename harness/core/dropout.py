"""Dropout whose mask is a hash of (key, vertex, column): the same for any partition, and never stored.

    x'_vk = x_vk / (1 - p)  where  u(key, v, k) >= p,  else 0

u is 16 bits of a counter-based hash: one 64-bit word serves four neighbouring columns. The word of vertex v
and column group g is mix(mix(key) + (v * 2^32 + g) * golden), see `harness.base.splitmix`. p is therefore
rounded to a multiple of 2^-16, and the scale uses the rounded p, so that the expectation is exact.
"""

from typing import Any

import numba
import numpy as np
import torch

from harness.base.autograd import applied
from harness.base.errors import within
from harness.base.hollow import hollow
from harness.base.splitmix import GOLDEN, mix, mix_int
from harness.core.kernels.dropout_device import LEVELS, LIBRARY, drop_on_device
from harness.core.kernels.parallel import by_threads, use_threads
from harness.data.partition.shard import Csr

SERIAL_BELOW = 1 << 15  # entries: waking threads costs more than it saves


@numba.njit(cache=True, nogil=True)
def _drop_rows(
    first: int,
    last: int,
    x: np.ndarray,
    ids: np.ndarray,
    base: np.uint64,
    threshold: np.uint64,
    scale: np.floating,
    out: np.ndarray,
) -> None:
    width = x.shape[1]
    full = width - width % 4
    zero = x.dtype.type(0)
    for v in range(first, last):
        a, y = x[v], out[v]
        counter = base + (np.uint64(ids[v]) << np.uint64(32)) * np.uint64(GOLDEN)
        for k in range(0, full, 4):
            bits = mix(counter + np.uint64(k >> 2) * np.uint64(GOLDEN))
            # Every value is read and scaled, whether it stays or not: a value read only where it stays is a
            # branch, which at p = 0.5 is mispredicted half of the time.
            s0, s1, s2, s3 = a[k] * scale, a[k + 1] * scale, a[k + 2] * scale, a[k + 3] * scale
            y[k] = s0 if (bits & np.uint64(0xFFFF)) >= threshold else zero
            y[k + 1] = s1 if ((bits >> np.uint64(16)) & np.uint64(0xFFFF)) >= threshold else zero
            y[k + 2] = s2 if ((bits >> np.uint64(32)) & np.uint64(0xFFFF)) >= threshold else zero
            y[k + 3] = s3 if (bits >> np.uint64(48)) >= threshold else zero
        if full < width:
            bits = mix(counter + np.uint64(full >> 2) * np.uint64(GOLDEN))
            for k in range(full, width):
                s = a[k] * scale
                y[k] = s if (bits & np.uint64(0xFFFF)) >= threshold else zero
                bits = bits >> np.uint64(16)


@by_threads
def _drop_parts(
    bounds: np.ndarray,
    x: np.ndarray,
    ids: np.ndarray,
    base: np.uint64,
    threshold: np.uint64,
    scale: np.floating,
    out: np.ndarray,
) -> None:
    for part in numba.prange(len(bounds) - 1):
        _drop_rows(bounds[part], bounds[part + 1], x, ids, base, threshold, scale, out)


def _drop(x: torch.Tensor, ids: torch.Tensor, key: int, threshold: int) -> torch.Tensor:
    base = mix_int(key & (2**64 - 1))
    scale = LEVELS / (LEVELS - threshold)
    if x.device.type != "cpu":
        return drop_on_device(x, ids, base, threshold, scale)
    return _drop_on_cpu(x, ids, base, threshold, scale)


def _drop_on_cpu(x: torch.Tensor, ids: torch.Tensor, base: int, threshold: int, scale: float) -> torch.Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    if hollow(x):
        return out
    parts = 1 if x.numel() < SERIAL_BELOW else use_threads()
    bounds, rows = len(ids) * np.arange(parts + 1) // parts, x.numpy()
    key, least = np.uint64(base & (2**64 - 1)), np.uint64(threshold)
    _drop_parts(bounds, rows, ids.numpy(), key, least, rows.dtype.type(scale), out.numpy())
    return out


# For a device that keeps its numbers in the host's memory, as the one that tests pretend.
LIBRARY.impl("drop_rows", _drop_on_cpu, "CPU")


@numba.njit(cache=True, nogil=True)
def _drop_entries(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    ids: np.ndarray,
    base: np.uint64,
    threshold: np.uint64,
    scale: np.floating,
    out: np.ndarray,
) -> None:
    for v in range(len(ids)):
        counter = base + (np.uint64(ids[v]) << np.uint64(32)) * np.uint64(GOLDEN)
        for e in range(indptr[v], indptr[v + 1]):
            k = np.uint64(indices[e])
            bits = mix(counter + (k >> np.uint64(2)) * np.uint64(GOLDEN))
            bits = (bits >> (np.uint64(16) * (k & np.uint64(3)))) & np.uint64(0xFFFF)
            s = values[e] * scale
            out[e] = s if bits >= threshold else values.dtype.type(0)


def drop_entries(block: Csr, values: np.ndarray, ids: torch.Tensor, p: float, key: int) -> np.ndarray:
    """`dropout` of rows by vertex ids [rows], of which only `values` [entries] are not 0; `block` has their
    places. Returns the values after dropout: `values` itself where p rounds to 0.
    """
    threshold = _threshold(p)
    if threshold == 0:
        return values
    out, scale = np.empty_like(values), values.dtype.type(LEVELS / (LEVELS - threshold))
    base, least = np.uint64(mix_int(key & (2**64 - 1))), np.uint64(threshold)
    _drop_entries(block.indptr, block.indices, values, ids.numpy(), base, least, scale, out)
    return out


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ids: torch.Tensor, key: int, threshold: int) -> torch.Tensor:
        ctx.ids, ctx.key, ctx.threshold = ids, key, threshold
        return _drop(x, ids, key, threshold)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _drop(g, ctx.ids, ctx.key, ctx.threshold), None, None, None


def dropout(x: torch.Tensor, ids: torch.Tensor, p: float, key: int) -> torch.Tensor:
    """x [rows, F] with entries dropped at rate p (rounded to 2^-16) and the rest scaled to keep the
    expectation.

    ids   [rows] int32 global vertex ids, on x's device
    key   an integer made of seed, epoch and layer: another key, another mask
    Differentiable in x; the backward pass computes the mask again. InputError unless 0 <= p <= 1 - 2^-16.
    """
    threshold = _threshold(p)
    return x if threshold == 0 else applied(_Dropout, x, ids, key, threshold)


def _threshold(p: float) -> int:
    within("dropout", p, 0.0, 1.0 - 1.0 / LEVELS)
    return round(p * LEVELS)


def dropout_key(seed: int, epoch: int, layer: int, step: int = 0) -> int:
    """A 63-bit key of (seed, epoch, layer, forward pass of the epoch). It has room for 24, 20, 7 and 12 bits
    of these; what is beyond is told apart by a hash.
    """
    beyond = step >> 12 ^ (seed >> 24) << 44 ^ (layer >> 7) << 52 ^ (epoch >> 20) << 56
    return (
        (mix_int(beyond) >> 1 if beyond else 0)
        ^ ((seed & 0xFFFFFF) << 39)
        ^ ((epoch & 0xFFFFF) << 19)
        ^ ((step & 0xFFF) << 7)
        ^ (layer & 0x7F)
    )
