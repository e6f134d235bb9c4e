"""SkipG: bounded gradient staleness, the baseline that SANCUS is compared with (Peng et al., VLDB 2022,
sections 4.3.5, 5.3).

The paper gives it one sentence: SANCUS's own idea applied to gradients instead of embeddings. So this is
SANCUS's Algorithm 3 with the two directions exchanged: every block H_j^(l) is broadcast in every epoch, and
delta_j^(l) = dL/dZ_j is broadcast only when the cached one is too old, by the rule of Algorithm 4,

    delta_j is ACTIVE  <=>  Ver - Ver(j) > bound,    G_i = A^T_ii delta_i + sum_{j != i} A^T_ij delta~_j
                       (eqs. 4, 5)

Notation: as in systems/sancus.py; delta~_j the block as last broadcast.

Decisions
- own delta fresh; everything is broadcast in epoch 0, when caches are empty.
- one version for all layers: a backward pass is broadcast as a whole or not at all; bound = 0 is CAGNET.
- features once | refetch.
Departures: the paper cites a data-parallel system for SkipG and does not say which gradients it skips; the
block delta is what its decentralised scheme communicates, and weight gradients are small.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.base.bounds import ROUNDS, number, word
from systems.parts.blocks import BlockSystem


@dataclass
class Skipg(BlockSystem):
    """bound     epochs for which a broadcast delta is used again; 0: broadcast every epoch
    features  "once" broadcasts layer 0's blocks in the first epoch only, "refetch" in every one
    """

    bound: int = number(1, 0, ROUNDS)
    features: str = word("once", "refetch")

    exact: ClassVar = {"bound": 0}

    def setup(self, context):
        super().setup(context)
        first = 1 if self.features == "once" else 0
        # State: delta~_j of every remote block by layer, and the epoch of the last broadcast.
        self.deltas = {l: self.blocks.empty(self.widths[l + 1]) for l in range(first, self.num_layers)}
        self.version = -self.bound - 1
        self.active: list[int] = []

    def before_epoch(self, epoch):
        due = epoch - self.version > self.bound
        self.version = epoch if due else self.version
        self.active = self.blocks.everyone if due else []
        self.recorder.metric("active", due)

    def gathered(self, layer, delta):
        return self.blocks.deltas(layer, delta, self.deltas[layer], self.active)

    def state_dict(self):
        return {"deltas": self.deltas, "version": self.version}

    def load_state_dict(self, state):
        self.deltas, self.version = state["deltas"], state["version"]
