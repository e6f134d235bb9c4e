"""CAGNET-1D: Tripathy, Yelick, Buluc, "Reducing Communication in Graph Neural Network Training", SC 2020;
built here as SANCUS's baseline (Peng et al., VLDB 2022, section 5.3), which is SANCUS with every flag ACTIVE.

Implements the one-dimensional block-row algorithm. With T_i = sum_j A_ij H_j:
    forward    for every layer, every worker broadcasts its block H_j^(l-1);   Z_i = T_i W          (SANCUS,
               eqs. 2, 3)
    backward   every worker broadcasts delta_j^(l);   G_i = sum_j (A^T)_ij delta_j,
               dL/dH_i = G_i W^T   (eq. 4),   dL/dW = sum_i H_i^T G_i   (eq. 5)

Notation: A the normalised adjacency; H_j, delta_j the block of worker j; P workers; N vertices; f_l the width
of H^l.

Bytes an epoch over all workers, two layers: 4 (P-1) N (f_0 + 2 f_1 + f_2); a layer's delta is broadcast even
where only its weight gradient needs it. Under `features=once` layer 0 is local after the first epoch: A X is
static, and dL/dW^0 = (A X)^T delta.

Decisions: features once | refetch (the paper's); own block fresh.
Departures: all broadcasts of a layer are posted together and the local product runs meanwhile; whole blocks
are held, but only the rows that local edges touch are multiplied.
"""

from dataclasses import dataclass
from typing import ClassVar

from harness.core.order import GATHERED
from harness.core.propagate import propagate_gathered
from harness.core.system import System, check_features
from harness.core.traits import Refuses
from systems.parts.blocks import Blocks


@dataclass
class Cagnet(System):
    """features: "once" broadcasts layer 0's blocks in the first epoch only, "refetch" in every one."""

    features: str = "once"

    exact: ClassVar = {}
    passes: ClassVar = (GATHERED, GATHERED)
    refuses: ClassVar = Refuses(needed_rows="broadcasts whole blocks")

    def __post_init__(self):
        check_features(self.features)

    def setup(self, context):
        super().setup(context)
        self.blocks = Blocks(self.comm, self.shard, self.device)

    def halo(self, layer, h):
        return self.blocks.embeddings(layer, h)

    def input_halo(self, x):
        return self.blocks.features(x, self.features_wire)

    def propagate(self, layer, h, weight, dropout):
        return propagate_gathered(
            self.adjacency,
            h,
            self.halo(layer, h),
            weight,
            dropout,
            lambda delta: self.blocks.deltas(layer, delta),
        )
