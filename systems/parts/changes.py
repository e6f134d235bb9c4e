"""Rows that have changed since they were kept. On the CPU a compiled loop reads each row once, where torch's
operations pass over all of them four times."""

import numba
import numpy as np
import torch

from harness.base.hollow import either, hollow

KEYS = {torch.float32: np.int32, torch.float64: np.int64}  # whole numbers of as many bits


def changed(x: torch.Tensor, kept: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two answers by row of x [k, F], F >= 1, each [k] bool. Whether the row differs from the kept one by
    more than epsilon, ||x - kept||_inf > epsilon ||kept||_inf, or has a value that is not a number; and
    whether both the row and the kept one are 0.
    """
    if hollow(x, kept):
        same = torch.full((len(x),), not either())
        return ~same, torch.zeros_like(same)
    if x.device.type != "cpu":
        return changed_with_torch(x, kept, epsilon)
    fresh, zero = np.empty((2, len(x)), np.bool_)
    row = np.empty((2, x.shape[1]), KEYS[x.dtype])
    values = x.detach().numpy()
    limit, unsigned = values.dtype.type(epsilon), row.dtype.type(np.iinfo(row.dtype).max)
    _compare(values, kept.numpy(), limit, row, unsigned, row.view(values.dtype), fresh, zero)
    return torch.from_numpy(fresh), torch.from_numpy(zero)


def changed_with_torch(
    x: torch.Tensor, kept: torch.Tensor, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """`changed` by torch's operations, on any device."""
    change, size = (x - kept).abs_().amax(1), kept.abs().amax(1)
    return ~(change <= epsilon * size), (change == 0) & (size == 0)


def difference(x: torch.Tensor, kept: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """x[at] - kept[at]  [len(at), F]."""
    return x.index_select(0, at).sub_(kept.index_select(0, at))


@numba.njit(cache=True, nogil=True)
def _compare(
    x: np.ndarray,
    kept: np.ndarray,
    epsilon: np.floating,
    keys: np.ndarray,
    unsigned: np.integer,
    row: np.ndarray,
    fresh: np.ndarray,
    zero: np.ndarray,
) -> None:
    """Fill fresh and zero [k]. One row is worked on in row [2, F]; keys [2, F] is the same memory as whole
    numbers, and `unsigned` has every bit but the sign's."""
    # Without their sign, floating-point numbers order as their bits do, and what is not a number comes last.
    # So the maximum is taken of whole numbers, many at a time, and shows also a value that is not a number.
    for r in range(len(x)):
        for k in range(x.shape[1]):
            row[0, k] = x[r, k] - kept[r, k]
            row[1, k] = kept[r, k]
        change, size = keys[0, 0] & unsigned, keys[1, 0] & unsigned
        for k in range(x.shape[1]):
            change = max(change, keys[0, k] & unsigned)
            size = max(size, keys[1, k] & unsigned)
        keys[0, 0], keys[1, 0] = change, size
        fresh[r] = not (row[0, 0] <= epsilon * row[1, 0])
        zero[r] = change == 0 and size == 0
