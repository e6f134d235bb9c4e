"""SkipG: bounded gradient staleness, the baseline that SANCUS is compared with (Peng et al., VLDB 2022, sections 4.3.5, 5.3).

The paper gives it one sentence: SANCUS's own idea applied to gradients instead of embeddings. So this is Algorithm 3 with
the two directions exchanged: every block H_j^(l) is broadcast in every epoch, and delta_j^(l) = dL/dZ_j is broadcast only
when the cached one is too old, by the rule of Algorithm 4,

    delta_j is ACTIVE  <=>  Ver - Ver(j) > bound,    G_i = A^T_ii delta_i + sum_{j != i} A^T_ij delta~_j     (eqs. 4, 5)

Notation: as in systems/sancus.py; delta~_j the block as last broadcast.

Decisions
- own delta fresh; everything is broadcast in epoch 0, when caches are empty.
- one version for all layers: a backward pass is broadcast as a whole or not at all; bound = 0 is CAGNET.
- features refetch | once.
Departures: the paper cites a data-parallel system for SkipG and does not say which gradients it skips; the block delta is what
its decentralised scheme communicates, and weight gradients are small.
"""

from dataclasses import dataclass

from harness.check import at_least
from harness.core.propagate import propagate_gathered
from harness.core.system import System, check_features
from systems.blocks import BlockRows, broadcast, empty_blocks


@dataclass
class Skipg(System):
    """bound     epochs for which a broadcast delta is used again; 0: broadcast every epoch
    features  "refetch" broadcasts layer 0's blocks every epoch, "once" in the first only
    """

    bound: int = 1
    features: str = "refetch"

    def __post_init__(self):
        at_least("bound", self.bound, 0)
        check_features(self.features)

    def setup(self, context):
        super().setup(context)
        self.everyone = list(range(self.comm.size))
        self.halo_rows = BlockRows.of_halo(self.shard, self.device)
        self.out_rows = BlockRows.of_out_halo(self.shard, self.device)
        self.received = {width: empty_blocks(self.shard, width, self.device) for width in set(self.widths)}  # scratch
        # State: delta~_j of every remote block by layer, and the epoch in which they were broadcast.
        self.deltas = [empty_blocks(self.shard, width, self.device) for width in self.widths[1:]]
        self.version = -self.bound - 1
        self.active: list[int] = []

    def before_epoch(self, epoch):
        due = epoch - self.version > self.bound
        self.version = epoch if due else self.version
        self.active = self.everyone if due else []
        self.recorder.metric("active", due)

    def halo(self, layer, h):
        return broadcast(self.comm, self.received[h.shape[1]], h, self.everyone, self.halo_rows, layer, "forward", "blocks")

    def propagate(self, layer, h, weight, dropout):
        return propagate_gathered(self.adjacency, h, self.halo(layer, h), weight, dropout,
                                  lambda delta: self.gather_delta(layer, delta))

    def gather_delta(self, layer, delta):
        return broadcast(self.comm, self.deltas[layer], delta, self.active, self.out_rows, layer, "backward", "deltas")

    def input_halo(self, x):
        blocks = self.received[x.shape[1]]
        return broadcast(self.comm, blocks, x, self.everyone, self.halo_rows, 0, "forward", "features").wait()

    def state_dict(self):
        return {"deltas": self.deltas, "version": self.version}

    def load_state_dict(self, state):
        self.deltas, self.version = state["deltas"], state["version"]
