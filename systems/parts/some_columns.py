"""Some columns of a sparse block."""

import numba
import numpy as np

from harness.data.partition.shard import Csr


def columns_of(block: Csr, which: np.ndarray) -> Csr:
    """The block with its columns `which` [k], ascending, alone; entries stay in their order."""
    place = np.full(block.num_columns, -1, np.int32)
    place[which] = np.arange(len(which), dtype=np.int32)
    values = np.empty(0, np.float32) if block.values is None else block.values
    indptr, indices, values = _take_columns(block.indptr, block.indices, values, place)
    return Csr(indptr, indices, len(which), None if block.values is None else values)


@numba.njit(cache=True, nogil=True)
def _take_columns(indptr, indices, values, place):
    """The entries whose column has a place >= 0, which becomes their column; values [entries] or []."""
    kept_indptr = np.zeros_like(indptr)
    kept = np.empty(len(indices) + 1, indices.dtype)
    kept_values = np.empty(len(values) + 1, values.dtype)
    k = 0
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            # Every entry is written, and overwritten by the next unless it counts: a branch that goes by
            # chance is mispredicted.
            to = place[indices[e]]
            kept[k] = to
            if len(values):
                kept_values[k] = values[e]
            k += to >= 0
        kept_indptr[v + 1] = k
    return kept_indptr, kept[:k].copy(), kept_values[: min(k, len(values))].copy()
