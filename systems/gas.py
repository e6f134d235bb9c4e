"""GAS: Fey, Lenssen, Weichert, Leskovec, "GNNAutoScale: Scalable and Expressive Graph Neural Networks via
Historical Embeddings", ICML 2021, with which DIGEST (2022) compares. Its control is Cluster-GCN: Chiang, Liu,
Si, Li, Bengio, Hsieh, "Cluster-GCN: An Efficient Algorithm for Training Deep and Large Graph Convolutional
Networks", KDD 2019.

Implements mini-batches of METIS clusters whose outside neighbours come from histories of the hidden rows:

    a step takes the vertices B of some clusters of a worker's own part; S are their in-neighbours outside B
    H^(l+1)_B = sigma(A_BB H^(l)_B W + A_BS Hbar^(l)_S W),   Hbar^(0) = X
    Hbar^(l)_B <- H^(l)_B                                    for the hidden layers l = 1..L-1
    the loss is the mean over the training vertices of all workers' B; the rows of S are constants

Notation: A has the whole graph's degrees; H^(l) is what layer l takes in, before its dropout; f_l its width;
S_j the part of S that worker j owns, j another worker; X_j the part of S_j whose features are not kept; P
workers.

State across workers: the history of a vertex is kept by its owner alone, in main memory, 4 f_l bytes per own
vertex and hidden layer. At the start of a step every worker asks the owners of S for their rows, one hidden
layer after the other, and is answered with what they hold then, which is what was pushed in earlier steps. A
push stays with its owner and sends nothing. Where no batch is skipped, no row is two epochs old.

Bytes of a worker and step, 4 bytes per id and value:
    ids         4 |S_j| in every hidden layer, 4 |X_j| in layer 0
    history     4 f_l |S_j|                                  in hidden layer l
    features    4 f_0 |X_j|
    counts      8 per peer and layer: how many rows will be asked for
    weights     2 (P - 1) 4 |W| over all workers

Decisions
- distributed form: GAS trains in one process. Here every worker has clusters of its own part, METIS parts of
  the edges inside it, and a step takes `batch` clusters of each worker. With one worker it is the paper's.
- every epoch shuffles the clusters, takes each once, and cuts them into batches. A batch without training
  vertices is skipped, as in the paper's code, so that an epoch has as many steps as the most batches that any
  worker has left. A worker that has none left takes part with gradients of 0. The loss that is reported is
  the mean over the epoch's training vertices, each at the weights before its step.
- clusters, batch: 40 and 10, the example in the README of the paper's code, which takes 2 to 200
  clusters of the whole graph by data set; here they are of each worker's part.
- start: exact (the hidden rows of one exact forward pass, outside the clock; what is sent of them is recorded
  as `start_bytes`), as the paper's code fills its histories | zeros.
- refresh: never. In the paper's code every evaluation writes all histories anew, exactly, so that no row is
  older than an epoch. `epoch` does so after every epoch, outside the clock, and records what is sent as
  `refresh_bytes`. An evaluation changes nothing here.
- features of S are exact: fetched the first time a step needs them and kept (`features=once`), or in every
  step (`refetch`).
- outside: history | zero, the control, in which rows outside B are 0 in every layer | drop, Cluster-GCN, in
  which edges from outside B are left out and degrees are counted inside B. The latter two keep no history and
  ask nothing of another worker.
- all rows of B are computed in the last layer too, as in the paper's code.
- evaluation is exact and sees the whole graph, as for every system.
Departures: none of the paper's regularisation (a Lipschitz penalty, dropout of edges, gradient clipping),
which no other system here has; the training thread pulls histories before a step and pushes them in it, where
the paper's code copies them beside the computation.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from harness.base.bounds import number, word
from harness.comm.pulls import Exchanged, Own, Pulls, Purpose
from harness.comm.work import moved
from harness.core.batches import Batch, BatchSystem, Block, BlockPass, Sampled
from harness.core.evaluate import targets
from harness.core.features import as_precise, precision
from harness.core.mixins import BesideClock
from harness.core.system import Ready, Traits, without_effect
from systems.parts.feature_cache import FEATURES, KeptRows, in_order
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import ALL, Expander, Names
from systems.parts.seeds import ClusterBatches, metis_clusters


@dataclass
class Gas(BesideClock, BatchSystem):
    """The knobs.

    clusters  METIS clusters that each worker's part is cut into
    batch     clusters per worker and step; null: all, one step per epoch
    outside   rows outside the batch: from the "history"; "zero"; or "drop" the edges to them (Cluster-GCN)
    start     what histories hold before epoch 0: the rows of an "exact" forward pass, or "zeros"
    refresh   when all histories are written anew, exactly, outside the clock: "never", or after every "epoch"
    features  "once": a remote row is pulled when it is first needed, and kept; "refetch": in every step
    """

    clusters: int = number(40, 1)
    batch: int | None = number(10, 1)
    outside: str = word("history", "zero", "drop")
    start: str = word("exact", "zeros")
    refresh: str = word("never", "epoch")
    features: str = word("once", "refetch")

    refuses: ClassVar = replace(
        BatchSystem.refuses,
        wire="pulls rows by vertex, of which wire says nothing",
        needed_rows="keeps a history of every vertex",
    )
    smaller: ClassVar[str] = "a smaller system.batch or more system.clusters"

    def traits(self):
        said = []
        if self.outside != "history":
            why = f"at system.outside={self.outside} nothing comes from outside a batch"
            said += without_effect(self, ["start", "refresh", "features"], why)
        if self.batch is None:
            said += without_effect(self, ["clusters"], "at system.batch=null a batch is the whole part")
        return Traits(overlaps=True, ineffective=said)

    def steps(self):
        return self.batches.steps

    def seeds_in(self, epoch, step):
        return self.batches.rows(step)[1]

    def setup(self, context):
        super().setup(context)
        shard, comm = self.shard, self.comm
        self.exact_inputs, self.sends = context.exact_inputs, sum(context.plan.send_counts)
        self.names = Names.gathered(comm, shard, np.asarray(shard.degrees))
        self.first = int(self.names.bounds[comm.rank])
        # A worker's shard has all edges into its own vertices: structure is asked of nobody.
        lists = Own(comm, lists_of(shard, local=self.outside == "drop"))
        self.expander = Expander(self.names, lists)
        hidden = range(1, self.num_layers) if self.outside == "history" else ()
        # By hidden layer: the history [n, f_l] of the own vertices.
        self.history = {
            layer: np.zeros((shard.num_inner, self.widths[layer]), precision()) for layer in hidden
        }
        own = {"features": as_precise(shard.features)}
        own |= {_name(layer): rows for layer, rows in self.history.items()}
        others = comm.size > 1 and self.outside == "history"
        self.pulls: Pulls = Exchanged(comm, own) if others else Own(comm, own)
        self.kept = KeptRows(self.names, self.pulls)
        self.labels = targets(shard.labels, self.device)
        of = metis_clusters(shard, self.clusters, self.seed)
        seeds = np.bincount(of[np.asarray(shard.train)], minlength=of.max() + 1).astype(np.int32)
        counts = comm.gathered(np.array([len(seeds)], np.int32))
        by_worker = np.split(comm.gathered(seeds), np.cumsum(counts)[:-1])
        self.batches = ClusterBatches(of, shard.train, by_worker, comm.rank, self.seed, self.batch)

    # -- histories --

    def before_training(self):
        if self.start == "exact":
            self.fill("start_bytes")

    def observe(self, epoch):
        if self.refresh == "epoch":
            self.fill("refresh_bytes")

    def fill(self, metric: str) -> None:
        """Write every history: the hidden rows of an exact forward pass with the current weights. Collective,
        outside the clock; `metric`: what this worker sends of these rows."""
        if not self.history:
            return
        for layer, h in self.exact_inputs().items():
            if layer in self.history:
                np.copyto(self.history[layer], h.cpu().numpy())
        values = sum(rows.shape[1] * rows.itemsize for rows in self.history.values())
        self.recorder.metric(metric, self.sends * values)

    # -- a step --

    def before_epoch(self, epoch):
        self.batches.begin(epoch)

    def make_batch(self, epoch, step):
        """The subgraph of a step's clusters and what it takes from outside. All workers run this in every
        step, before any of them pushes in it, so that a pull is answered with the histories that the step
        before left."""
        rows, seeds = self.batches.rows(step)
        inside = self.recorder.inside
        with inside("rest", "subgraph"):
            names = rows + np.int32(self.first)
            found, sources = self.expander.block(names, self.expander.choose(names, 0, ALL, 0))
            if self.outside != "history":
                found, sources = alone(found, self.outside), sources[: len(rows)]
        with inside("rest", "gather", 0):
            x = self.kept.rows(sources, FEATURES, self.features == "once")
            self.recorder.work(*self.kept.work(x))
            self.totals.update(self.kept.counts, edges=found.num_edges)
        pulled = {}
        for layer in self.history:
            with inside("rest", "gather", layer):
                purpose = Purpose("ids", "history", layer)
                outside = in_order(self.names, self.pulls, _name(layer), sources[len(rows) :], purpose)
                pulled[layer] = torch.from_numpy(outside).to(self.device)
                self.recorder.work(*[moved(outside)] * 2)  # owners' answers joined, then put in order
        if not seeds:
            return None
        self.rows, self.pulled = rows, pulled
        with inside("rest", "blocks"):
            first = Block(found, self.adjacency, 0)
            blocks = [first, *[first.of_layer(1)] * (self.num_layers - 1)]
        labels = self.labels[torch.from_numpy(rows[:seeds]).long().to(self.device)]
        return Batch(torch.from_numpy(x).to(self.device), blocks, labels, self.batches.totals[step])

    def strategy(self, batch):
        if not self.history:
            return super().strategy(batch)
        return HistoryPass(batch, self)

    def push(self, layer: int, h: torch.Tensor) -> None:
        """Write the batch's fresh rows h [b, f_l] into the own history of a hidden layer."""
        with self.recorder.inside("rest", "push", layer):
            self.history[layer][self.rows] = h.cpu().numpy()
            self.recorder.work(moved(h, of=len(self.history[layer])))

    # -- the rest --

    def state_dict(self):
        return {
            "kept": torch.from_numpy(self.kept.names_kept()),
            "history": {layer: torch.from_numpy(rows.copy()) for layer, rows in self.history.items()},
        }

    def load_state_dict(self, state):
        # Features do not change: what was kept is pulled again, outside the clock. Its first pull counted.
        self.kept.keep(state["kept"].cpu().numpy(), FEATURES)
        for layer, rows in state["history"].items():
            np.copyto(self.history[layer], rows.cpu().numpy())


class HistoryPass(BlockPass):
    """The strategy of one step: a hidden layer takes the batch's own rows h [n, f_l] fresh, and pushes them;
    for rows outside the batch it takes `pulled` {layer: [m, f_l]}."""

    def __init__(self, batch: Batch, system: Gas):
        super().__init__(batch, system.comm, system.name)
        self.pulled, self.push = system.pulled, system.push

    def halo(self, layer: int, h: torch.Tensor) -> Ready:
        if layer == 0:
            return super().halo(layer, h)
        self.push(layer, h.detach())
        return Ready(self.pulled[layer])


def alone(found: Sampled, outside: str) -> Sampled:
    """A subgraph without rows from outside: they are 0 ("zero"), or edges from them are left out and degrees
    counted anew ("drop")."""
    if outside == "zero":
        return replace(found, leaves=len(found.halo_ids))
    return replace(found.alone(), degrees=found.inner.row_sums())


def _name(layer: int) -> str:
    """The name of a hidden layer's history among the arrays to be pulled from."""
    return f"history {layer}"
