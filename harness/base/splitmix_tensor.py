"""`harness.base.splitmix` for tensors of any device: a hash of int64 whose bits stand for those of uint64."""

from __future__ import annotations

import torch

from harness.base.splitmix import MIX_1, MIX_2


def mix_tensor(z: torch.Tensor) -> torch.Tensor:
    """64 bits of each counter in z."""
    z = (z ^ _shift(z, 30)) * signed(MIX_1)
    z = (z ^ _shift(z, 27)) * signed(MIX_2)
    return z ^ _shift(z, 31)


def signed(value: int) -> int:
    """The int64 with the same bits: torch has no unsigned arithmetic, and two's complement products agree."""
    return value - 2**64 if value >= 2**63 else value


def _shift(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Logical shift to the right of int64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)
