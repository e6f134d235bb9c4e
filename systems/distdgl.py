"""DistDGL: Zheng, Ma, Wang, Zhou, Su, Song, Gan, Zhang, Karypis, "DistDGL: Distributed Graph Neural Network
Training for Billion-Scale Graphs", IA3 2020; built here as "Scaling Graph Neural Networks: Innovations in
Distributed and Decentralized Training for Billion-Scale Graphs", sections 4.1 and 5.1, describes it.

Implements neighbour-sampled mini-batch training over an owner-compute partition:

    a vertex has an owner, who holds its whole in-neighbourhood; vertices are relabelled by owner
    every epoch shuffles the training vertices; a step takes B of them per worker, its seeds
    for hop h = 1..L: every vertex of the frontier F draws at most k_h of its in-neighbours, at its owner;
        F <- F and what was drawn
    the features of the last F, the inputs, are pulled: own rows from memory, others from their owners
    forward and backward over the blocks; gradients are summed over workers; an optimiser step, in lockstep

Notation: F_L the seeds, F_{l-1} = F_l and what it draws, so that F_0 are the inputs; R_lj the part of F_l
that worker j owns, j another worker (at redraw=vertex only what is not in F_{l+1}); X_j the part of F_0 that
j owns and that is not kept; k_v = min(fan-out, neighbours of v); t training vertices.

Bytes of a worker and step, 4 bytes per id and value:
    sample      4 |R_lj|                                      for every layer l - 1 and owner j
    neighbours  4 |R_lj| + 4 sum of k_v over R_lj  (8 per drawn edge where edges have weights)
    ids         4 |X_j|
    features    4 f_0 |X_j|
    labels      8 per seed that another worker owns (4 + C with C labels per vertex)
    weights     2 (P - 1) 4 |W| over all workers
Under `service=exchange` also 8 per exchange and peer, `counts`.

Decisions
- an epoch takes every training vertex as a seed once, in max_i ceil(t_i / B) steps; the last is smaller, and
  left out with `drop_last`. A worker that has no seeds left takes part with gradients of 0. The loss is the
  mean over all workers' seeds; with `loss=worker` the mean of the workers' means, as DDP has it, in which a
  short batch weighs as a whole one. The loss that is reported is in either case the mean over the epoch's
  seeds.
- a draw depends on (seed, epoch, step, hop, global vertex id) alone, and dropout on (seed, epoch, step,
  layer, global id): so with `batches=global` neither the partition nor the number of workers changes
  anything but rounding.
- unbiased: what a vertex draws is weighed by d_v / k_v, with degrees of the whole graph. For GraphSAGE that
  is the mean over the sample. `scale=block` counts degrees anew inside the block, as DGL's GraphConv does.
- fan-outs are listed from the seeds; drawn without replacement, or with it (`replace`: every vertex with
  neighbours draws exactly its fan-out, and k_v is that; attention counts an edge as often as it is drawn);
  drawn anew at every hop, also for a vertex that has been expanded before in the same step. With
  `redraw=vertex` a vertex keeps its first draw, as in PyG, and is asked for once; at which hop that is
  depends on the worker's other seeds, so that the number of workers then changes what is drawn.
- "15, 10 and 5" is read as 15 at the seeds, which is GraphSAGE's order.
- features: once (a row is pulled the first time it is an input, and kept) | refetch (in every step; unique
  per step). `cache` keeps a fixed share of the rows of other workers' vertices, as PaGraph does.
- split: even (equal ranges of the relabelled training vertices, as printed; a seed on another worker's part
  is remote) | owner.
- degrees and global ids of all vertices, 8 bytes per vertex, are held by every worker and come with the
  partition: they are not counted.
- evaluation is exact and sees the whole graph, as for every system.
- structure is drawn `prefetch` steps ahead in a thread, across epochs; features are pulled and blocks made in
  the training thread. What is drawn ahead is counted in the step that uses it, and the training thread's wait
  for it is exposed communication. The thread goes on while the run is evaluated, outside the clock. It
  changes no bit. Under `service=exchange` all workers pull in lockstep, and nothing is drawn ahead.
Departures: the all-reduce stands for the parameter servers of sparse embeddings, which these tasks have not;
what draws ahead is one thread per worker, not processes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch

from harness.check import InputError, at_least, choice, within
from harness.comm.pulls import Exchanged, Mapped, Own, Pulls, Purpose, Read, book
from harness.core.batches import Batch, BatchSystem, Block, Sampled
from harness.core.system import check_features, without_effect
from systems.parts.ahead import Ahead
from systems.parts.kept import KeptRows, in_order, kept_ids
from systems.parts.neighbours import ALL, Chosen, Expander, Names, everybodys, hop_key, lists_of
from systems.parts.seeds import Seeds

POLICIES = ("degree", "random", "frequency")
FEATURES, LABELS = Purpose("ids", "features", 0), Purpose("labels", "labels", -1)


@dataclass
class Drawn:
    """A step's structure: this worker's seeds, by name, and how many all workers have; by hop what was
    chosen; the names of the inputs; and what was read for it by another thread than the training one."""

    seeds: np.ndarray
    total: int
    found: list[Sampled]
    inputs: np.ndarray
    reads: list[Read]


@dataclass
class Distdgl(BatchSystem):
    """fanouts   in-neighbours drawn per vertex, by hop from the seeds: one per layer, or one for every layer;
              null: all
    batch     seeds per worker and step; null: all, one step per epoch
    batches   "worker" shuffles each worker's own seeds, "global" those of all workers
    drop_last  a batch with fewer than `batch` seeds is left out
    split     who trains which vertex: "even" or "owner"
    loss      gradients are of the mean over all workers' seeds ("global"), or of the mean of each "worker"'s
    redraw    a vertex draws its neighbours anew at every "hop", or once: "vertex"
    replace   neighbours are drawn with replacement
    features  "once": a row is pulled the first time it is an input, and kept; "refetch": in every step
    cache     share of the other workers' vertices whose features are kept, under refetch
    policy    which ones: those of highest out-"degree", "random" ones, or the inputs of highest "frequency"
              in the first epoch
    remote    "all"; the controls "zero" (rows of other workers' vertices are 0) and "drop" (they are no
              neighbours)
    scale     "global" degrees or those of the "block"
    service   "shared": memory of one host | "exchange": any transport
    prefetch  steps whose structure is drawn ahead, in a thread; 0: none, in the training thread
    """

    fanouts: list[int] | None = field(default_factory=lambda: [25, 10])
    batch: int | None = 1000
    batches: str = "worker"
    drop_last: bool = False
    split: str = "even"
    loss: str = "global"
    redraw: str = "hop"
    replace: bool = False
    features: str = "once"
    cache: float = 0.0
    policy: str = "degree"
    remote: str = "all"
    scale: str = "global"
    service: str = "shared"
    prefetch: int = 4

    smaller: ClassVar = "a smaller system.batch or smaller system.fanouts"
    since: ClassVar = {"prefetch": 0}
    exact: ClassVar = {"fanouts": None, "batch": None}

    def __post_init__(self):
        for place, fanout in enumerate(self.fanouts or []):
            at_least(f"fanouts[{place}]", fanout, 1)
        if self.fanouts == []:
            raise InputError("fanouts=[] is empty: give one per layer, as fanouts=[25,10], or null for all")
        if self.batch is not None:
            at_least("batch", self.batch, 1)
        choice("batches", self.batches, ("worker", "global"))
        choice("split", self.split, ("even", "owner"))
        choice("loss", self.loss, ("global", "worker"))
        choice("redraw", self.redraw, ("hop", "vertex"))
        check_features(self.features)
        within("cache", self.cache, 0.0, 1.0)
        choice("policy", self.policy, POLICIES)
        choice("remote", self.remote, ("all", "zero", "drop"))
        choice("scale", self.scale, ("global", "block"))
        choice("service", self.service, ("shared", "exchange"))
        at_least("prefetch", self.prefetch, 0)
        if self.remote != "all" and self.split != "owner":
            raise InputError(
                f"remote={self.remote} pulls nothing, and split={self.split} gives workers seeds of others;"
                " give split=owner"
            )

    def supports(self, run):
        if self.fanouts is not None and len(self.fanouts) not in (1, run.layers):
            return (
                f"system.fanouts={self.fanouts} has {len(self.fanouts)} fan-outs and the model"
                f" {run.layers} layers; give one fan-out per layer, the seeds' first, one for every layer as"
                f" system.fanouts=[{self.fanouts[0]}], or null for all neighbours"
            )
        return super().supports(run)

    def ineffective(self):
        alone = (
            without_effect(self, ["policy"], "no row is cached at system.cache=0") if not self.cache else []
        )
        if self.features == "once":
            alone += without_effect(self, ["cache"], "system.features=once keeps every row that is pulled")
        if self.fanouts is None:
            alone += without_effect(
                self, ["redraw", "replace"], "system.fanouts=null takes every neighbour, and draws none"
            )
        if self.batch is None:
            alone += without_effect(self, ["drop_last"], "at system.batch=null no batch is short")
        if self.service == "exchange":
            alone += without_effect(
                self, ["prefetch"], "under system.service=exchange all workers pull in the training thread"
            )
        return alone

    def steps(self):
        return self.seeds.steps

    def seeds_per_epoch(self, training):
        return self.seeds.total

    def seeds_in(self, epoch, step):
        return len(self.seeds.of(epoch, step)[0])

    def setup(self, context):
        super().setup(context)
        shard, comm = self.shard, self.comm
        self.pulls: Pulls
        fanouts = self.fanouts or [ALL]
        self.most = fanouts * self.num_layers if len(fanouts) == 1 else fanouts  # by hop
        degrees = shard.inner_edges.row_sums() if self.remote == "drop" else np.asarray(shard.degrees)
        self.names = Names.gathered(comm, shard, degrees.astype(shard.degrees.dtype, copy=False))
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        own = {
            **lists_of(shard, local=self.remote == "drop"),
            "features": np.ascontiguousarray(shard.features, dtype),
            "labels": np.ascontiguousarray(shard.labels),
        }
        self.own = self.pulls = Own(comm, own)
        if comm.size > 1 and self.remote == "all":
            shared = self.service == "shared"
            self.pulls = Mapped(comm, own, "system.service=exchange") if shared else Exchanged(comm, own)
        beside = self.pulls.beside() if self.prefetch else None
        self.beside = beside
        self.expander = Expander(self.names, beside or self.pulls, self.remote, self.replace)
        self.kept = KeptRows(self.names, self.pulls)
        training = everybodys(
            comm, (self.names.bounds[comm.rank] + np.flatnonzero(shard.train)).astype(np.int32)
        )
        counts = np.bincount(self.names.owners(training), minlength=comm.size)
        self.seeds = Seeds(
            training,
            self.names.ids[training],
            counts,
            comm.rank,
            self.seed,
            self.split,
            self.batches,
            self.batch,
            self.drop_last,
        )
        self.asked_for: np.ndarray | None = (
            None  # [V] steps of the first epoch in which a vertex was an input
        )
        self.out_degrees = np.empty(0)
        if self.caches and self.policy == "degree":
            away = shard.outward
            out = np.diff(away.inner_edges.indptr) + np.diff(away.halo_edges.indptr)
            self.out_degrees = everybodys(comm, out.astype(np.int32))
        self.totals: Counter = Counter()
        self.ahead: Ahead[Drawn] | None = None
        if beside is not None:
            make = lambda epoch, step: self.drawn(epoch, step, lambda layer: contextlib.nullcontext())  # noqa: E731
            self.ahead = Ahead(comm, make, self.seeds.steps, context.epochs, self.prefetch)

    @property
    def caches(self) -> bool:
        """Whether a fixed share of rows is kept."""
        return self.features == "refetch" and self.cache > 0 and self.remote == "all"

    def before_epoch(self, epoch):
        self.totals = Counter(steps=self.steps())
        if not self.caches or epoch:
            return
        if self.policy == "frequency":
            self.asked_for = np.zeros(len(self.names.ids), np.int32)
        else:
            self.fill(self.out_degrees if self.policy == "degree" else None)

    def after_epoch(self, epoch):
        if self.asked_for is not None:
            counted, self.asked_for = self.asked_for, None
            self.fill(counted)
        for name, value in self.totals.items():
            self.recorder.metric(name, value)
        if self.ahead is not None:
            self.recorder.metric("sampler_s", self.ahead.take_seconds())

    def fill(self, score: np.ndarray | None) -> None:
        """Pull and keep the features of the share `cache` of other workers' vertices: those of highest score
        [V], or random ones."""
        with self.recorder.inside("rest", "cache", 0):
            chosen = kept_ids(self.names, self.cache, score, self.seed)
        self.kept.keep(chosen, FEATURES)

    def drawn(self, epoch: int, step: int, inside: Callable[[int], AbstractContextManager]) -> Drawn:
        """A step's structure, from the seeds down; each layer's inside what `inside` gives for it."""
        seeds, total = self.seeds.of(epoch, step)
        frontier, found = seeds, []
        chosen: Chosen | None = None
        for hop, most in enumerate(self.most, 1):
            layer, key = self.num_layers - hop, hop_key(self.seed, epoch, step, hop)
            with inside(layer):
                # The sources of a hop begin with its destinations, whose draws are there already.
                known = chosen if self.redraw == "vertex" else None
                new = frontier if known is None else frontier[len(known.counts) :]
                drawn = self.expander.choose(new, key, most, layer)
                chosen = drawn if known is None else known.and_of(drawn)
                made, frontier = self.expander.block(frontier, chosen)
            found.append(made)
        reads = self.beside.take_reads() if self.beside is not None else []
        return Drawn(seeds, total, found, frontier, reads)

    def make_batch(self, epoch, step):
        """A step's blocks, and the inputs' features. All workers come by here in every step: under
        `service=exchange` each answers what the others ask."""
        if self.ahead is None:
            drawn = self.drawn(epoch, step, lambda layer: self.recorder.inside("rest", "sample", layer))
        else:
            drawn = self.ahead.take(epoch, step)
            book(self.comm, drawn.reads)
        seeds, found, inputs = drawn.seeds, drawn.found, drawn.inputs
        with self.recorder.inside("rest", "gather", 0):
            if self.asked_for is not None:
                self.asked_for[inputs] += 1
            rows = self.kept.rows(inputs, FEATURES, keep=self.features == "once")
            foreign = self.pulls if self.split == "even" else self.own
            labels = torch.from_numpy(in_order(self.names, foreign, "labels", seeds, LABELS))
            self.totals.update(self.kept.counts, edges=sum(each.num_edges for each in found))
        if not len(seeds):
            return None
        with self.recorder.inside("rest", "blocks"):
            blocks = [
                Block(each, self.adjacency, layer, self.scale == "block")
                for layer, each in enumerate(reversed(found))
            ]
            x = torch.from_numpy(rows).to(self.device)
            labels = labels.to(self.device, x.dtype if labels.ndim == 2 else torch.int64)
        divisor = self.comm.size * len(seeds) if self.loss == "worker" else None
        return Batch(x, blocks, labels, drawn.total, divisor)

    def close(self):
        if self.ahead is not None:
            self.ahead.close()

    def state_dict(self):
        return {"kept": torch.from_numpy(self.kept.names_kept())}

    def load_state_dict(self, state):
        # Features do not change: what was kept is pulled again, outside the clock. It was counted then.
        self.kept.keep(state["kept"].cpu().numpy(), FEATURES)
