"""SkipG: bounded gradient staleness, the baseline that SANCUS is compared with (section 5.3 of the text that
systems/sancus.py cites).

The paper says only that it is "based on bounded gradient staleness", a traditional method, and cites a
data-parallel system for it. What is built here, ours, is SANCUS's Algorithm 3 with the two directions
exchanged: every block H_j^(l) is broadcast in every epoch, and delta_j^(l) = dL/dZ_j is broadcast only when
the cached one is too old, by the rule of Algorithm 4,

    delta_j is ACTIVE  <=>  Ver - Ver(j) > bound,    G_i = A^T_ii delta_i + sum_{j != i} A^T_ij delta~_j
                       (eqs. 4, 5)

Notation: as in systems/sancus.py; delta~_j the block as last broadcast.

Decisions
- which gradients are skipped, and the bound, are not printed: delta blocks, since these are what SANCUS's
  backward pass communicates and weight gradients are small; bound 1.
- own delta fresh; everything is broadcast in epoch 0, when caches are empty.
- one version for all layers: a backward pass is broadcast as a whole or not at all; bound = 0 is CAGNET.
Departures: no gradient is clipped. Under `features=once`, the default, dL/dW^0 = (A X)^T delta needs no other
worker's delta, so that layer 0's is neither sent nor stale; under `refetch`, Algorithm 3's, it is both.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from harness.base.bounds import ROUNDS, number, word
from systems.parts.blocks import BlockSystem


@dataclass
class Skipg(BlockSystem):
    """bound     epochs for which a broadcast delta is used again; 0: broadcast every epoch
    features  "once" broadcasts layer 0's blocks in the first epoch only, and none of its deltas; "refetch"
              broadcasts both as those of other layers
    """

    bound: int = number(1, 0, ROUNDS)
    features: str = word("once", "refetch")

    exact: ClassVar = {"bound": 0}

    def repeats(self, epochs):
        return 1, self.bound + 1

    def setup(self, context):
        super().setup(context)
        # State: by layer, from its first broadcast on, delta~_j of every remote block; the last one's epoch.
        self.deltas: dict[int, Any] = {}
        self.version = -self.bound - 1
        self.active: list[int] = []

    def before_epoch(self, epoch):
        due = epoch - self.version > self.bound
        self.version = epoch if due else self.version
        self.active = self.everyone if due else []
        self.recorder.metric("active", due)

    def gathered(self, layer, delta):
        if layer not in self.deltas:
            self.deltas[layer] = self.empty_blocks(delta.shape[1])
        return self.broadcast(layer, "backward", delta, self.deltas[layer], self.active)

    def state_dict(self):
        return {"deltas": self.deltas, "version": self.version}

    def load_state_dict(self, state):
        self.deltas, self.version = state["deltas"], state["version"]
