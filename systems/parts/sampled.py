"""What systems share that train on mini-batches of sampled neighbours over an owner-compute edge-cut: their
knobs, the seeds, the pulls, and a batch made of a step's structure. How the structure is drawn, and when, is
the system's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from harness.base.bounds import KEY, MOST, Bounds, number, word
from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.comm.pulls import Own, Pulls, Purpose, Read, book
from harness.core.batches import Batch, BatchSystem, Block, Sampled
from harness.core.evaluate import targets
from harness.core.features import as_precise
from harness.core.system import Traits, without_effect
from systems.parts.feature_cache import FEATURES, KeptRows, Pieces, in_order
from systems.parts.in_neighbours import lists_of
from systems.parts.neighbours import ALL, Expander, Names
from systems.parts.seeds import Seeds

LABELS = Purpose("labels", "labels", -1)


@dataclass
class Drawn:
    """A step's structure: this worker's seeds, by name, and how many all workers have; by hop what was
    chosen; and the names of the inputs.

    reads   what other threads than the training one have read for the step
    pulled  the features that they have pulled: of every input of another worker that is not kept; None: the
            features are still to be pulled
    """

    seeds: np.ndarray
    total: int
    found: Sequence[Sampled]
    inputs: np.ndarray
    reads: Sequence[Read] = ()
    pulled: Pieces | None = None


@dataclass
class SampledBatches(BatchSystem):
    """fanouts   in-neighbours drawn per vertex, by hop from the seeds: one per layer, or one for every layer;
              null: all
    batch     seeds per worker and step; null: all, one step per epoch
    batches   "worker" shuffles each worker's own seeds, "global" those of all workers
    drop_last  a batch with fewer than `batch` seeds is left out
    split     who trains which vertex: "even": equal shares for all workers; "owner": each worker its own
    loss      gradients are of the mean over all workers' seeds ("global"), or of the mean of each "worker"'s
    replace   neighbours are drawn with replacement
    key       what a draw depends on, beside seed, epoch, step and hop: the "vertex", or the "worker" that
              asks too
    features  "once": a row is pulled the first time it is an input, and kept; "refetch": in every step
    remote    "all"; the controls "zero" (rows of other workers' vertices are 0) and "drop" (they are no
              neighbours)
    scale     by which degrees rows are scaled: the "global" ones, or those counted in the "block"
    """

    fanouts: list[int] | None = field(default_factory=lambda: [25, 10], metadata={KEY: Bounds(1, MOST)})
    batch: int | None = number(1000, 1)
    batches: str = word("worker", "global")
    drop_last: bool = False
    split: str = word("even", "owner")
    loss: str = word("global", "worker")
    replace: bool = False
    key: str = word("vertex", "worker")
    features: str = word("once", "refetch")
    remote: str = word("all", "zero", "drop")
    scale: str = word("global", "block")

    smaller: ClassVar = "a smaller system.batch or smaller system.fanouts"
    exact: ClassVar = {"fanouts": None, "batch": None}

    def __post_init__(self):
        if self.fanouts == []:
            raise InputError("fanouts=[] is empty: give one per layer, as fanouts=[25,10], or null for all")
        if self.remote != "all" and self.split != "owner":
            raise InputError(
                f"remote={self.remote} pulls nothing, and split={self.split} gives workers seeds of others;"
                " give split=owner"
            )

    def supports(self, run):
        if self.fanouts is not None and len(self.fanouts) not in (1, run.layers):
            return (
                f"system.fanouts={self.fanouts} has {len(self.fanouts)} fan-outs and the model"
                f" {counted(run.layers, 'layer')}; give one fan-out per layer, the seeds' first, one for"
                f" every layer as system.fanouts=[{self.fanouts[0]}], or null for all neighbours"
            )
        return super().supports(run)

    def traits(self):
        said = []
        if self.fanouts is None:
            why = "system.fanouts=null takes every neighbour, and draws none"
            said += without_effect(self, ["replace", "key"], why)
        if self.batch is None:
            said += without_effect(self, ["drop_last"], "at system.batch=null no batch is short")
        if self.remote != "all":
            said += without_effect(self, ["features"], f"at system.remote={self.remote} nothing is pulled")
        return Traits(overlaps=True, ineffective=said)

    def steps(self):
        return self.seeds.steps

    def seeds_per_epoch(self, training):
        return self.seeds.total

    def seeds_in(self, epoch, step):
        return len(self.seeds.of(epoch, step)[0])

    def setup(self, context):
        super().setup(context)
        shard, comm = self.shard, self.comm
        fanouts = self.fanouts or [ALL]
        self.most = fanouts * self.num_layers if len(fanouts) == 1 else fanouts  # by hop
        degrees = shard.inner_edges.row_sums() if self.remote == "drop" else np.asarray(shard.degrees)
        self.names = Names.gathered(comm, shard, degrees.astype(shard.degrees.dtype, copy=False))
        own: dict[str, Any] = {
            **lists_of(shard, local=self.remote == "drop"),
            "features": as_precise(shard.features),
            "labels": np.ascontiguousarray(shard.labels),
        }
        self.own = Own(comm, own)
        self.pulls: Pulls = self.own
        if comm.size > 1 and self.remote == "all":
            self.pulls = self.access(own)
        self.kept = KeptRows(self.names, self.pulls)
        training = comm.gathered(
            (self.names.bounds[comm.rank] + np.flatnonzero(shard.train)).astype(np.int32)
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

    def access(self, own: dict[str, np.ndarray]) -> Pulls:
        """How this worker pulls from the others, whose arrays are as its own. Collective."""
        raise NotImplementedError

    def expands(self, pulls: Pulls) -> Expander:
        """An expander, which draws neighbours through `pulls` and makes blocks of them."""
        return Expander(self.names, pulls, self.remote, self.replace, self.key == "worker")

    def structure(self, epoch: int, step: int) -> Drawn:
        """The structure of a step, asked for in the training thread; waits where another thread makes it."""
        raise NotImplementedError

    def make_batch(self, epoch, step):
        """A step's blocks, and the inputs' features. All workers run this in every step."""
        drawn = self.structure(epoch, step)
        book(self.comm, drawn.reads)
        seeds, found = drawn.seeds, drawn.found
        with self.recorder.inside("rest", "gather", 0):
            rows = self.kept.rows(drawn.inputs, FEATURES, self.features == "once", drawn.pulled)
            self.recorder.work(*self.kept.work(rows))
            foreign = self.pulls if self.split == "even" else self.own
            labels = in_order(self.names, foreign, "labels", seeds, LABELS)
            self.totals.update(self.kept.counts, edges=sum(each.num_edges for each in found))
        if not len(seeds):
            return None
        with self.recorder.inside("rest", "blocks"):
            blocks = [
                Block(each, self.adjacency, layer, self.scale == "block")
                for layer, each in enumerate(reversed(found))
            ]
            x = torch.from_numpy(rows).to(self.device)
        divisor = self.comm.size * len(seeds) if self.loss == "worker" else None
        return Batch(x, blocks, targets(labels, self.device), drawn.total, divisor)

    def state_dict(self):
        return {"kept": torch.from_numpy(self.kept.names_kept())}

    def load_state_dict(self, state):
        # Features do not change: what was kept is pulled again, outside the clock. Its first pull counted.
        self.kept.keep(state["kept"].cpu().numpy(), FEATURES)
