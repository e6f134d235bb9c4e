"""The finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
OOPSLA 2014): random bits as a hash of a counter, for compiled loops, for Python and for tensors
of any device."""

import numba
import numpy as np
import torch

GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@numba.njit(inline="always")
def mix(z):
    """The 64 random bits of the counter z, uint64, in compiled code."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31))


def mix_int(z: int) -> int:
    """`mix` of a Python integer below 2^64."""
    z = ((z ^ (z >> 30)) * MIX_1) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * MIX_2) & (2**64 - 1)
    return z ^ (z >> 31)


def mix_tensor(z: torch.Tensor) -> torch.Tensor:
    """`mix` of each counter in z; counters and results are int64 with the bits of the uint64 numbers."""
    z = (z ^ _shift(z, 30)) * signed(MIX_1)
    z = (z ^ _shift(z, 27)) * signed(MIX_2)
    return z ^ _shift(z, 31)


def signed(value: int) -> int:
    """The int64 with the same bits: torch has no unsigned arithmetic, and two's complement products agree."""
    return value - 2**64 if value >= 2**63 else value


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift int64 numbers to the right as if they were uint64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
