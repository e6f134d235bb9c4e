"""SanQus: SANCUS whose broadcasts are quantised.

Peng, Liu, Chen, Shao, Shen, Chen, Cao, "From Sancus to Sancus^q", VLDB Journal 34(2), 22, 2025. Blocks are
broadcast by the rules of `sancus`, and what is broadcast is Q(H_j) of B bits per value, which all others
decode and keep:

    Z_i = T_i W,   T_i = A_ii H_i + sum_{j != i} A_ij Ht_j,   Ht_j = Q(H_j) as last broadcast

Notation: as in systems/sancus.py; Q stochastic rounding per row, as in `adaqp`; n_j the rows of block j.

Bytes of a broadcast of block j over all workers, 4-byte floats: (P - 1) n_j (ceil(F B / 8) + 8).

Decisions
- a variation gap is measured from the decoded copy that the others hold, rounding and all: a `bound` below
  what rounding changes broadcasts in every epoch, though nothing else has changed.
- gradients, which SANCUS broadcasts in every epoch, are quantised likewise; `gradients=exact` sends them as
  they are.
- layer 0 under `features=once` and `kept` is broadcast once, exactly; under `refetch` it is quantised.
Departures: the paper's full text was not at hand. That broadcasts which are not skipped are quantised is from
memory of it; quantiser, bits and what becomes of gradients are decided here.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from harness.base.bounds import one_of, word
from harness.core.quantise import row_bytes
from harness.core.system import without_effect
from systems.parts.blocks import PendingBlocks
from systems.parts.coded import coded, decoded, noise
from systems.sancus import Sancus

AS_IT_IS = 32


@dataclass
class Sanqus(Sancus):
    """As `sancus`, and:

    bits       bits per value of what is broadcast: 2, 4 or 8; 32: as it is
    gradients  "coded": gradients are broadcast in as many bits; "exact": as they are
    """

    bits: int = one_of(8, 2, 4, 8, AS_IT_IS)
    gradients: str = word("coded", "exact")

    exact: ClassVar = {**Sancus.exact, "bits": AS_IT_IS}
    refuses: ClassVar = replace(Sancus.refuses, wire="has a code of its own for what it sends")

    def traits(self):
        common = super().traits()
        idle = ["gradients"] if self.bits == AS_IT_IS else []
        why = f"at system.bits={AS_IT_IS} nothing is coded"
        return replace(common, ineffective=common.ineffective + without_effect(self, idle, why))

    def codes(self, layer: int, direction: str) -> bool:
        """Whether what a layer broadcasts is quantised."""
        if direction == "backward":
            return self.bits < AS_IT_IS and self.gradients == "coded"
        return self.bits < AS_IT_IS and (layer > 0 or self.features == "refetch")

    def halo(self, layer, h):
        pending = super().halo(layer, h)
        # The next variation gap is measured from the copy that the others decode.
        if isinstance(pending, PendingCoded) and pending.own is not None and layer in self.own:
            self.own[layer] = decoded(pending.own, h.shape[1], self.bits, h.dtype, self.recorder)
        return pending

    def start(self, blocks, roots, layer, direction, purpose):
        if not self.codes(layer, direction):
            return super().start(blocks, roots, layer, direction, purpose)
        return PendingCoded(self, blocks, roots, layer, direction, purpose)


class PendingCoded(PendingBlocks):
    """Broadcasts of quantised blocks under way.

    own   this worker's block [n, bytes] as it is sent; None where it is not broadcast
    """

    def __init__(
        self,
        system: Sanqus,
        blocks: list[torch.Tensor],
        roots: list[int],
        layer: int,
        direction: str,
        purpose: str,
    ):
        comm, bits, block = system.comm, system.bits, blocks[system.comm.rank]
        size = row_bytes(block.shape[1], bits, block.dtype)
        self.bits, self.roots, self.own = bits, roots, None
        self.wires = [torch.empty(len(each), size, dtype=torch.uint8, device=comm.device) for each in blocks]
        if comm.rank in roots:
            with comm.recorder.inside("rest", "code", layer):
                u = noise(system, system.epoch, layer, direction, block)
                self.own = self.wires[comm.rank] = coded(block, bits, u, comm.recorder)
        flight = comm.broadcast_blocks(self.wires, roots, layer, direction, purpose)
        super().__init__(comm, flight, blocks, system.used[direction], layer)

    def wait(self) -> torch.Tensor:
        self.flight.wait()
        with self.comm.recorder.inside("rest", "decode", self.layer):
            for j in self.roots:
                if j != self.comm.rank:
                    block, wire = self.blocks[j], self.wires[j]
                    block.copy_(decoded(wire, block.shape[1], self.bits, block.dtype, self.comm.recorder))
        return self.picked()
