"""Vertex-cut partitions: which worker owns each edge, and what that costs (CDFGNN, section 6 and Table 3).

An edge is undirected here: both directions of it go to one worker, and self-loops are left out (they belong
to their vertex's master). A vertex has a *replica* on every worker that owns an edge of it; one of them is
its *master*, the others are *mirrors*."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from harness.base.errors import choice, typed
from harness.base.splitmix import GOLDEN, mix
from harness.data.graph import Graph
from harness.data.partition.assign import check_hosts, check_parts, checked_owners, undirected
from harness.data.partition.config import EDGE_METHODS, MASTER_RULES, VertexCutPartitioner
from harness.data.partition.dne import Dne
from harness.data.partition.ebv import Ebv
from harness.data.partition.hep import Hep
from harness.data.partition.metis_edges import MetisEdges


@dataclass
class EdgeAssignment:
    """M undirected edges on `parts` workers of `hosts` hosts, which have equally many consecutive workers.

    low, high   [M] int32, low < high, ascending by (low, high): an edge's id is its place
    owner       [M] int32: the worker of each edge
    """

    num_vertices: int
    parts: int
    hosts: int
    low: np.ndarray
    high: np.ndarray
    owner: np.ndarray

    def replicas(self) -> tuple[np.ndarray, np.ndarray]:
        """(indptr [V+1] int64, worker [R] int32): the workers that hold each vertex, ascending.

        A vertex without edges has a single replica, on the worker that a hash of its id names."""
        holds = np.zeros((self.num_vertices, self.parts), np.bool_)
        holds[self.low, self.owner] = holds[self.high, self.owner] = True
        (alone,) = np.nonzero(~holds.any(1))
        holds[alone, _hash.py_func(alone.astype(np.uint64)) % np.uint64(self.parts)] = True
        indptr = np.concatenate([[0], np.cumsum(holds.sum(1))])
        return indptr, np.nonzero(holds)[1].astype(np.int32)

    def masters(
        self, rule: str = VertexCutPartitioner.masters, replicas: tuple[np.ndarray, np.ndarray] | None = None
    ) -> np.ndarray:
        """[V] int32: each vertex's master, chosen by a hash of its id.

        rule   "host": among its replicas on the host with most of them (the hash breaks ties);
               "hash": among all
        replicas   `self.replicas()`, from a caller that has it already
        """
        choice("masters", rule, MASTER_RULES)
        # For "hash" all workers count as one host, which then holds all replicas.
        per_host = self.parts // self.hosts if rule == "host" else self.parts
        return _masters(*(replicas or self.replicas()), self.parts, per_host)


def assign_edges(
    graph: Graph, method: str | VertexCutPartitioner, parts: int, seed: int, **knobs: Any
) -> EdgeAssignment:
    """Give every undirected edge of the graph to one of `parts` workers.

    method   a partitioner, or a name in CUTS, whose partitioner is then made with `knobs`

    Raises InputError where an argument is out of range, or the partitioner gives no owners."""
    if isinstance(method, str):
        choice("partition.method", method, EDGE_METHODS)
        method = typed(CUTS[method], knobs, "partition")
    check_parts(graph, parts)
    check_hosts(method.hosts, parts)
    low, high = undirected_edges(graph)
    given = method.edge_owners(low, high, graph.num_vertices, parts, seed if method.drawn else 0)
    owner = checked_owners(given, len(low), parts, method, "edge")
    return EdgeAssignment(graph.num_vertices, parts, method.hosts, low, high, owner)


# conf/partition/ names Ebv, Hep and Dne as classes of this module, which keeps the names of run folders.
CUTS: dict[str, type[VertexCutPartitioner]] = {"ebv": Ebv, "hep": Hep, "dne": Dne, "metis/edges": MetisEdges}


def undirected_edges(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), [M] int32 each: every joined pair once, without self-loops, ascending by (low, high)."""
    indptr, indices = undirected(graph)
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    above = indices > rows
    return rows[above], indices[above]


def statistics(edges: EdgeAssignment, masters: str = VertexCutPartitioner.masters) -> dict[str, Any]:
    """The columns of CDFGNN's Table 3, and what they are made of; lists by worker. `masters` is their rule.

    replicas, edges        of each worker
    inner, outer           messages each worker sends in one synchronisation, to workers of its own host and
                           of others: a mirror sends its part to the master, the master sends the sum to every
                           mirror
    max_inner, max_outer   the largest worker's: the table's Inner and Outer
    replication            RF, replicas / V
    edge_imbalance         Edge IF, the largest worker's edges over the mean
    vertex_imbalance       the largest worker's replicas over the mean
    """
    indptr, worker = edges.replicas()
    master = edges.masters(masters, (indptr, worker))
    inner, outer = _messages(indptr, worker, master, edges.parts, edges.parts // edges.hosts)
    per_worker = np.bincount(edges.owner, minlength=edges.parts)
    replicas = np.bincount(worker, minlength=edges.parts)
    return {
        "replicas": replicas.tolist(),
        "edges": per_worker.tolist(),
        "inner": inner.tolist(),
        "outer": outer.tolist(),
        "max_inner": int(inner.max()),
        "max_outer": int(outer.max()),
        "replication": len(worker) / edges.num_vertices,
        "edge_imbalance": float(per_worker.max() * edges.parts / max(len(edges.owner), 1)),
        "vertex_imbalance": float(replicas.max() * edges.parts / len(worker)),
    }


@njit(cache=True, nogil=True)
def _hash(v):
    """splitmix64 of a vertex id, uint64."""
    return mix(v + np.uint64(GOLDEN))


@njit(cache=True, nogil=True)
def _masters(indptr, worker, parts, per_host):
    masters = np.empty(len(indptr) - 1, np.int32)
    hosts = parts // per_host
    on_host = np.empty(hosts, np.int64)
    for v in range(len(masters)):
        on_host[:] = 0
        for k in range(indptr[v], indptr[v + 1]):
            on_host[worker[k] // per_host] += 1
        # The search for the host with most replicas begins at one that the hash names, so that ties do not
        # all fall to the first host.
        hashed = _hash(np.uint64(v))
        turn = np.int64((hashed >> np.uint64(32)) % np.uint64(hosts))
        host = turn
        for i in range(hosts):
            if on_host[(turn + i) % hosts] > on_host[host]:
                host = (turn + i) % hosts
        first = indptr[v]  # replicas ascend, so a host's stand together
        while worker[first] // per_host != host:
            first += 1
        masters[v] = worker[first + np.int64(hashed % np.uint64(on_host[host]))]
    return masters


def _messages(
    indptr: np.ndarray, worker: np.ndarray, masters: np.ndarray, parts: int, per_host: int
) -> tuple[np.ndarray, np.ndarray]:
    """[P] each: the messages that each worker sends inside its host and to other hosts. A mirror makes two:
    its worker sends the part, and its master's worker sends the sum."""
    master = np.repeat(masters, np.diff(indptr))
    mirror, inside = worker != master, worker // per_host == master // per_host
    inner, outer = (
        np.bincount(worker[sent], minlength=parts) + np.bincount(master[sent], minlength=parts)
        for sent in (mirror & inside, mirror & ~inside)
    )
    return inner, outer
