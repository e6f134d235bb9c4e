"""What the sparse product is measured beside and on: this machine's memory, and graphs without locality."""

from __future__ import annotations

import numba
import numpy as np
import torch

from harness.data.partition.shard import Csr
from harness.dev.bench.lines import interleaved


def copy_bandwidths(megabytes: int = 256, rounds: int = 5) -> list[float]:
    """Bytes per second read plus written by copies of an array that no cache holds, with torch's threads."""
    source = torch.ones(megabytes << 18)
    target = torch.empty_like(source)
    seconds = interleaved({"copy": lambda: target.copy_(source)}, rounds, warm_up=1)["copy"]
    return [2 * source.nbytes / each for each in seconds]


@numba.njit(cache=True, nogil=True)
def _random_rows(indptr, vertices, seed):
    np.random.seed(seed)
    indices = np.empty(indptr[-1], np.int32)
    for v in range(vertices):
        # One draw from each of d equal strata: ascending, without repeats, every column equally likely.
        degree = indptr[v + 1] - indptr[v]
        for i in range(degree):
            low, high = i * vertices // degree, (i + 1) * vertices // degree
            indices[indptr[v] + i] = np.random.randint(low, high)
    return indices


def random_graph(vertices: int, edges: int, seed: int = 0) -> Csr:
    """A square block with about `edges` entries: lognormal degrees (a long tail), neighbours uniform, so
    without locality.
    """
    weights = np.random.default_rng(seed).lognormal(sigma=1.0, size=vertices)
    degrees = np.minimum(weights * (edges / weights.sum()), vertices // 2).astype(np.int64)
    # What rounding and the cap took away is spread evenly, up to the cap.
    degrees = np.minimum(degrees + max(0, edges - degrees.sum()) // vertices, vertices // 2)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int32)
    return Csr(indptr, _random_rows(indptr, vertices, seed), vertices)
