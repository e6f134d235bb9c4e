"""Adding received rows to their places."""

import numba
import numpy as np
import torch

from harness.base.hollow import hollow


@numba.njit(cache=True, nogil=True)
def _scatter_add(out: np.ndarray, index: np.ndarray, rows: np.ndarray) -> None:
    for i in range(len(index)):
        target = out[index[i]]
        for k in range(rows.shape[1]):
            target[k] += rows[i, k]


def scatter_add_rows(out: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> None:
    """out[index[i]] += rows[i] in the order of i, in place. out [n, F], index [m], rows [m, F]; no autograd.

    `index_add_` says the same and, on the CPU, takes four to ten times as long (docs/log.md).
    """
    assert out.is_contiguous() or out.device.type != "cpu"
    # the compiled loop would read beyond their end
    if len(index) != len(rows) or rows.shape[1:] != out.shape[1:]:
        raise ValueError(
            f"{list(rows.shape)} rows cannot be added to {len(index)} places of {list(out.shape)} rows"
        )
    if out.device.type != "cpu":
        out.index_add_(0, index, rows)
    elif not hollow(out, rows):
        _scatter_add(out.detach().numpy(), index.numpy(), rows.detach().numpy())
