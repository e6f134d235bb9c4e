"""CAGNET-1D: Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training", SC 2020; built here as
SANCUS's baseline (Peng et al., VLDB 2022, section 5.3), which is SANCUS with every flag ACTIVE.

Implements the one-dimensional block-row algorithm. With T_i = sum_j A_ij H_j:
    forward    for every layer, every worker broadcasts its block H_j^(l-1);   Z_i = T_i W          (SANCUS, eqs. 2, 3)
    backward   every worker broadcasts delta_j^(l);   G_i = sum_j (A^T)_ij delta_j,
               dL/dH_i = G_i W^T   (eq. 4),   dL/dW = sum_i H_i^T G_i   (eq. 5)

Notation: A the normalised adjacency; H_j, delta_j the block of worker j; P workers; N vertices; f_l the width of H^l.

Bytes an epoch over all workers, two layers: 4 (P-1) N (f_0 + 2 f_1 + f_2); a layer's delta is broadcast even where only
its weight gradient needs it. Under `features=once` layer 0 is local after the first epoch: A X is static, and
dL/dW^0 = (A X)^T delta.

Decisions: features refetch | once; own block fresh.
Departures: all broadcasts of a layer are posted together and the local product runs meanwhile; whole blocks are held, but
only the rows that local edges touch are multiplied.
"""

from dataclasses import dataclass

from harness.core.propagate import propagate_gathered
from harness.core.system import System, check_features
from systems.blocks import BlockRows, broadcast, empty_blocks


@dataclass
class Cagnet(System):
    """features: "refetch" broadcasts layer 0's blocks every epoch, "once" in the first only."""

    features: str = "refetch"

    def __post_init__(self):
        check_features(self.features)

    def setup(self, context):
        super().setup(context)
        self.everyone = list(range(self.comm.size))
        self.halo_rows = BlockRows.of_halo(self.shard, self.device)
        self.out_rows = BlockRows.of_out_halo(self.shard, self.device)
        # Scratch, not state: every block is overwritten before it is read. Layers of one width take turns.
        self.received = {width: empty_blocks(self.shard, width, self.device) for width in set(self.widths)}

    def halo(self, layer, h):
        return self.gather(h, self.halo_rows, layer, "forward", "blocks")

    def input_halo(self, x):
        return self.gather(x, self.halo_rows, 0, "forward", "features").wait()

    def propagate(self, layer, h, weight, dropout):
        return propagate_gathered(self.adjacency, h, self.halo(layer, h), weight, dropout,
                                  lambda delta: self.gather(delta, self.out_rows, layer, "backward", "deltas"))

    def gather(self, own, rows, layer, direction, purpose):
        blocks = self.received[own.shape[1]]
        return broadcast(self.comm, blocks, own, self.everyone, rows, layer, direction, purpose)
