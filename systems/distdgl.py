"""DistDGL: Zheng, Ma, Wang, Zhou, Su, Song, Gan, Zhang, Karypis, "DistDGL: Distributed Graph Neural Network
Training for Billion-Scale Graphs", IA3 2020; built here as "Scaling Graph Neural Networks: Innovations in
Distributed and Decentralized Training for Billion-Scale Graphs", sections 3.2, 4.1 and 5.1, describes it.

Implements neighbour-sampled mini-batch training over an owner-compute partition:

    a vertex has an owner, who holds its whole in-neighbourhood; vertices are relabelled by owner
    every epoch shuffles the training vertices; a step takes B of them per worker, its seeds
    for hop h = 1..L: every vertex of the frontier F draws at most k_h of its in-neighbours, at its owner;
        F <- F and what was drawn
    the features of the last F, the inputs, are pulled: own rows from memory, others from their owners
    forward and backward over the blocks; gradients are summed over workers; an optimiser step, in lockstep

Its words: target vertices are seeds, core and HALO vertices inner and halo ones, a trainer a worker, a
sampler the thread that draws ahead, and the KVStore what is pulled from.

Notation: F_L the seeds, F_{l-1} = F_l and what it draws, so that F_0 are the inputs; R_lj the part of F_l
that worker j owns, j another worker (at redraw=vertex only what is not in F_{l+1}); X_j the part of F_0 that
j owns and that is not kept; k_v = min(fan-out, neighbours of v); t training vertices,
t_i those that worker i trains; B the batch; P workers.

Bytes of a worker and step, 4 bytes per id and value:
    sample      4 |R_lj|                                      for every layer l - 1 and owner j
    neighbours  4 |R_lj| + 4 sum of k_v over R_lj  (8 per drawn edge where edges have weights)
    ids         4 |X_j|
    features    4 f_0 |X_j|
    labels      8 per seed that another worker owns (4 + C with C labels per vertex)
    weights     2 (P - 1) 4 |W| over all workers
and once, in epoch 0, 4 (1 + f_0) for every row that `cache` keeps.
Under `service=exchange` also 8 per exchange and peer, `counts`.

Decisions
- defaults are those of DGL's example. 5.1 prints `model=sage model.layers=3 model.hidden=256
  system.fanouts=[15,10,5]`, and Fig. 15 (b) a batch of 32K over four machines, `system.batch=8000` on each.
- an epoch takes every training vertex as a seed once, in max_i ceil(t_i / B) steps (ceil(t / (P B)) with
  `batches=global`); the last is smaller, and
  left out with `drop_last`. A worker that has no seeds left takes part with gradients of 0. The loss is the
  mean over all workers' seeds; with `loss=worker` the mean of the workers' means, as DDP has it, in which a
  short batch weighs as a whole one. The loss that is reported is in either case the mean over the epoch's
  seeds.
- a draw depends on (seed, epoch, step, hop, global vertex id) alone, and dropout on (seed, epoch, step,
  layer, global id). So with `batches=global`, `scale=global`, `loss=global`, `redraw=hop` and `remote=all` P
  workers with batch B train as one with batch P B, to rounding, whatever the partition. `key=worker` draws
  apart: two workers that expand one vertex in the same step and hop draw by themselves.
- unbiased: what a vertex draws is weighed by d_v / k_v, with degrees of the whole graph. For GraphSAGE that
  is the mean over the sample. GAT's softmax is over the sample, unweighed, and not unbiased. `scale=block`
  counts degrees anew inside the block, as DGL's GraphConv does.
- fan-outs are listed from the seeds. Neighbours are drawn without replacement, or with it (`replace`: every
  vertex with neighbours draws exactly its fan-out, and k_v is that; attention counts an edge as often as it
  is drawn), and anew at every hop, also for a vertex that has been expanded before in the same step. With
  `redraw=vertex` a vertex keeps its first draw, as in PyG, and is asked for once; at which hop that is
  depends on the worker's other seeds, so that the number of workers then changes what is drawn.
- "15, 10 and 5" of each layer (5.1) is read as 15 at the seeds; the text does not say from which end.
- `cache` keeps a fixed share of the rows of other workers' vertices, as PaGraph does.
- split: even (equal ranges of the relabelled training vertices, range i to worker i; a seed on another
  worker's part is remote) | owner. 4.1.5 gives a range to the part with which it overlaps most, which is the
  same where parts are balanced.
- degrees and global ids of all vertices, 8 bytes per vertex, are held by every worker and come with the
  partition: they are not counted.
- evaluation is exact and sees the whole graph, as for every system.
- structure is drawn `prefetch` steps ahead in a thread, across epochs; features are pulled and blocks made in
  the training thread. What is drawn ahead is counted in the step that uses it, and the training thread's wait
  for it is exposed communication. The thread goes on while the run is evaluated, outside the clock. Drawing
  ahead changes no bit. Under `service=exchange` all workers pull in lockstep, and nothing is drawn ahead.
- dense gradients are all-reduced, as described for PyTorch.
- the default partition is plain METIS, 5.1.2's "default METIS". 4.1.2 balances training, validation and test
  vertices and edges, `partition=metis/balanced partition.balance=[train,val,test,edges]`, and extends METIS
  (`partition=metis/extended`, which takes the same). `metis/balanced` alone has DGL's constraints.
Departures: `features=once`, the default of every system here, pulls a row the first time it is an input, and
keeps it; DistDGL pulls features in every step, which is `refetch` (unique per step). Remote requests are not
sent ahead of local drawing. No sparse vertex embeddings, which the KVStore updates asynchronously; one
trainer per machine, where there are several (4.1.5); what draws ahead is one thread per worker, not
processes.
"""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np

from harness.base.bounds import number, word
from harness.comm.pulls import Exchanged, Mapped
from harness.core.system import without_effect
from systems.parts.feature_cache import FEATURES, kept_ids
from systems.parts.neighbours import Chosen, hop_key
from systems.parts.sampled import Drawn, SampledBatches
from systems.parts.tasks import Dag, Scheduler, tell


@dataclass
class Making:
    """A step whose structure is drawn ahead."""

    epoch: int
    step: int
    drawn: Drawn | None = None


@dataclass
class Distdgl(SampledBatches):
    """Beside the knobs of `SampledBatches`:

    redraw    a vertex draws its neighbours anew at every "hop", or once: "vertex"
    cache     share of the other workers' vertices whose features are kept, under refetch
    policy    which are kept: those of highest out-"degree", "random" ones, or the inputs of highest
              "frequency" in the first epoch
    service   "shared": memory of one host | "exchange": any transport
    prefetch  steps whose structure is drawn ahead, in a thread; 0: none, in the training thread
    """

    redraw: str = word("hop", "vertex")
    cache: float = number(0.0, 0, 1)
    policy: str = word("degree", "random", "frequency")
    service: str = word("shared", "exchange")
    prefetch: int = number(4, 0, 1000)

    def traits(self):
        common = super().traits()
        if self.remote != "all":
            why = f"at system.remote={self.remote} nothing is pulled"
            said = without_effect(self, ["cache", "policy", "service"], why)
        elif self.features == "once":
            why = "system.features=once keeps every row that is pulled"
            said = without_effect(self, ["cache", "policy"], why)
        else:
            idle = [] if self.cache else ["policy"]
            said = without_effect(self, idle, "no row is cached at system.cache=0")
        if self.remote == "all" and self.service == "exchange":
            why = "under system.service=exchange all workers pull in the training thread"
            said += without_effect(self, ["prefetch"], why)
        return replace(common, ineffective=common.ineffective + said)

    def setup(self, context):
        super().setup(context)
        self.beside = self.pulls.beside() if self.prefetch else None
        self.expander = self.expands(self.beside or self.pulls)
        # [V] steps of the first epoch in which a vertex was an input
        self.asked_for: np.ndarray | None = None
        self.out_degrees = np.empty(0)
        if self.caches and self.policy == "degree":
            away = self.shard.outward
            out = np.diff(away.inner_edges.indptr) + np.diff(away.halo_edges.indptr)
            self.out_degrees = self.comm.gathered(out.astype(np.int32))
        self.ahead: Scheduler[Making] | None = None
        if self.beside is not None:
            self.ahead = Scheduler(
                self.comm,
                lambda _, epoch, step: Making(epoch, step),
                self.draw_ahead,
                self.seeds.steps,
                context.epochs,
                depth=self.prefetch,
            )
            context.closing.callback(self.ahead.close)

    def access(self, own):
        if self.service == "shared":
            return Mapped(self.comm, own, "system.service=exchange")
        return Exchanged(self.comm, own)

    @property
    def caches(self) -> bool:
        """Whether a fixed share of rows is kept."""
        return self.features == "refetch" and self.cache > 0 and self.remote == "all"

    def before_epoch(self, epoch):
        super().before_epoch(epoch)
        if not self.caches or epoch:
            return
        if self.policy == "frequency":
            self.asked_for = np.zeros(len(self.names.ids), np.int32)
        else:
            self.fill(self.out_degrees if self.policy == "degree" else None)
            self.out_degrees = np.empty(0)

    def after_epoch(self, epoch):
        if self.asked_for is not None:
            counted, self.asked_for = self.asked_for, None
            self.fill(counted)
        super().after_epoch(epoch)
        if self.ahead is not None:
            tell(self.recorder, self.ahead.take_tally().seconds, self.ahead.running, self.prefetch)

    def fill(self, score: np.ndarray | None) -> None:
        """Pull and keep the features of the share `cache` of other workers' vertices: those of highest score
        [V], or random ones."""
        with self.recorder.inside("rest", "cache", 0):
            chosen = kept_ids(self.names, self.cache, score, self.seed)
        self.kept.keep(chosen, FEATURES)

    def drawn(self, epoch: int, step: int, inside: Callable[[int], AbstractContextManager]) -> Drawn:
        """A step's structure, hop by hop from the seeds. A layer's hop is drawn inside the context that
        `inside(layer)` gives."""
        seeds, total = self.seeds.of(epoch, step)
        frontier, found = seeds, []
        chosen: Chosen | None = None
        for hop, most in enumerate(self.most, 1):
            layer, key = self.num_layers - hop, hop_key(self.seed, epoch, step, hop)
            with inside(layer):
                # A frontier begins with that of the hop before, whose draws redraw=vertex keeps.
                known = chosen if self.redraw == "vertex" else None
                new = frontier if known is None else frontier[len(known.counts) :]
                drawn = self.expander.choose(new, key, most, layer)
                chosen = drawn if known is None else Chosen.joined([known, drawn])
                made, frontier = self.expander.block(frontier, chosen)
            found.append(made)
        reads = self.beside.take_reads() if self.beside is not None else []
        return Drawn(seeds, total, found, frontier, reads)

    def draw_ahead(self, dag: Dag[Making]) -> None:
        """The one task of a step: to draw its structure, in the thread beside the training."""
        assert self.ahead is not None
        made = dag.work

        def draw() -> None:
            made.drawn = self.drawn(made.epoch, made.step, lambda layer: contextlib.nullcontext())

        self.ahead.task(dag, 0, draw)

    def structure(self, epoch, step):
        if self.ahead is None:
            drawn = self.drawn(epoch, step, lambda layer: self.recorder.inside("rest", "sample", layer))
        else:
            made = self.ahead.take(epoch, step).drawn
            assert made is not None
            drawn = made
        if self.asked_for is not None:
            self.asked_for[drawn.inputs] += 1
        return drawn
