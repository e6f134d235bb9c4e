"""Dropout of `harness.core.dropout` on a device: the operation `halobench::drop_rows`, which PyTorch gives to
the device that its rows are on.

On a GPU one kernel computes it where Triton can make one (`harness.core.kernels.dropout_triton`), which is
tried on a few rows first; elsewhere torch's operations do, some twenty of them. The bits are the same.
"""

import functools
import warnings
from collections.abc import Callable

import torch

from harness.base.splitmix import GOLDEN, mix_tensor, signed

LEVELS = 1 << 16  # of a rate of dropout
SIGNS = signed(0x8000_8000_8000_8000)
LIBRARY = torch.library.Library("halobench", "DEF")
LIBRARY.define("drop_rows(Tensor x, Tensor ids, int base, int threshold, float scale) -> Tensor")

Drop = Callable[[torch.Tensor, torch.Tensor, int, int, float], torch.Tensor]


def drop_on_device(
    x: torch.Tensor, ids: torch.Tensor, base: int, threshold: int, scale: float
) -> torch.Tensor:
    """x [rows, F] with the entries dropped whose 16 bits are below `threshold`, the rest times `scale`.

    ids    [rows] int32, on x's device
    base   the mixed key, of 64 bits
    """
    dropped: torch.Tensor = torch.ops.halobench.drop_rows(x, ids, signed(base), threshold, scale)
    return dropped


def drop_with_torch(
    x: torch.Tensor, ids: torch.Tensor, base: int, threshold: int, scale: float
) -> torch.Tensor:
    """`drop_on_device` by torch operations, on any device."""
    width = x.shape[1]
    group = torch.arange((width + 3) // 4, device=x.device) * signed(GOLDEN)
    vertex = (ids.long() << 32) * signed(GOLDEN) + signed(base)
    words = mix_tensor(vertex.unsqueeze(1) + group)
    # A word's four lanes are read from its bytes in memory, as signed numbers of 16 bits. Their highest bits
    # are flipped before, so that they compare as the unsigned ones would.
    lanes = (words ^ SIGNS).view(torch.int16)[:, :width]
    keep = lanes >= threshold - LEVELS // 2
    return torch.where(keep, x * scale, 0)


def _on_gpu(x: torch.Tensor, ids: torch.Tensor, base: int, threshold: int, scale: float) -> torch.Tensor:
    drop = kernel(x.device) if x.dtype == torch.float32 else drop_with_torch
    return drop(x, ids, base, threshold, scale)


LIBRARY.impl("drop_rows", _on_gpu, "CUDA")


@functools.cache
def kernel(device: torch.device) -> Drop:
    """Triton's kernel, where it can be made for this device and gives the bits of `drop_with_torch`; else
    `drop_with_torch`, with a warning that says why."""
    try:
        from harness.core.kernels.dropout_triton import drop_rows

        x = torch.arange(1.0, 2801.0, device=device).view(40, 70)
        arguments = torch.arange(40, dtype=torch.int32, device=device) * 33_000_001, 1 << 60, LEVELS // 3, 1.5
        if torch.equal(drop_rows(x, *arguments), drop_with_torch(x, *arguments)):
            return drop_rows
        reason = "its bits differ from those of torch's operations"
    except Exception as error:  # of whatever class Triton raises, for want of a compiler too
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
    warnings.warn(
        f"dropout on {device} takes some twenty kernels instead of one, as Triton's cannot be used here"
        f" ({reason})",
        stacklevel=2,
    )
    return drop_with_torch
