"""Replicate: exact training that computes remote rows or fetches them, by cost.

Wang, Zhang, Wang, Chen, Zhang, Yu, "NeutronStar: Distributed GNN Training with Hybrid Dependency Management",
SIGMOD 2022. C_L are a worker's own rows (under `rows=needed` its training vertices). For l = L-1 .. 0 layer l
reads the rows N_l = C_{l+1} and their in-neighbours. A remote u of N_l, l >= 1, is either

    fetched    u is in F_l: its row comes from its owner, its gradient goes back and is added there
    cached     u is in C_l: layer l-1 computes its row here

C_l = N_l without F_l. In layer 0 rows are features, which are fetched. The loss counts own vertices alone, so
a cached vertex is an ordinary vertex of its worker, and weight gradients summed over workers are exact.

`mode=cache` (DepCache) caches all of N_l and `communicate` (DepComm) nothing. `hybrid` goes from layer L-1 to
1 and caches, the cheapest first, each row that costs less than fetching it. With T(u, l) the rows H[k]_v,
1 <= k <= l, that H[l]_u depends on and that are not computed here yet, and d_v the in-degree of v:

    cost of caching    sum over T(u, l) of (vertex + edge d_v) f_k
    cost of fetching   2 row f_l

Once u is cached, all rows of T(u, l) are computed here, and add nothing to the cost of another vertex.

Notation: L layers; f_l the width of H[l], H[0] = X.

Bytes per epoch over all workers, 4-byte floats:
    forward   4 |F_l| f_l for every layer l >= 1; for l = 0 all remote vertices of N_0 under
              `features=refetch`, and once under `features=once`
    backward  4 |F_l| f_l for every layer l >= 1

Decisions
- order of layers: from the last one down. Vertices are put in order by their costs before the layer's first
  choice; whether one is cached is decided by its cost at its turn.
- vertex, edge, row: 1, 1 and 16. The paper's system measures them (from memory); measured costs would make a
  run depend on the clock.
- memory bounds the vertices beyond a worker's own and their in-neighbours whose features it keeps, in
  `hybrid`. A vertex that does not fit is fetched.
- edges into remote vertices within L - 1 edges are asked for before the first epoch. Their bytes are the
  metric `structure_bytes` of epoch 0, and no part of an epoch's bytes. Metric `replicated`: the rows of C_l
  that are other workers'.
- dropout by vertex, as everywhere: a cached row has its owner's mask. Batch norm counts own rows.
Departures: the paper's text was not at hand. The costs' form is from memory; sharing and the order are ours.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numba
import numpy as np

from harness.base.bounds import number, word
from harness.core.mixins import ComputesOthers
from harness.core.needed import PerLayer
from harness.core.system import Ready, Refuses, System, Traits, without_effect
from harness.data.partition.shard import Shard
from systems.parts.extension import Around, Extension, around


@dataclass
class Replicate(ComputesOthers, System[Shard, PerLayer]):
    """mode      "hybrid": compute or fetch a remote row, by cost; "cache": compute all; "communicate": fetch
              all
    vertex    relative cost of one value of a row that is computed
    edge      relative cost of one value of one in-edge of such a row
    row       relative cost of one value of a row that is fetched, each way
    memory    most vertices beyond its own and their in-neighbours that a worker keeps; null: no bound
    features  "once": layer 0's remote rows are fetched one time; "refetch": in every epoch
    """

    mode: str = word("hybrid", "cache", "communicate")
    vertex: float = number(1.0, 0, 10**6)
    edge: float = number(1.0, 0, 10**6)
    row: float = number(16.0, 0, 10**6)
    memory: int | None = number(None)
    features: str = word("once", "refetch")

    exact: ClassVar[dict[str, Any]] = {}
    refuses: ClassVar = Refuses(needed_rows="")

    def supports(self, run):
        if self.mode != "communicate" and not run.fewer_rows:
            return (
                f"system.mode={self.mode} cannot be: the layers of model={run.model} give as many rows as"
                " they take; give system.mode=communicate"
            )
        return super().supports(run)

    def traits(self):
        idle = [] if self.mode == "hybrid" else ["vertex", "edge", "row", "memory"]
        why = f"at system.mode={self.mode} nothing is chosen by cost"
        return Traits(overlaps=True, ineffective=without_effect(self, idle, why))

    def rows_of_layers(self, shard, widths, needed, comm):
        layers = len(widths) - 1
        known = around(shard, comm, 0 if self.mode == "communicate" else layers - 1)
        self.extension = Extension(known, layers, needed, comm, Chooser(self, known, widths))
        return known.shard, self.extension.rows

    def before_epoch(self, epoch):
        self.extension.record(self.recorder, epoch)
        if self.features == "refetch":
            features = self.adjacency.at(0).features
            assert features is not None
            self.extension.fill(features.x, self.fetched)

    def halo(self, layer, h):
        if not self.extension.fetched[layer]:  # by no worker
            return Ready(h.new_empty(0, h.shape[1]))
        return self.comm.exchange(self.plans[layer], h, layer)

    def input_halo(self, x):
        self.extension.fill(x, self._features_of)
        return super().input_halo(x)

    def fetched(self, plan, x):
        return self.comm.exchange(plan, x, 0, "features").wait()


class Chooser:
    """Decides which remote rows a worker computes, as the `choose` of `Extension`."""

    def __init__(self, system: Replicate, of: Around, widths: list[int]):
        self.system, self.of, self.widths = system, of, np.array(widths, float)
        edges, own = of.edges, of.own
        self.held = np.zeros(edges.num_rows, bool)
        self.held[:own] = True
        self.held[edges.indices[: edges.indptr[own]]] = True
        bound = system.mode == "hybrid" and system.memory is not None
        self.room = system.memory if bound else edges.num_rows
        self.queue = np.empty(edges.num_rows, np.int64)
        self.before = np.empty(edges.num_rows, np.int64)

    def __call__(self, layer: int, wanted: np.ndarray, depth: np.ndarray) -> None:
        system = self.system
        if system.mode == "communicate":
            return
        always = system.mode == "cache"
        limit = np.inf if always else 2 * system.row * self.widths[layer]
        edges, prices = self.of.edges, (float(system.vertex), float(system.edge))
        given = (layer, edges.indptr, edges.indices, self.widths, *prices, limit, self.queue, self.before)
        if not always:
            wanted = wanted[np.argsort(_costs(wanted, depth, *given), kind="stable")]
        self.room -= _choose(wanted, depth, self.held, self.room, *given)


@numba.njit(cache=True, nogil=True)
def _raise(u, depth, layer, indptr, indices, widths, vertex, edge, limit, queue, before):
    """Raise u to depth `layer`, and the vertices that its row depends on to the depth that this needs.
    Returns the cost, and how many vertices were raised: `queue` begins with them, and `before` with their old
    depths. Where the cost reaches `limit` all is undone, and (limit, 0) is returned."""
    queue[0], before[0], depth[u] = u, depth[u], layer
    count, cost, at = 1, 0.0, 0
    while at < count:  # by falling depth, so that every vertex is met at its largest first
        v = queue[at]
        first, last = indptr[v], indptr[v + 1]
        for k in range(max(before[at], 0) + 1, depth[v] + 1):
            cost += (vertex + edge * (last - first)) * widths[k]
        if cost >= limit:
            _undo(depth, count, queue, before)
            return limit, 0
        for e in range(first, last):
            w = indices[e]
            if depth[v] > 1 and depth[w] < depth[v] - 1:
                queue[count], before[count], depth[w] = w, depth[w], depth[v] - 1
                count += 1
        at += 1
    return cost, count


@numba.njit(cache=True, nogil=True)
def _undo(depth, count, queue, before):
    for i in range(count):
        depth[queue[i]] = before[i]


@numba.njit(cache=True, nogil=True)
def _costs(wanted, depth, layer, indptr, indices, widths, vertex, edge, limit, queue, before):
    """What it costs to compute each of the rows `wanted` [k] by itself, at most `limit`; depths stay."""
    costs = np.empty(len(wanted))
    for i in range(len(wanted)):
        costs[i], count = _raise(
            wanted[i], depth, layer, indptr, indices, widths, vertex, edge, limit, queue, before
        )
        _undo(depth, count, queue, before)
    return costs


@numba.njit(cache=True, nogil=True)
def _choose(wanted, depth, held, room, layer, indptr, indices, widths, vertex, edge, limit, queue, before):
    """Raise each of `wanted` in turn, if it costs less than `limit` and the features that it needs beside
    those `held` [u] already fit into `room` (a number of vertices). Returns how many vertices were used."""
    used, new = 0, np.empty(len(held), np.int64)
    for u in wanted:
        if depth[u] >= layer:
            continue
        _, count = _raise(u, depth, layer, indptr, indices, widths, vertex, edge, limit, queue, before)
        more = 0
        for i in range(count):
            for e in range(indptr[queue[i]], indptr[queue[i] + 1]):
                if not held[indices[e]]:
                    held[indices[e]] = True
                    new[more] = indices[e]
                    more += 1
        if used + more <= room:
            used += more
        else:
            _undo(depth, count, queue, before)
            held[new[:more]] = False
    return used
