"""CAGNET-1D: Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training", SC 2020;
built here as SANCUS's baseline (section 5.3 of the text that systems/sancus.py cites), which is SANCUS with
every flag ACTIVE.

Implements the one-dimensional block-row algorithm. With T_i = sum_j A_ij H_j:
    forward    for every layer, every worker broadcasts its block H_j^(l-1);   Z_i = T_i W          (SANCUS,
               eq. 2)
    backward   every worker broadcasts delta_j^(l);   G_i = sum_j (A^T)_ij delta_j,
               dL/dH_i = G_i W^T   (eq. 4),   dL/dW = sum_i H_i^T G_i   (eq. 5)

Notation: A the normalised adjacency; H_j, delta_j the block of worker j; P workers; N vertices; f_l the width
of H^l.

Bytes per epoch over all workers, two layers: 4 (P-1) N (f_0 + 2 f_1 + f_2); a layer's delta is broadcast even
where only its weight gradient needs it. Under `features=once` layer 0 is local after the first epoch: A X is
static, and dL/dW^0 = (A X)^T delta.

`replication=c` above 1 is the 1.5D algorithm: c workers have a block row in common, and each of them
multiplies with one c-th of the blocks (`systems.parts.replicated`). A product of width f then takes
4 N f (P/c - 1 + 2 (c - 1)) bytes in place of 4 N f (P - 1). c^2 must divide P; the fewest bytes are near
c = sqrt(P/2).

Decisions, with c > 1: column k has the blocks j with j mod c = k; a worker owns the rows of its part as
everywhere, so the paper's all-reduce of a block row is a reduce-scatter after the product and an all-gather
before the next, in as many bytes; A H comes before W whatever `order` says; `features=once` fetches layer 0
as c = 1 does.
Departures: `features=once` is the default, `refetch` the paper's. All broadcasts of a layer are posted
together and the local product runs meanwhile; whole blocks are held, but only the rows that local edges touch
are multiplied. With c > 1 the owner of a row applies its
dropout, and each worker computes the dense product of its own rows only, where in the paper each of the c
workers computes that of the whole block row; a block is sent to each of its readers one by one, since no
group of workers has a broadcast of its own here. The formulas of the 1.5D algorithm are from notes of the
paper; its code was not at hand.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from harness.base.bounds import number, word
from harness.core.adjacency import Adjacency
from systems.parts.blocks import BlockSystem
from systems.parts.replicated import ReplicatedRows


@dataclass
class Cagnet(BlockSystem[Adjacency | ReplicatedRows]):
    """features     "once" broadcasts layer 0's blocks in the first epoch only, "refetch" in every one
    replication  c, how many workers have a block row in common; its square divides the workers
    """

    features: str = word("once", "refetch")
    replication: int = number(1, 1)

    exact: ClassVar = {}

    def supports(self, run):
        square = self.replication**2
        if run.num_workers % square:
            fits = max(c for c in range(1, math.isqrt(run.num_workers) + 1) if run.num_workers % c**2 == 0)
            return (
                f"system.replication={self.replication} needs workers that {square} divides, and"
                f" workers={run.num_workers}: give system.replication={fits} or workers="
                f"{-(-run.num_workers // square) * square}"
            )
        return super().supports(run)

    def setup(self, context):
        super().setup(context)
        if self.replication > 1:
            self.adjacency = ReplicatedRows(context.adjacency, self.shard, self.comm, self.replication)

    def propagate(self, layer, h, weight, dropout):
        if isinstance(self.adjacency, ReplicatedRows):
            return self.adjacency.product(layer, dropout.inner(h), weight)
        return super().propagate(layer, h, weight, dropout)
