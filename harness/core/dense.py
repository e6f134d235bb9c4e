"""Dense products of rows and weights: X W, and backwards X^T g and g W^T.

On the CPU torch multiplies by MKL, which is slow in two cases (`docs/log.md` has the numbers):

- at widths that are no multiple of a vector (logits of 7 or 41 classes). X^T g is taken there as the
  transpose of g^T X, whose widths are those of X;
- on CPUs that are not Intel's, at any width. A product whose shape is the same in every epoch is taken there
  by oneDNN, which prepares itself anew for each shape.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from harness.base.autograd import applied
from harness.base.machine import cpu_field

VECTOR = 16  # float32 values of a vector register of 64 bytes
LEAST_ROWS = 1 << 11  # below, oneDNN gains nothing

Product = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def times_weight(x: torch.Tensor, weight: torch.Tensor, fixed: bool = False) -> torch.Tensor:
    """X W [n, f_out] of x [n, f_in] and weight [f_in, f_out], differentiable. fixed: x has the same shape in
    every epoch."""
    return applied(_Times, x, weight, fixed) if x.device.type == "cpu" else x @ weight


def adjoint(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """X^T g [f_in, f_out] of x [n, f_in] and g [n, f_out]."""
    if x.device.type == "cpu" and g.shape[1] % VECTOR:
        return (g.t() @ x).t()
    return x.t() @ g


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, fixed: bool) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.fixed = fixed
        return _product(x, weight.t(), fixed)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        x, weight = ctx.saved_tensors
        for_x, for_weight, _ = ctx.needs_input_grad
        return (
            _product(g, weight, ctx.fixed) if for_x else None,
            adjoint(x, g) if for_weight else None,
            None,
        )


def _product(x: torch.Tensor, transposed: torch.Tensor, fixed: bool) -> torch.Tensor:
    """x [n, k] times the transpose of `transposed` [m, k]."""
    library = onednn() if fixed and len(x) >= LEAST_ROWS else None
    if library is None or x.dtype != torch.float32 or not x.is_contiguous():
        return x @ transposed.t()
    return library(x, transposed.contiguous())


@functools.cache
def onednn() -> Product | None:
    """x [n, k], w [m, k] -> x w^T by oneDNN; None where MKL is as fast, or torch has no such product."""
    slow = cpu_field("vendor_id") != "GenuineIntel" and torch.backends.mkl.is_available()
    if not (slow and torch.backends.mkldnn.is_available()):
        return None
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    return None if linear is None else lambda x, w: linear(x, w, None, "none", [], "")
