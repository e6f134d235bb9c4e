"""BNS-GCN: Wan, Li, Li, Kim, Lin, "BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks
with Partition-Parallelism and Random Boundary Node Sampling", MLSys 2022; built here as a baseline, from
notes of it.

Implements random boundary node sampling: in each epoch, for every (receiver, owner) pair, k of its m boundary
rows are drawn uniformly without replacement; they are exchanged as in vanilla, in both directions, and stand
for all m:

    Z_i = A_ii H_i + sum_j sum_{u in sample_ij} (m_ij / k_ij) A_iu H_u,        k_ij = max(1, round(rate m_ij))

which is unbiased for each layer given its input.

Notation: m_ij boundary rows that worker i needs of worker j, k_ij of them drawn.

Decisions
- values are divided by the realised rate k / m; in-degrees stay those of the whole graph.
- one sample for all layers of an epoch. Both ends draw it from the same counter (seed, epoch, receiver,
  owner), so no row id travels.
- layer 0: features once (all rows fetched exactly, once, and never sampled) | refetch (sampled like every
  layer).
- the local product is over the drawn rows only, forward and backward: A_ih without the other columns is made
  in every epoch, in the training thread and inside the train clock.
Departures: the paper's text was not at hand. `features=once`, the default, does not sample layer 0.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import ClassVar

import torch

from harness.base.bounds import number, word
from harness.comm.flight import HaloPlan
from harness.comm.work import sample
from harness.core.adjacency import Propagation
from harness.core.system import Refuses, System
from harness.data.partition.shard import Shard
from systems.parts.sampling import HaloSampler
from systems.parts.seeds import permutation


@dataclass
class Bns(System[Shard, Propagation]):  # it replaces the propagation matrix by the drawn part of it
    """rate      share of boundary rows drawn in an epoch, in (0, 1]; 1 is exact
    features  "once": layer 0's halo rows are all fetched in the first epoch; "refetch": those that are drawn
              are fetched in every epoch
    """

    rate: float = number(0.1, 0, 1, above=True)
    features: str = word("once", "refetch")

    exact: ClassVar = {"rate": 1.0}
    refuses: ClassVar = Refuses(needed_rows="draws one sample of all boundary rows for all layers")

    def supports(self, run):
        if not run.matrix and self.rate < 1:
            return (
                f"model={run.model} has no propagation matrix, over whose entries drawn rows are scaled to"
                " stand for those that were not; give model=gcn or model=sage, or system.rate=1"
            )
        return super().supports(run)

    def setup(self, context):
        super().setup(context)
        # At rate 1, and on a worker without a halo, the whole matrix is used as it is.
        samples = self.rate < 1 and self.plan.num_halo > 0
        self.sampler = HaloSampler(context.adjacency, self.shard) if samples else None

    def before_epoch(self, epoch):
        rank, send, receive = self.comm.rank, self.plan.send_counts, self.plan.receive_counts
        # Owner and receiver draw the same rows from the same counter, so nothing is sent to agree on them.
        with self.recorder.inside("rest", "draw"):
            to_send = [self.sample(epoch, p, rank, count) for p, count in enumerate(send)]
            to_receive = [self.sample(epoch, rank, p, count) for p, count in enumerate(receive)]
            self.recorder.work(sample(sum(map(len, [*to_send, *to_receive])), sum(send) + sum(receive)))
        sent, where = placed(to_send, send), placed(to_receive, receive)  # in the plan of each direction
        rows = self.plan.send_rows.index_select(0, sent.to(self.device, non_blocking=True))
        self.drawn = HaloPlan(rows, [len(s) for s in to_send], [len(s) for s in to_receive])
        scales = [
            torch.full((len(drawn), 1), count / max(len(drawn), 1))
            for drawn, count in zip(to_receive, receive)
        ]
        self.scale = torch.cat(scales).to(self.device, torch.get_default_dtype(), non_blocking=True)  # m / k
        self.recorder.metric("rows_drawn", len(where))
        if self.sampler is not None:
            with self.recorder.inside("rest", "blocks"):
                self.adjacency = self.sampler.propagation(where)

    def sample(self, epoch: int, receiver: int, owner: int, count: int) -> torch.Tensor:
        """The rows drawn in this epoch: places [k] among the `count` rows that `receiver` needs of `owner`,
        ascending, on the CPU.
        """
        key = ((self.seed * 1_000_003 + epoch) * 65_537 + receiver) * 65_537 + owner
        k = max(1, round(self.rate * count)) if count else 0
        return permutation(count, key)[:k].sort().values

    def halo(self, layer, h):
        pending, scale = self.comm.exchange(self.drawn, h, layer), self.scale
        return SimpleNamespace(wait=lambda: pending.wait() * scale)


def placed(drawn: list[torch.Tensor], counts: list[int]) -> torch.Tensor:
    """Places in the whole plan, which is grouped by worker, of the rows `drawn` among each worker's `counts`
    rows."""
    first = torch.tensor([0, *counts]).cumsum(0).tolist()
    return torch.cat([each + start for each, start in zip(drawn, first)])
