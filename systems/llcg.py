"""LLCG: Ramezani, Cong, Mahdavi, Kandemir, Sivasubramaniam, "Learn Locally, Correct Globally: A Distributed
Algorithm for Training Graph Neural Networks", ICLR 2022; built here as DIGEST's baseline, from notes
of it.

Implements periodic averaging with global correction. A round, which is an epoch here:

    K times, at every worker, without communication:
        W_i <- Adam_i(W_i, gradient of its own mean loss on its own subgraph)
    once, over all workers:
        W <- sum_i (t_i / t) W_i
    S times, at the server:
        W <- Adam_s(W, gradient on a mini-batch of training vertices, all neighbours)

Notation: t_i training vertices of worker i, t of all; the subgraph of a worker has no cut edges and counts
its degrees itself.

Decisions
- K 4, S 1 and batches of 256 are ours: DIGEST prints none of them.
- averages are weighted by training counts; Adam's moments stay where they are: local ones local, the server's
  its own. Another `optimiser` takes Adam's place in both.
- batch norm is refused: it would let local steps communicate.
- a mini-batch is drawn without replacement from all training vertices, by (seed, epoch, step).
- layer 0 of the correction: features once (remote features are fetched in the first correction, and counted
  then) | refetch (in every correction).
Departures: there is no separate server that holds the whole graph: the workers compute a correction step
together, exactly, each its own rows, with the halo exchange and gradient all-reduce of vanilla; its traffic
is counted. Local steps take the worker's whole part, where LLCG samples neighbours (DIGEST, A.2) and, in its
authors' public code, mini-batches; K is the same in every round, where it grows in that code. An epoch's loss
is that of the last local step.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, word
from harness.core.counting import stepped
from harness.core.mixins import OwnLoss
from harness.core.system import System, Traits, without_effect
from systems.local import Local


@dataclass
class Llcg(OwnLoss, Local):
    """local_steps   K, steps of a round that each worker takes by itself; 1 or more
    server_steps  S, correction steps on the whole graph that end a round; 0 or more
    batch         training vertices of a correction step (all, where there are fewer)
    server_lr     learning rate of the correction; null: the run's
    features      "once": remote features are fetched in the first correction step; "refetch": in every one,
                  and local steps make A X of the worker's own part anew
    """

    local_steps: int = number(4, 1, ROUNDS)
    server_steps: int = number(1, 0, ROUNDS)
    batch: int = number(256, 1)
    server_lr: float | None = number(None, 0, 10**6)
    features: str = word("once", "refetch")

    refuses: ClassVar = replace(
        Local.refuses, needed_rows="corrects its weights by steps over the whole graph"
    )

    def traits(self):
        idle = [] if self.server_steps else ["batch", "server_lr"]
        return Traits(
            steps=self.local_steps + self.server_steps,
            sparse_features=True,
            ineffective=without_effect(self, idle, "at system.server_steps=0 nothing is corrected"),
        )

    def setup(self, context):
        super().setup(context)
        self.context, self.parameters = context, list(context.model.parameters())
        mine = torch.tensor([len(context.train_rows)], device=self.device)
        self.counts = [int(count) for count in self.comm.all_gather(mine, -1, "counts")]
        self.server = context.new_optimiser(self.parameters, self.server_lr)

    # -- learn locally: each worker on its own subgraph, as in `local` --

    def loss_divisor(self, local, total):
        return max(local, 1)

    def before_epoch(self, epoch):
        """All local steps but the last, which is the trainer's own."""
        for _ in range(self.local_steps - 1):
            rows = self.context.train_rows
            self.context.gradient(rows, self.loss_divisor(len(rows), sum(self.counts)))
            self.context.optimiser.step()
            self.recorder.work(*stepped(self.context.optimiser))

    def combine(self, parameters):
        """Local gradients stay local."""

    # -- correct globally --

    def after_epoch(self, epoch):
        self.average()
        for step in range(self.server_steps):
            rows = self.mini_batch(epoch, step)
            self.context.exact_gradient(rows, min(self.batch, sum(self.counts)))
            System.combine(self, self.parameters)
            self.server.step()
            self.recorder.work(*stepped(self.server))

    def average(self) -> None:
        """W <- sum_i (t_i / t) W_i."""
        self.comm.sum_weights(self.parameters, self.counts[self.comm.rank] / sum(self.counts))

    def mini_batch(self, epoch: int, step: int) -> torch.Tensor:
        """This worker's rows [b] of a correction step's mini-batch. All workers draw the same places in the
        line of all training vertices, worker 0's first, and each keeps those of its own vertices.
        """
        key = (self.seed * 1_000_003 + epoch) * 65_537 + step
        drawn = torch.randperm(sum(self.counts), generator=torch.Generator().manual_seed(key % 2**64))[
            : self.batch
        ]
        first = sum(self.counts[: self.comm.rank])
        mine = drawn[(drawn >= first) & (drawn < first + self.counts[self.comm.rank])] - first
        return self.context.train_rows[mine.sort().values.to(self.device, non_blocking=True)]

    def state_dict(self):
        return {"server": self.server.state_dict()}

    def load_state_dict(self, state):
        self.server.load_state_dict(state["server"])
