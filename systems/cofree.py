"""CoFree: a vertex-cut whose replicas are never synchronised.

Cao, Deng, Wu, Huang, Subbian, Leskovec, "Communication-Free Distributed GNN Training with Vertex Cut", arXiv
2308.03209, 2023. Every worker trains on its own edges, and a training vertex counts at each of its replicas:

    Z_i = A_i H_i W                     A_i [r, r] the worker's own edges and a self-loop for every replica
    loss = sum_i sum over its training vertices v of w_i(v) L_v(Z_i) / t,   w_i(v) = d_i(v) / d(v)

Its DropEdge-K makes K masks of the edges before training and takes one of them in each epoch.

Notation: d(v) the in-degree of v without its self-loop, d_i(v) the part of it on worker i; t training
vertices of all workers; m mirrors of all workers; |W| parameters.

Bytes over all workers, 4-byte floats:
    weights    2 (P - 1) 4 |W| per epoch
    features   4 f_0 m, once or, under `features=refetch`, per epoch

Decisions
- a vertex without in-edges counts 1 at its master. d counts edges whatever their weights; the degrees of A
  are sums of weights.
- weights=equal leaves the weights out: all replicas of training vertices count alike, w = t over their number
  on all workers.
- degrees of A: global (those of the whole graph, for self-loops too) | local (the worker's own in-edges).
- drop_edges: K, off by default. A mask drops each edge, in both directions, with probability drop_rate, by a
  hash of the seed, the mask and both ends; self-loops stay, nothing is rescaled and degrees do not change.
  Which mask an epoch takes is a hash of the seed and the epoch, the same on all workers.
- a worker's shard holds its mirrors' features; they are sent and counted all the same. Its mirrors' labels,
  which of them are trained on, and what the weights of the loss take of their degrees are sent before
  training, uncounted.
- layer 0 keeps A X under `features=once`. Where features are bags of words it computes A (X W) in every epoch
  instead, and where edges are dropped whichever side `order` puts first.
- evaluation is exact, over synchronised replicas.
Departures: the paper's full text was not at hand. The weights of the loss and DropEdge-K are from memory of
it; K and the rate are not printed in what could be read.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numba
import numpy as np
import torch

from harness.base.bounds import number, word
from harness.base.splitmix import GOLDEN, mix, mix_int
from harness.core.evaluate import targets
from harness.core.mixins import KeepsInput, WeighsLoss
from harness.core.replicas import ReplicaAdjacency, StaticSums, sum_replicas
from harness.core.system import Refuses, ReplicaSystem, Traits, without_effect
from harness.data.partition.shard import Csr

MASK = 2**64 - 1


@dataclass
class Cofree(WeighsLoss, KeepsInput, ReplicaSystem):
    """degrees     of the propagation matrix: "global", or "local" to each worker
    weights     of a training vertex's replicas in the loss: "degrees", by their in-edges, or all "equal"
    drop_edges  K, the number of masks of edges, of which each epoch takes one; 0: no edge is dropped
    drop_rate   the share of edges that a mask drops
    features    "once": mirrors' features are fetched once; "refetch": in every epoch
    """

    degrees: str = word("global", "local")  # type: ignore[misc]  # a knob here
    weights: str = word("degrees", "equal")
    drop_edges: int = number(0, 0, 1000)
    drop_rate: float = number(0.5, 0, 1)
    features: str = word("once", "refetch")

    refuses: ClassVar = Refuses(
        wire="uses the features that its shards hold, and sends no other row",
        needed_rows="computes the rows of all its replicas",
        attention="trains over a vertex-cut, for which attention is not built",
        batch_norm="adds up no statistics, since its workers train without communication",
    )

    def traits(self):
        idle = [] if self.drop_edges else ["drop_rate"]
        return Traits(ineffective=without_effect(self, idle, "at system.drop_edges=0 no edge is dropped"))

    def setup(self, context):
        super().setup(context)
        shard, like, edges = self.shard, self.adjacency, self.shard.edges
        degrees = edges.row_sums() if self.degrees == "local" else shard.degrees
        masks = [kept(edges, shard.vertices, self.seed, k, self.drop_rate) for k in range(self.drop_edges)]
        self.graphs = [
            ReplicaAdjacency(
                replace(shard, edges=own), like.normalisation, like.kernel, self.device, degrees, apart=True
            )
            for own in masks or [edges]
        ]
        for each in self.graphs:
            each.features = like.features
        self.adjacency, self.fetched = self.graphs[0], False

    def loss_rows(self):
        shard, masters = self.shard, self.shard.num_masters
        # Masters tell their mirrors their labels, and whether they are training vertices.
        mine = np.column_stack([shard.labels, shard.train]).astype(np.int32)
        sent = torch.from_numpy(mine).to(self.device)
        theirs = self.comm.exchange(self.plan, sent, -1, "labels").wait()
        told = np.concatenate([mine, theirs.cpu().numpy()])
        trained = told[:, -1] > 0
        if self.weights == "equal":
            count, replicas = self.comm.total([trained[:masters].sum(), trained.sum()])
            share = np.full(len(trained), count / max(replicas, 1))
        else:
            # A replica's share of the loss is d_i(v) / d(v), its in-edges here over those on all workers.
            own = torch.from_numpy(np.diff(shard.edges.indptr)).long().view(-1, 1).to(self.device)
            whole = sum_replicas(self.comm, self.plan, own, -1, "forward", "degrees")
            here, all_edges = own.cpu().numpy()[:, 0], whole.cpu().numpy()[:, 0]
            alone = np.arange(len(here)) < masters  # the share where there is no in-edge: 1 at the master
            share = np.divide(here, all_edges, out=alone.astype(np.float64), where=all_edges > 0)
        rows = np.flatnonzero(trained & (share > 0))
        labels = told[:, :-1].astype(shard.labels.dtype).reshape(-1, *shard.labels.shape[1:])
        weights = torch.as_tensor(share[rows]).to(self.device, torch.get_default_dtype())
        return torch.from_numpy(rows).to(self.device), targets(labels, self.device), weights

    def static_input(self, x):
        if not self.fetched:
            self.input_halo(x)
            self.fetched = True
        features = self.adjacency.features
        assert features is not None
        # Where few features are not 0, A (X W) is cheaper than a kept A X, which is dense.
        if self.drop_edges or features.sparse:
            return None
        return StaticSums(x, self.adjacency.times(x), self.adjacency.kernel)

    def before_epoch(self, epoch):
        if self.drop_edges:
            key = (self.seed * 1_000_003 + epoch) & MASK
            self.adjacency = self.graphs[mix_int(key) % self.drop_edges]

    def synchronize(self, layer, z):
        return z

    def propagate(self, layer, h, weight, dropout):
        if layer == 0 and self.features == "refetch":
            self.comm.exchange(self.plan, h, 0).wait()
        return super().propagate(layer, h, weight, dropout)


def kept(edges: Csr, ids: np.ndarray, seed: int, mask: int, rate: float) -> Csr:
    """The edges of a block that mask number `mask` keeps, of which it drops the share `rate`; ids [r] int32
    are the global ids of the block's rows and columns."""
    base = np.uint64(mix_int((seed * 1_000_003 + mask + 1) & MASK))
    left = _kept(edges.indptr, edges.indices, np.asarray(ids), base, rate)
    ends = np.concatenate([[0], np.cumsum(left)])
    values = None if edges.values is None else np.asarray(edges.values)[left]
    return Csr(ends[edges.indptr].astype(edges.indptr.dtype), edges.indices[left], edges.num_columns, values)


@numba.njit(cache=True, nogil=True)
def _kept(indptr: Any, indices: Any, ids: Any, base: Any, rate: float) -> Any:
    """Which entries stay [entries] bool: both directions of an edge, or neither."""
    left = np.empty(len(indices), np.bool_)
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            low, high = min(ids[v], ids[indices[e]]), max(ids[v], ids[indices[e]])
            pair = (np.uint64(low) << np.uint64(32)) | np.uint64(high)
            bits = mix(base + pair * np.uint64(GOLDEN))
            left[e] = np.float64(bits >> np.uint64(11)) * 2.0**-53 >= rate
    return left
