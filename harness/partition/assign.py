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

    random and block differ in size by at most one vertex. metis is k-way METIS on the undirected pattern without
    self-loops; its seed is the run's plus one, since METIS takes seeds from 1 on. Where METIS leaves a part empty
    (tiny graphs), the part takes one vertex from the largest.
    """
    choice("partition.method", method, METHODS)
    n = graph.num_vertices
    if parts < 1:
        raise InputError(f"gpus={parts} is too small: give 1 or more")
    if parts > n:
        raise InputError(f"gpus={parts} is more workers than {graph.name} has vertices ({n}); give {n} or fewer")
    if method == "block" or parts == 1:
        return balanced(n, parts)
    if method == "random":
        return balanced(n, parts)[np.random.default_rng(seed).permutation(n)]
    return fill_empty(metis(graph, parts, seed), parts)


def balanced(n: int, parts: int) -> np.ndarray:
    """[n] int32: contiguous parts of n // parts or one more."""
    return (np.arange(n, dtype=np.int64) * parts // n).astype(np.int32)


def metis(graph: Graph, parts: int, seed: int) -> np.ndarray:
    indptr, indices = graph.indptr, graph.indices
    if not graph.symmetric:
        undirected = from_csr(indptr, indices, symmetrise=True, where=graph.name)
        indptr, indices = undirected.indptr, undirected.indices
    indptr, indices = without_self_loops(indptr, indices)
    if len(indices) == 0:
        return balanced(graph.num_vertices, parts)
    options = pymetis.Options(seed=seed + 1)
    index = np.int32 if len(indices) < 2**31 else np.int64
    _, membership = pymetis.part_graph(parts, xadj=indptr.astype(index, copy=False), adjncy=indices.astype(index, copy=False),
                                       options=options, recursive=False)
    return np.asarray(membership, dtype=np.int32)


def fill_empty(assignment: np.ndarray, parts: int) -> np.ndarray:
    sizes = np.bincount(assignment, minlength=parts)
    for part in np.flatnonzero(sizes == 0):
        giver = int(np.argmax(sizes))
        assignment[np.flatnonzero(assignment == giver)[-1]] = part
        sizes[giver] -= 1
        sizes[part] += 1
    return assignment


@numba.njit(cache=True)
def _drop_loops(indptr, indices, out_ptr, out):
    e = 0
    for v in range(len(indptr) - 1):
        for k in range(indptr[v], indptr[v + 1]):
            if indices[k] != v:
                out[e] = indices[k]
                e += 1
        out_ptr[v + 1] = e
    return e


def without_self_loops(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    out_ptr, out = np.zeros_like(indptr), np.empty_like(indices)
    return out_ptr, out[: _drop_loops(indptr, indices, out_ptr, out)]
