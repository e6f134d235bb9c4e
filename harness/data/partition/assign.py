"""Edge-cut partitions: which worker owns each vertex."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pymetis

from harness.base.bounds import number
from harness.base.errors import InputError, choice
from harness.data.csr import from_csr
from harness.data.graph import Graph
from harness.data.partition.config import EdgeCutPartitioner, Partitioner


def assign(graph: Graph, method: str | EdgeCutPartitioner, parts: int, seed: int) -> np.ndarray:
    """The owner [V] int32 of every vertex, each of the `parts` workers owning at least one.

    method   a partitioner, or the name of one of this module with its default values. An empty part (METIS
             leaves some on tiny or very dense graphs) takes half of the largest

    Raises InputError where `method` is unknown or gives no owners, or `parts` is not 1 to V."""
    if isinstance(method, str):
        named: dict[str, type[EdgeCutPartitioner]] = {"metis": Metis, "random": Random, "block": Block}
        choice("partition.method", method, named)
        method = named[method]()
    n = graph.num_vertices
    check_parts(graph, parts)
    if isinstance(method, Metis):
        check_hosts(method.hosts, parts)
    if parts == 1:
        return balanced(n, parts)
    owners = method.vertex_owners(graph, parts, seed if method.drawn else 0)
    return fill_empty(checked_owners(owners, n, parts, method, "vertex"), parts)


def check_parts(graph: Graph, parts: int) -> None:
    """Raise InputError where a graph cannot be divided among so many workers."""
    if parts < 1:
        raise InputError(f"workers={parts} is too small: give 1 or more")
    if parts > graph.num_vertices:
        raise InputError(
            f"workers={parts} is more workers than {graph.name} has vertices ({graph.num_vertices}); "
            f"give {graph.num_vertices} or fewer"
        )


def checked_owners(owners: Any, count: int, parts: int, method: Partitioner, what: str) -> np.ndarray:
    """[count] int32: the owners that a partitioner gave. Raises InputError where their shape, type or range
    is wrong. `what` names what they own: "vertex" or "edge"."""
    owners = np.asarray(owners)
    if owners.shape != (count,) or owners.dtype.kind not in "iu":
        raise InputError(
            f"partition={method.name} gave {owners.dtype} of shape {list(owners.shape)} as owners of each"
            f" {what}; it must give integers of shape [{count}]"
        )
    if count and not (owners.min() >= 0 and owners.max() < parts):
        raise InputError(
            f"partition={method.name} gave owners {owners.min()} to {owners.max()}; with workers={parts} it"
            f" must give 0 to {parts - 1}"
        )
    return owners.astype(np.int32, copy=False)


@dataclass
class Metis(EdgeCutPartitioner):
    """k-way METIS: the fewest cut edges, on the undirected pattern without self-loops.

    hosts    the number of hosts: the graph is cut into a part per host first, and each of these for the
             host's workers. Every host has the same number of consecutive workers
    """

    hosts: int = number(1, 1)

    unkeyed: ClassVar = {"hosts": 1}

    def vertex_owners(self, graph, parts, seed):
        # One copy, in METIS's own index type: another type would be copied inside once more.
        return by_hosts(*pattern(graph, pymetis.zero_copy_dtype()), parts, seed, self.hosts)


class Random(EdgeCutPartitioner):
    """Vertices at random; parts differ in size by at most one vertex."""

    def vertex_owners(self, graph, parts, seed):
        n = graph.num_vertices
        return balanced(n, parts)[np.random.default_rng(seed).permutation(n)]


class Block(EdgeCutPartitioner):
    """Contiguous ids; parts differ in size by at most one vertex."""

    drawn: ClassVar[bool] = False

    def vertex_owners(self, graph, parts, seed):
        return balanced(graph.num_vertices, parts)


def balanced(n: int, parts: int) -> np.ndarray:
    """[n] int32: contiguous parts of n // parts vertices or one more."""
    return (np.arange(n, dtype=np.int64) * parts // n).astype(np.int32)


def by_hosts(starts: np.ndarray, neighbours: np.ndarray, parts: int, seed: int, hosts: int) -> np.ndarray:
    """[V] int32: METIS's parts of an undirected pattern, cut for the hosts first. Parts may be empty."""
    if hosts == 1:
        return _metis(starts, neighbours, parts, seed)
    host, per_host = _metis(starts, neighbours, hosts, seed), parts // hosts
    owners = np.empty(len(starts) - 1, np.int32)
    for k in range(hosts):
        vertices = np.flatnonzero(host == k)
        own = _metis(*_induced(starts, neighbours, vertices), per_host, seed)
        if len(vertices) >= per_host:  # else `assign` fills empty parts from another host's
            own = fill_empty(own, per_host)
        owners[vertices] = k * per_host + own
    return owners


def _metis(starts: np.ndarray, neighbours: np.ndarray, parts: int, seed: int) -> np.ndarray:
    """METIS's own answer, [V] int32; parts may be empty. Blocks where there is no edge to go by."""
    n = len(starts) - 1
    if parts == 1 or len(neighbours) == 0:
        return balanced(n, parts) if n else np.empty(0, np.int32)
    # METIS reads a seed in 31 bits, and its seeds begin at 1.
    options = pymetis.Options(seed=seed % (2**31 - 1) + 1)
    _, owners = pymetis.part_graph(
        parts, pymetis.CSRAdjacency(starts, neighbours), recursive=False, options=options, warn_on_copies=True
    )
    return np.asarray(owners, dtype=np.int32)


def _induced(
    starts: np.ndarray, neighbours: np.ndarray, vertices: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The pattern between `vertices` (ascending), which are renumbered from 0 in this order."""
    from scipy import sparse  # graphs that are cached start without it

    whole = sparse.csr_array(
        (np.ones(len(neighbours), np.bool_), neighbours, starts), shape=(len(starts) - 1,) * 2
    )
    part = whole[vertices][:, vertices]
    return part.indptr.astype(starts.dtype), part.indices.astype(neighbours.dtype)


def check_hosts(hosts: int, parts: int) -> None:
    """Raise InputError where workers cannot be spread evenly over hosts."""
    if parts % hosts:
        raise InputError(f"hosts={hosts} does not divide workers={parts}; give a divisor of it")


def undirected(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The compressed rows of the graph with the reverse of every edge: indptr [V + 1] and indices."""
    if graph.symmetric:
        return graph.indptr, graph.indices
    found = from_csr(graph.indptr, graph.indices, symmetrise=True, where=graph.name)
    return found.indptr, found.indices


def pattern(graph: Graph, index: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The undirected pattern without self-loops: starts [V + 1] and neighbours, of type `index`. Raises
    InputError where it has more entries than that type can count."""
    indptr, indices = undirected(graph)
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    kept = indices != rows
    entries, most = int(np.count_nonzero(kept)), np.iinfo(index).max
    if entries > most:
        raise InputError(
            f"{graph.name} has {entries} directed edges, and this partitioner counts to {most}; give"
            " partition=metis"
        )
    starts = np.zeros(len(indptr), index)
    np.cumsum(np.bincount(rows[kept], minlength=len(indptr) - 1), out=starts[1:])
    return starts, indices[kept].astype(index)


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
