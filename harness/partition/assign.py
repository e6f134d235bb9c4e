"""Edge-cut partitions: which worker owns each vertex."""

from __future__ import annotations

import numba
import numpy as np
import pymetis

from harness.check import InputError, choice
from harness.graph.csr import from_csr
from harness.graph.graph import Graph
from harness.partition.config import METHODS


def assign(graph: Graph, method: str, parts: int, seed: int) -> np.ndarray:
    """The owner [V] int32 of every vertex, each of the `parts` workers owning at least one.

    random and block differ in size by at most one vertex. metis is k-way METIS, minimising the edge cut, on
    the undirected pattern without self-loops. Where METIS leaves a part empty (tiny or very dense graphs),
    the part takes half of the largest.

    Raises InputError where `method` is unknown, or `parts` is below 1 or above the number of vertices.
    """
    choice("partition.method", method, METHODS)
    n = graph.num_vertices
    if parts < 1:
        raise InputError(f"workers={parts} is too small: give 1 or more")
    if parts > n:
        raise InputError(
            f"workers={parts} is more workers than {graph.name} has vertices ({n}); give {n} or fewer"
        )
    if method == "block" or parts == 1:
        return balanced(n, parts)
    if method == "random":
        return balanced(n, parts)[np.random.default_rng(seed).permutation(n)]
    return fill_empty(metis(graph, parts, seed), parts)


def balanced(n: int, parts: int) -> np.ndarray:
    """[n] int32: contiguous parts of n // parts vertices or one more."""
    return (np.arange(n, dtype=np.int64) * parts // n).astype(np.int32)


def metis(graph: Graph, parts: int, seed: int) -> np.ndarray:
    """METIS's own answer, [V] int32; parts may be empty. Blocks where there is no edge to go by."""
    indptr, indices = graph.indptr, graph.indices
    if not graph.symmetric:
        undirected = from_csr(indptr, indices, symmetrise=True, where=graph.name)
        indptr, indices = undirected.indptr, undirected.indices
    # One copy, in METIS's own index type: another type would be copied inside once more.
    index = pymetis.zero_copy_dtype()
    starts, neighbours = np.zeros(len(indptr), index), np.empty(len(indices), index)
    neighbours = neighbours[: _drop_loops(indptr, indices, starts, neighbours)]
    if len(neighbours) == 0:
        return balanced(graph.num_vertices, parts)
    # METIS reads a seed in 31 bits, and its seeds begin at 1.
    options = pymetis.Options(seed=seed % (2**31 - 1) + 1)
    _, owners = pymetis.part_graph(
        parts, pymetis.CSRAdjacency(starts, neighbours), recursive=False, options=options, warn_on_copies=True
    )
    return np.asarray(owners, dtype=np.int32)


def fill_empty(assignment: np.ndarray, parts: int) -> np.ndarray:
    """Give every empty part the latter half of what is then the largest part, in place."""
    sizes = np.bincount(assignment, minlength=parts)
    for part in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        taken = np.flatnonzero(assignment == largest)[(sizes[largest] + 1) // 2 :]
        assignment[taken] = part
        sizes[part] = len(taken)
        sizes[largest] -= len(taken)
    return assignment


@numba.njit(cache=True, nogil=True)
def _drop_loops(indptr, indices, starts, neighbours):
    """Copy the rows without self-loops into (starts, neighbours); returns how many entries are left."""
    end = 0
    for v in range(len(indptr) - 1):
        for k in range(indptr[v], indptr[v + 1]):
            if indices[k] != v:
                neighbours[end] = indices[k]
                end += 1
        starts[v + 1] = end
    return end
