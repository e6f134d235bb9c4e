"""DGL's CPU copy-sum (`harness.base.dgl` loads DGL)."""

import numpy as np
import torch

from harness.base.dgl import load_dgl
from harness.base.machine import cache_bytes
from harness.data.partition.shard import Csr

UNKNOWN_CACHE = 32 << 20  # bytes, where the machine does not tell


def dies(block: Csr, width: int) -> bool:
    """Whether DGL 2.1.0's copy-sum may end the process on rows of `width` columns.

    Seen on some thirty products of different shape: it ended the process exactly where 2000 * width * mean
    degree was more than the last-level cache in bytes, or the input had more than 32 MB. Half of either is
    taken as the bound.
    """
    cache = cache_bytes(3) or cache_bytes(2) or UNKNOWN_CACHE
    mean_degree = block.num_entries / max(block.num_rows, 1)
    return 4000 * width * mean_degree > cache or 4 * block.num_columns * width > 16 << 20


class CopySum:
    """out += B x for a 0/1 block B, float32, through DGL's kernel without its graph and autograd layers."""

    def __init__(self, block: Csr):
        load_dgl()
        from dgl import _sparse_ops, heterograph_index

        self._kernel, self._view = _sparse_ops._CAPI_DGLKernelSpMM, _sparse_ops.to_dgl_nd
        self._none = self._view(None)
        # DGL keeps views of the index arrays; it wants both of one type.
        indptr = torch.from_numpy(np.ascontiguousarray(block.indptr, dtype=block.indices.dtype))
        indices = torch.from_numpy(np.ascontiguousarray(block.indices))
        self._graph = heterograph_index.create_unitgraph_from_csr(
            2,
            block.num_columns,
            block.num_rows,
            indptr,
            indices,
            torch.empty(0, dtype=indices.dtype),
            ["csc"],
            True,
        )

    def add(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """x [columns, F] and out [rows, F], both contiguous float32 on the CPU."""
        self._kernel(
            self._graph, "copy_lhs", "sum", self._view(x), self._none, self._view(out), self._none, self._none
        )
