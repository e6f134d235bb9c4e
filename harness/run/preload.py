"""Imported by a process that is about to fork others: loads what each of them would otherwise load by itself.

The first compiled loop loads numba's registries (half a second), and each further loop that a run needs takes
20 ms. So the loops of nearly every run are called here once, on tiny inputs. No thread starts:
`harness.base.loading` keeps OpenBLAS from starting some."""

import numpy as np
import torch

from harness.comm.rows import scatter_add_rows
from harness.core.dropout import dropout
from harness.core.features import compact
from harness.core.kernels.spmm import NumbaKernel, SparseOperator
from harness.data.partition.shard import Csr

WIDTH = 16  # values per row: a cache line of float32


def _load() -> None:
    scatter_add_rows(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.zeros(1, 1))
    kernel, one = NumbaKernel(), np.ones(1, np.float32)
    block, x = Csr(np.array([0, 1], np.int32), np.zeros(1, np.int32), 1), torch.ones(1, WIDTH)
    for scale in (None, one):  # rows gathered in place, and packed rows
        SparseOperator(block, scale, scale, kernel=kernel).forward(x)
    SparseOperator(block, kernel=kernel).adjoint(x)
    dropout(x, torch.zeros(1, dtype=torch.int32), 0.5, 1)
    compact(x, kernel, 1)


_load()
