"""BNS-GCN: Wan, Li, Li, Kim, Lin, "BNS-GCN: Efficient Full-Graph Training of Graph Convolutional Networks
with Partition-Parallelism and Random Boundary Node Sampling", MLSys 2022; built here as a baseline, from its
description.

Implements random boundary node sampling: in each epoch, for every (receiver, owner) pair, k of its m boundary
rows are drawn uniformly without replacement; they are exchanged as in vanilla, in both directions, and stand
for all m:

    Z_i = A_ii H_i + sum_j sum_{u in sample_ij} (m_ij / k_ij) A_iu H_u,        k_ij = max(1, round(rate m_ij))

which is unbiased for each layer given its input.

Notation: m_ij boundary rows that worker i needs of worker j; rate p.

Decisions
- values are divided by the realised rate k / m; in-degrees stay those of the whole graph.
- one sample for all layers of an epoch. Both ends draw it from the same counter (seed, epoch, receiver,
  owner), so no row id travels.
- layer 0: features once (all rows fetched exactly, once, and never sampled) | refetch (sampled like every
  layer).
Departures: rows that were not drawn are zero rows of the local product rather than taken out of it: traffic
falls with the rate, compute does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.splitmix import mix_int
from harness.check import more_than, within
from harness.comm.flight import HaloPlan
from harness.core.system import System, check_features


@dataclass
class Bns(System):
    """rate      share of boundary rows drawn in an epoch, in (0, 1]; 1 is exact
    features  "once" or "refetch"
    """

    rate: float = 0.1
    features: str = "once"

    exact: ClassVar = {"rate": 1.0}

    def __post_init__(self):
        more_than("rate", self.rate, 0)
        within("rate", self.rate, 0, 1)
        check_features(self.features)

    def supports(self, run):
        if not run.matrix and self.rate < 1:
            return (
                f"model={run.model} has no propagation matrix, over whose entries drawn rows are scaled to"
                " stand for those that were not; give model=gcn or model=sage, or system.rate=1"
            )
        return super().supports(run)

    def before_epoch(self, epoch):
        rank, send, receive = self.comm.rank, self.plan.send_counts, self.plan.receive_counts
        to_send = [self.sample(epoch, p, rank, count) for p, count in enumerate(send)]
        to_receive = [self.sample(epoch, rank, p, count) for p, count in enumerate(receive)]
        rows = torch.cat([group[drawn] for group, drawn in zip(self.plan.send_rows.split(send), to_send)])
        self.drawn = HaloPlan(rows, [len(s) for s in to_send], [len(s) for s in to_receive])
        first = torch.tensor([0, *receive]).cumsum(0).tolist()
        self.where = torch.cat([drawn + start for drawn, start in zip(to_receive, first)])  # halo rows drawn
        scales = [
            torch.full((len(drawn), 1), count / max(len(drawn), 1))
            for drawn, count in zip(to_receive, receive)
        ]
        self.scale = torch.cat(scales).to(self.device, torch.get_default_dtype())  # m / k of each
        self.recorder.metric("rows_drawn", len(self.where))

    def sample(self, epoch: int, receiver: int, owner: int, count: int) -> torch.Tensor:
        """Which of the `count` rows `receiver` needs of `owner` are drawn in this epoch, ascending [k]."""
        # Mixed, since torch's generator takes in the low 32 bits only, in which these keys are not all
        # different.
        key = mix_int((((self.seed * 1_000_003 + epoch) * 65_537 + receiver) * 65_537 + owner) % 2**64)
        k = max(1, round(self.rate * count)) if count else 0
        drawn = torch.randperm(count, generator=torch.Generator().manual_seed(key))[:k]
        return drawn.sort().values.to(self.device)

    def halo(self, layer, h):
        return Scattered(self.comm.exchange(self.drawn, h, layer), self.where, self.scale, self.plan.num_halo)


class Scattered:
    """Drawn rows on their way: `wait()` gives the whole halo [m, F], scaled where drawn and 0 elsewhere."""

    def __init__(self, pending, where: torch.Tensor, scale: torch.Tensor, num_halo: int):
        self.pending, self.where, self.scale, self.num_halo = pending, where, scale, num_halo

    def wait(self) -> torch.Tensor:
        rows = self.pending.wait() * self.scale
        return rows.new_zeros(self.num_halo, rows.shape[1]).index_copy(0, self.where, rows)
