"""The sparse product against what the memory of this machine can do, and its cost as the graph grows.

Every function returns rows (dicts); `python -m harness.bench` prints them.
"""

from __future__ import annotations

from functools import partial

import numba
import numpy as np
import torch

from harness.bench.lines import timed
from harness.core.dgl_kernel import load_dgl
from harness.core.kernels import SparseOperator, make_kernel
from harness.partition.shard import Csr

# vertices, edges
SHAPES = {"twin/reddit 0.05": (11_648, 5_730_000), "twin/reddit 1.0, sparse": (232_965, 11_000_000)}
WIDTHS = (41, 64, 128, 256)


def copy_bandwidth(megabytes: int = 256) -> float:
    """Bytes per second read plus written by a copy of an array that no cache holds, with torch's threads."""
    source = torch.ones(megabytes << 18)
    target = torch.empty_like(source)
    return 2 * source.nbytes / min(timed(lambda: target.copy_(source)))


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


def spmm_bytes(block: Csr, width: int) -> int:
    """Bytes a product moves if nothing is cached:  4 (rows + 1) + 4 E  +  4 F E  +  4 F rows

    the pointers and indices once, one row of F float32 gathered per entry, every output row written once.
    """
    rows, entries = block.num_rows, block.num_entries
    return 4 * (rows + 1) + 4 * entries + 4 * width * entries + 4 * width * rows


def compulsory_bytes(block: Csr, width: int) -> int:
    """Bytes a product must move even with an endless cache: as `spmm_bytes`, each input row read once."""
    rows = block.num_rows
    return 4 * (rows + 1) + 4 * block.num_entries + 4 * width * block.num_columns + 4 * width * rows


def available_kernels() -> list[str]:
    return ["numba", "torch"] + (["dgl"] if load_dgl() is not None else [])


def _gcn(block: Csr, kernel: str) -> SparseOperator:
    scale = (1.0 / np.sqrt(np.diff(block.indptr) + 1.0)).astype(np.float32)
    return SparseOperator(block, scale, scale, self_loops=True, kernel=make_kernel(kernel))


def roofline_rows(
    shapes: dict[str, tuple[int, int]] = SHAPES, widths: tuple[int, ...] = WIDTHS
) -> list[dict]:
    """One row per graph, width and kernel: GCN's normalised product, its effective bandwidth and that over a
    copy's.

    A ratio above 1 says that caches served the gathers; `floor` is the share of the time that the compulsory
    bytes alone would take at the copy's bandwidth.
    """
    copy = copy_bandwidth()
    rows = []
    for graph, (vertices, edges) in shapes.items():
        block = random_graph(vertices, edges)
        operators = {kernel: _gcn(block, kernel) for kernel in available_kernels()}
        for width in widths:
            x = torch.rand(vertices, width)
            out = torch.empty_like(x)
            for kernel, operator in operators.items():
                samples = timed(partial(operator.forward, x, out=out))
                seconds = min(samples)
                bandwidth = spmm_bytes(block, width) / seconds
                rows.append(
                    {
                        "graph": graph,
                        "vertices": vertices,
                        "edges": block.num_entries,
                        "width": width,
                        "kernel": kernel,
                        "threads": torch.get_num_threads(),
                        "seconds": seconds,
                        "samples": samples,
                        "bytes_per_s": bandwidth,
                        "copy_bytes_per_s": copy,
                        "ratio": bandwidth / copy,
                        "floor": compulsory_bytes(block, width) / copy / seconds,
                    }
                )
    return rows


def cost_curve(
    kernel: str = "auto",
    width: int = 128,
    mean_degree: int = 50,
    points: int = 5,
    least: float = 1e5,
    most: float = 1e7,
) -> list[dict]:
    """Seconds, and nanoseconds per edge, of the product over graphs of 10^5 to 10^7 edges at a constant mean
    degree.

    Neighbours are uniform, the worst case for caches: the cost of an edge rises where `input_bytes` outgrows
    a cache.
    """
    rows = []
    for edges in np.geomspace(least, most, points).astype(int):
        block = random_graph(int(edges) // mean_degree, int(edges))
        operator = _gcn(block, kernel)
        x = torch.rand(block.num_rows, width)
        out = torch.empty_like(x)
        samples = timed(partial(operator.forward, x, out=out))
        rows.append(
            {
                "kernel": operator.kernel.name,
                "width": width,
                "vertices": block.num_rows,
                "edges": block.num_entries,
                "input_bytes": x.nbytes,
                "seconds": min(samples),
                "samples": samples,
                "ns_per_edge": 1e9 * min(samples) / block.num_entries,
            }
        )
    return rows
