"""Noise for stochastic rounding: a hash of seed, epoch, layer, direction and sender. So a run repeats and
resumes to the same bits, and nothing is kept.
"""

import math
from collections.abc import Sequence

import numba
import numpy as np
import torch

from harness.base.bounds import LAYERS
from harness.base.hollow import hollow
from harness.base.splitmix import GOLDEN, mix, mix_int, mix_tensor, signed

CHUNK = 512  # hashes that are made before numbers are made of them


def draws(
    seed: int,
    epoch: int,
    layer: int,
    direction: str,
    sender: int,
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Uniform numbers of this shape in [0, 1), multiples of 2^-24: the noise for all messages of worker
    `sender`, in the order in which it sends them. Made on `device`, where one is given, with the same bits.
    """
    key = (
        ((seed * 1_000_003 + epoch) * (LAYERS + 1) + layer) * 2 + (direction == "backward")
    ) * 65_537 + sender
    base = mix_int(key & (2**64 - 1))
    if device is not None and device.type != "cpu":
        return draw_with_torch(base, shape, dtype, device)
    numbers = torch.empty(shape, dtype=dtype)
    if not hollow(numbers):
        _draw(np.uint64(base), numbers.view(-1).numpy())
    return numbers


def draw_with_torch(
    base: int, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str
) -> torch.Tensor:
    """What `_draw` gives, by torch operations on any device."""
    count = math.prod(shape)
    pairs = torch.arange((count + 1) // 2, device=device)
    bits = mix_tensor(pairs * signed(GOLDEN) + signed(base))
    low_high = torch.stack([bits & 0xFFFFFF, bits >> 40 & 0xFFFFFF], 1)
    return low_high.flatten()[:count].view(tuple(shape)).to(dtype) * 2.0**-24


@numba.njit(cache=True, nogil=True)
def _draw(base: np.uint64, numbers: np.ndarray) -> None:
    """numbers [n] <- two from each hash: its lowest and its highest 24 bits, times 2^-24. A chunk of hashes
    is made first, then the numbers of their halves, so that both loops are vectorised."""
    number, words = numbers.dtype.type, np.empty(CHUNK, np.uint64)
    halves = words.view(np.int32)
    for first in range(0, len(numbers), 2 * CHUNK):
        some = numbers[first : first + 2 * CHUNK]
        for pair in range((len(some) + 1) // 2):
            bits = mix(base + np.uint64(first // 2 + pair) * np.uint64(GOLDEN))
            words[pair] = (bits & np.uint64(0xFFFFFF)) | (bits >> np.uint64(40)) << np.uint64(32)
        for k in range(len(some)):
            some[k] = number(halves[k]) * number(2.0**-24)
