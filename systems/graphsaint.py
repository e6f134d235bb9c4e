"""GraphSAINT: Zeng, Zhou, Srivastava, Kannan, Prasanna, "GraphSAINT: Graph Sampling Based Inductive Learning
Method", ICLR 2020, with which PSC-GCN (Table II) compares.

Implements training on random subgraphs whose losses and sums are made unbiased:

    before training: draw sets of vertices S_1..S_N until they have more than coverage * V vertices together
    C_v  = how many of them hold v,   C_vu = how many hold both v and u
    a step takes the next set S and the edges between its vertices:
        H^(l+1)_v = sigma(sum over u in S of (C_v / C_vu) A_vu H^(l)_u W)
        loss = sum over the training vertices v in S of N / (C_v t) L_v

In the mean over the sets that hold v, an edge that some set holds has the weight A_vu. The mean of the losses
over the N sets is the mean over all training vertices, if each of them is in some set.

Notation: V vertices and t training vertices; A normalised in the graph that sets are drawn from. C_v / C_vu
and N / (C_v t) are the `norm_aggr` and `norm_loss` of its authors' code.

Bytes of a worker and step:
    weights     2 (P - 1) 4 |W| over all workers

Decisions
- distributed form: GraphSAINT trains in one process, and PSC-GCN leaves it out of its times as unsuitable for
  several. With one worker this is the paper's. With more, every worker draws its sets from the graph of its
  own part: edges between parts are left out, as `local` does, t counts all workers' training vertices, and
  every worker takes part in every step.
- an epoch has max over workers of ceil(n / budget) steps, n the vertices of the graph that a worker draws
  from: as many as draw n vertices, of which some are drawn twice and others not at all. The loss that is
  reported is the mean over the steps.
- graph: all (one setting for all systems: every system here trains on all vertices, of which some are
  labelled) | train, as in the paper's code, whose graph has the training vertices alone.
- sampler: walk (random walks from uniform roots) | edge | node, with the probabilities of the paper's code.
  A vertex without an edge inside the part counts as one with an in-neighbour for `node`; `edge` never draws
  it.
  Its fourth, a walk with a frontier, is not built.
- budget: vertices drawn per set, of which some are drawn twice; a walk of h steps draws h + 1. null: every
  set is the whole graph, which is full-batch training.
- coverage: 50, the code's. The sets are drawn and counted before the first epoch, outside the clock, and
  again when a run is resumed.
- the sets that are counted are those that are trained on, in the same order, again and again. The paper's
  code draws new ones when it has used up the first; there an edge that no counted set held weighs 10,000.
- a set depends on (seed, worker, number) alone, and is drawn again when it is needed: no set is stored.
- attention takes its softmax over the edges of S, unscaled.
- evaluation is exact and sees the whole graph, as for every system.
Departures: without the code's clipping of gradients, rows scaled to length 1, and dense layer behind the
last: one model for all systems (`model.norm=l2` scales rows).
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from harness.base.bounds import number, word
from harness.comm.work import moved
from harness.core.batches import Batch, BatchSystem, Block, Sampled
from harness.core.evaluate import targets
from harness.core.features import given, precision
from harness.core.system import Traits, without_effect
from harness.data.partition.shard import Csr
from systems.parts.subgraphs import Counts, Sampler, induced


@dataclass
class Graphsaint(BatchSystem):
    """The knobs.

    sampler   how a set of vertices is drawn: "walk", "edge" or "node"
    budget    vertices drawn per set; null: every set is the whole graph
    length    steps of a walk
    coverage  sets are counted until they hold each vertex more often than this, in the mean
    graph     what sets are drawn from: "all" vertices, or those of "train"
    """

    sampler: str = word("walk", "edge", "node")
    budget: int | None = number(2000, 1)
    length: int = number(2, 1, 10**6)
    coverage: float = number(50.0, 0, 10**6, above=True)
    graph: str = word("all", "train")

    refuses: ClassVar = replace(
        BatchSystem.refuses,
        wire="sends no row of which wire would say anything",
        needed_rows="computes all rows of a subgraph",
    )
    smaller: ClassVar[str] = "a smaller system.budget"

    def traits(self):
        idle, why = [], f"at system.sampler={self.sampler} there is no walk"
        if self.budget is None:
            idle = ["sampler", "length", "coverage"]
            why = "at system.budget=null every set is the whole graph"
        elif self.sampler != "walk":
            idle = ["length"]
        return Traits(ineffective=without_effect(self, idle, why))

    def setup(self, context):
        super().setup(context)
        shard = self.shard
        # The worker's vertices [n] that sets are drawn from, and the graph of them.
        self.own = np.arange(shard.num_inner, dtype=np.int32)
        if self.graph == "train":
            self.own = np.flatnonzero(shard.train).astype(np.int32)
        self.among = shard.inner_edges if self.graph == "all" else induced(shard.inner_edges, self.own)[0]
        self.set_degrees = self.among.row_sums().astype(np.asarray(shard.degrees).dtype)
        self.train = np.asarray(shard.train)[self.own]
        self.ids = np.asarray(shard.inner)[self.own]
        self.sets = Sampler(self.among, self.sampler, self.budget, self.length, self.seed, self.comm.rank)
        self.counts = Counts.of(self.sets, self.coverage)
        self.place = np.full(len(self.own), -1, np.int32)
        here = np.array([len(self.own), self.train.sum()], np.int64)
        sizes, seeds = self.comm.gathered(here).reshape(-1, 2).T
        # The most vertices that a worker draws from, and all workers' training vertices.
        most, self.total = int(sizes.max()), int(seeds.sum())
        self.num_steps = 1 if self.budget is None else max(1, -(-most // self.budget))
        self.own_features = given(shard.features, self.device)
        self.labels = targets(shard.labels, self.device)

    def steps(self):
        return self.num_steps

    def seeds_per_epoch(self, training):
        # The weights of every step's seeds add up to all training vertices in the mean.
        return self.num_steps * training

    def make_batch(self, epoch, step):
        """The next set's subgraph. Training vertices come first, since a batch's seeds are its first rows."""
        inside = self.recorder.inside
        if not self.counts.sets:
            return None
        # The set, and the edges between its vertices, each weighed by C_v / C_vu.
        with inside("rest", "subgraph"):
            found = self.sets.vertices((epoch * self.num_steps + step) % self.counts.sets)
            seeds = found[self.train[found]]
            if not len(seeds):
                return None
            rows = np.concatenate([seeds, found[~self.train[found]]])
            edges, places = induced(self.among, rows, self.place)
            held = self.counts.vertices[rows]
            scales = np.repeat(held, np.diff(edges.indptr)) / self.counts.edges[places]
            edges.values = (scales if edges.values is None else scales * edges.values).astype(precision())
        # One block without outside sources serves every layer.
        with inside("rest", "blocks"):
            alone = Sampled(
                edges,
                edges.emptied(0),
                self.ids[rows],
                self.ids[:0],
                self.set_degrees[rows],
                self.set_degrees[:0],
                np.ones(len(rows)),
            )
            first = Block(alone, self.adjacency, 0)
            blocks = [first, *[first.of_layer(1)] * (self.num_layers - 1)]
        self.totals.update(edges=edges.num_entries, inputs=len(rows))
        # The features, all of own vertices, and the weight N / C_v of each seed's loss.
        taken = torch.from_numpy(self.own[rows]).long().to(self.device)
        with inside("rest", "gather", 0):
            table = self.own_features
            x = torch.from_numpy(table[self.own[rows]]) if isinstance(table, Csr) else table[taken]
            self.recorder.work(moved(x, of=len(self.own_features)))
        weights = torch.from_numpy((self.counts.sets / held[: len(seeds)]).astype(precision()))
        return Batch(x, blocks, self.labels[taken[: len(seeds)]], self.total, weights=weights.to(self.device))
