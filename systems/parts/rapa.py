"""RAPA, CaPGNN's resource-aware adjustment of a partition (section 4.3): halo vertices and their edges leave
the workers whose cost is above the mean, until costs are alike or no worker can do more. Equations (13)-(16),
Algorithms 2 and 3.

Notation: G_i worker i's inner and halo vertices and the edges into its inner vertices; E_outer those from
halo vertices; lambda_i its cost, mean the mean over workers; S_k the influence score of halo vertex k; r_i
whether i can do no more.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.core.cluster import GIB, TIMES, Cluster, Device, relative
from harness.data.partition.shard import Shard
from systems.parts.some_columns import columns_of

Count = TypeVar("Count", float, np.ndarray)  # one, or several at once

MIB = 1024**2


def prices(devices: list[Device], alpha: float) -> np.ndarray:
    """[3, P] what each worker pays per outer edge, (H2D + D2H) (1 - 1/P) + IDT / P (eq. 13), and per edge of
    any kind, alpha SpMM, and per inner vertex, (1 - alpha) MM (eq. 14). Times are relative to the slowest.
    """
    mm, spmm, h2d, d2h, idt = (np.array(relative(devices, name)) for name in TIMES)
    workers = len(devices)
    return np.stack([(h2d + d2h) * (1 - 1 / workers) + idt / workers, alpha * spmm, (1 - alpha) * mm])


@dataclass
class Subgraph:
    """G_i while halo vertices are taken from it: `kept` [m] bool.

    ratio       [m] how many workers' halos hold the vertex (C of eq. 16)
    outer_price, edge_price, vertex_price   the worker's, of `prices`
    available   bytes of device memory; fixed, a_vertex, an_edge  the bytes of eq. (15), features among
                a_vertex
    """

    shard: Shard
    ratio: np.ndarray
    outer_price: float
    edge_price: float
    vertex_price: float
    available: float
    fixed: float
    a_vertex: float
    an_edge: float

    def __post_init__(self):
        shard = self.shard
        self.kept = np.ones(shard.num_halo, bool)
        self.edges = np.bincount(shard.halo_edges.indices, minlength=shard.num_halo)  # of every halo vertex
        self.sources = _back_edges(shard)

    @property
    def num_outer(self) -> int:
        return int(self.edges[self.kept].sum())

    def size(self) -> dict[str, float]:
        """Its vertices and edges, and what it costs, by metric."""
        outer = self.num_outer
        return {
            "rapa_vertices": self.shard.num_inner + int(self.kept.sum()),
            "rapa_edges": self.shard.inner_edges.num_entries + outer,
            "rapa_lambda": float(self.cost(outer)),
        }

    def cost(self, outer: Count) -> Count:
        """lambda_i = T_comp + T_comm with this many outer edges, eqs. (13)-(15)."""
        every = self.shard.inner_edges.num_entries + outer
        return every * self.edge_price + self.shard.num_inner * self.vertex_price + outer * self.outer_price

    def memory(self, halo: Count, outer: Count) -> Count:
        """Bytes of eq. (15) with this many halo vertices and outer edges."""
        vertices, edges = self.shard.num_inner + halo, self.shard.inner_edges.num_entries + outer
        return vertices * self.a_vertex + edges * self.an_edge + self.fixed

    def scores(self) -> np.ndarray:
        """S_k [m], eq. (16): in-degrees of the whole graph, out-degrees inside G_i. 0 where k is gone."""
        shard, kept = self.shard, self.kept
        rows = np.repeat(np.arange(shard.num_inner), np.diff(shard.halo_edges.indptr))
        columns = shard.halo_edges.indices
        to_inner = np.bincount(columns, weights=_inverse_root(shard.degrees)[rows], minlength=shard.num_halo)
        back_rows, back_columns, inner_out = self.sources
        there = kept[back_columns]
        out_degrees = inner_out + np.bincount(back_rows[there], minlength=shard.num_inner)
        from_inner = np.bincount(
            back_columns, weights=_inverse_root(out_degrees)[back_rows], minlength=shard.num_halo
        )
        first = to_inner * _inverse_root(self.edges)
        second = from_inner * _inverse_root(shard.halo_degrees)
        return np.where(kept, (first + second) * self.ratio, 0.0)

    def adjust(self, mean: float) -> bool:
        """One turn of Algorithm 3's loop for this worker; returns r_i."""
        # A worker that costs no more than the mean, and fits its device, has nothing to do.
        now, halo, outer = self.cost(self.num_outer), int(self.kept.sum()), self.num_outer
        if now <= mean and self.memory(halo, outer) <= self.available:
            return True
        there = np.flatnonzero(self.kept)
        # Otherwise halo vertices leave, the lowest score first, ties by halo order: as few as bring the cost
        # halfway down to the mean and fit the device; all, if no number does.
        order = there[np.argsort(self.scores()[there], kind="stable")]
        left = outer - np.cumsum(self.edges[order])  # outer edges after each removal
        cost = self.cost(left)
        fits = self.memory(halo - np.arange(1, len(order) + 1), left) <= self.available
        enough = (cost <= max((now + mean) / 2, mean)) & fits
        removed = int(np.argmax(enough)) + 1 if enough.any() else len(order)
        self.kept[order[:removed]] = False
        return removed == 0


def _inverse_root(degrees: np.ndarray) -> np.ndarray:
    d = degrees.astype(np.float64)
    return np.divide(1.0, np.sqrt(d), out=np.zeros_like(d), where=d > 0)


def _back_edges(shard: Shard) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges of the graph from inner vertices to halo vertices (inner rows, places), and out-edges of each
    inner vertex to inner ones.
    """
    outward = shard.outward
    inner, outer = outward.inner_edges, outward.halo_edges
    columns = outer.indices
    if not shard.symmetric:
        place = np.full(outer.num_columns, -1, np.int64)
        _, ours, theirs = np.intersect1d(outward.halo, shard.halo, assume_unique=True, return_indices=True)
        place[ours] = theirs
        columns = place[outer.indices]
    rows = np.repeat(np.arange(shard.num_inner), np.diff(outer.indptr))
    there = columns >= 0
    return rows[there], columns[there], np.diff(inner.indptr)


def balance(
    subgraph: Subgraph, comm: Comm, order: list[int], threshold: float, among: range
) -> list[dict[str, float]]:
    """Algorithm 2: adjust the workers in `order`, weakest first, until std(lambda) < threshold * mean or none
    can improve.

    Each worker adjusts its own subgraph and tells the others its new cost. Returns its `size` before the
    first iteration and after each.

    order   counted from the first worker of `among`
    among   the workers of this host, whose costs are balanced; other hosts balance theirs at the same time
    """

    def told_by_all(own: float) -> np.ndarray:
        return comm.gathered(np.array([own]))

    def told(own: float) -> np.ndarray:
        return told_by_all(own)[among.start : among.stop]

    history = [subgraph.size()]
    costs = told(history[0]["rapa_lambda"])
    done = False
    while True:
        settled = True
        # One after the other, each worker adjusts by the latest costs of all.
        for i in order:
            if among[i] == comm.rank and not done:
                settled = subgraph.adjust(costs.mean())
            costs = told(float(subgraph.cost(subgraph.num_outer)))
        if not done:
            history.append(subgraph.size())
        none_can = told(float(settled)).all()
        done = done or bool(costs.std() < threshold * costs.mean() or none_can)
        # A host that is done keeps step with those that are not.
        if told_by_all(float(done)).all():
            return history


def without(shard: Shard, kept: np.ndarray, comm: Comm, degrees: str) -> Shard:
    """The shard without the halo vertices that are not `kept` [m] and their edges; peers no longer send them.

    degrees   "global": those of the whole graph stay, so that kept edges keep their weight; "local": of the
              kept edges
    The out-edges of a directed shard stay whole: no system that restricts reads them.
    """
    # Each owner is told, in one byte per row of the halo, which rows it still has to send.
    mask = torch.from_numpy(kept.astype(np.uint8)).to(comm.device)
    halo_counts, send_counts = shard.halo_counts.tolist(), shard.send_counts.tolist()
    wanted = comm.exchange_now(mask[:, None], halo_counts, send_counts, -1, "backward", "rapa")
    sent = wanted[:, 0].cpu().numpy().astype(bool)
    by_owner, by_peer = (np.repeat(np.arange(comm.size), counts) for counts in (halo_counts, send_counts))
    counted = lambda groups: np.bincount(groups, minlength=comm.size).astype(np.int64)  # noqa: E731
    smaller = dataclasses.replace(
        shard,
        halo=shard.halo[kept],
        halo_counts=counted(by_owner[kept]),
        halo_rows=shard.halo_rows[kept],
        halo_degrees=shard.halo_degrees[kept],
        send_rows=shard.send_rows[sent],
        send_counts=counted(by_peer[sent]),
        halo_edges=columns_of(shard.halo_edges, np.flatnonzero(kept)),
    )
    if degrees == "global":
        return smaller
    # Degrees are counted anew, and the new ones of halo vertices come from their owners.
    own = (np.diff(shard.inner_edges.indptr) + np.diff(smaller.halo_edges.indptr)).astype(np.int32)
    packed = torch.from_numpy(own[smaller.send_rows]).to(comm.device)[:, None]
    counts = smaller.send_counts.tolist(), smaller.halo_counts.tolist()
    theirs = comm.exchange_now(packed, *counts, -1, "forward", "rapa")
    return dataclasses.replace(smaller, degrees=own, halo_degrees=theirs[:, 0].cpu().numpy().copy())


def apart(shard: Shard, comm: Comm, among: range) -> Shard:
    """The shard in the graph of its host alone: without the halo vertices whose owners are not in `among`,
    and with degrees that count what is left.
    """
    owners = np.repeat(np.arange(comm.size), shard.halo_counts)
    return without(shard, (owners >= among.start) & (owners < among.stop), comm, "local")


def restrict(
    shard: Shard,
    comm: Comm,
    cluster: Cluster,
    *,
    alpha: float,
    threshold: float,
    degrees: str,
    vertex_bytes: float,
    edge_bytes: float,
    beta_mb: float,
    among: range,
) -> tuple[Shard, list[dict[str, float]]]:
    """The worker's balanced shard, and the sizes by which `balance` came to it. `among`: the workers of its
    host; the halo has no vertices of other workers.
    """
    ratio = np.bincount(comm.gathered(shard.halo), minlength=shard.num_vertices)[shard.halo]
    for name in TIMES:  # on every worker alike: one host's devices may all state what another's lack
        relative(cluster.devices, name)
    pays = prices(cluster.devices[among.start : among.stop], alpha)
    memory = cluster.devices[comm.rank].memory_gb
    available = float("inf") if memory is None else memory * GIB
    a_vertex = vertex_bytes + shard.features.shape[1] * 4
    outer, edge, vertex = pays[:, comm.rank - among.start]
    fixed = beta_mb * MIB
    subgraph = Subgraph(shard, ratio, outer, edge, vertex, available, fixed, a_vertex, edge_bytes)
    # The weakest first: whom a vertex and an outer edge cost most together, ties by rank.
    weakest_first = np.argsort(-pays.sum(0), kind="stable").tolist()
    history = balance(subgraph, comm, weakest_first, threshold, among)
    return without(shard, subgraph.kept, comm, degrees), history
