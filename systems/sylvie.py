"""Sylvie: rows and gradients of one bit per value, used an epoch late.

Zhang, Hu, Sun, Wen, Zhang, "Boosting Distributed Full-graph GNN Training with Asynchronous One-bit
Communication", arXiv 2303.01277, 2023. Every halo row, and every gradient of one, is quantised with the
stochastic rounding of `adaqp` to B bits. At B = 1, x' is either the least value of its row (low) or the
largest (high), with E x' = x and Var x' = (x - low)(high - x):

    synchronous    Z_i^t = A_ii H_i^t + sum_j A_ij Q(H_j^t),       gradients likewise
    asynchronous   Z_i^t = A_ii H_i^t + sum_j A_ij Q(H_j^(t-1)),   gradients likewise, as `pipegcn` has it

Its Bounded Staleness Adaptor makes every `period`-th epoch a synchronous one.

Notation: t the epoch, i this worker, j the others; M the halo vertices of all workers.

Bytes per epoch over all workers, 4-byte floats: M (ceil(F B / 8) + 8) forward and backward of every layer
l >= 1 of F columns, and forward of layer 0 under `features=refetch`.

Decisions
- the quantiser's constants are the row's ends, as floats (harness/core/quantise.py).
- epochs 0, period, 2 period, ... are synchronous: what is sent in them is used in them, and what was sent in
  the epoch before is dropped. What they send is used once more in the next epoch, in which nothing else has
  arrived.
- period=0: halo rows and gradients are zeros in epoch 0.
- layer 0: features once (fetched exactly, once) | refetch (quantised anew in every epoch).
Departures: the paper's full text was not at hand. Stochastic rounding and the adaptor's rule are from
memory of it; what surrounds a synchronous epoch is ours; its period is not known, 20 is assumed.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, one_of, word
from harness.comm.work import stream
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.coded import CodedSystem, coded, decoded, noise
from systems.parts.pipeline import Pipe

SLOT = 2  # of a synchronous exchange: an asynchronous one has slots 0 and 1


@dataclass
class Sylvie(CodedSystem):
    """bits      bits per value, of rows and of their gradients: 1, 2, 4 or 8
    mode      "asynchronous": what was sent in the epoch before is used; "synchronous": what is sent in this
    period    every so many epochs an asynchronous exchange is synchronous; 0: never
    features  "once": layer 0's halo rows are fetched once, exactly; "refetch": quantised in every epoch
    """

    bits: int = one_of(1, 1, 2, 4, 8)
    mode: str = word("asynchronous", "synchronous")
    period: int = number(20, 0, ROUNDS)
    features: str = word("once", "refetch")

    refuses: ClassVar = Refuses(wire="quantises what it sends", needed_rows="")

    def traits(self):
        idle = ["period"] if self.mode == "synchronous" else []
        why = f"at system.mode={self.mode} every exchange is synchronous"
        overlaps = self.mode == "asynchronous"
        return Traits(overlaps=overlaps, ineffective=without_effect(self, idle, why))

    def setup(self, context):
        super().setup(context)
        # State: what is under way; and the messages [k, bytes] of the last synchronous epoch, to be used once
        # more.
        self.pipes: dict[str, Pipe] = {}
        self.kept: dict[str, torch.Tensor] = {}

    def before_epoch(self, epoch):
        super().before_epoch(epoch)
        self.recorder.metric("synchronous", self.is_synchronous())

    def is_synchronous(self) -> bool:
        """Whether what is sent in this epoch is used in it."""
        return self.mode == "synchronous" or (self.period > 0 and self.epoch % self.period == 0)

    def start(self, layer, direction, rows):
        wire = coded(rows, self.bits, noise(self, self.epoch, layer, direction, rows), self.recorder)
        key, pipe = f"{direction} {layer}", self.pipe(layer, direction)
        if not self.is_synchronous():
            arrived = pipe.push(wire, depth=1)
            return key, None, self.kept.pop(key, None) if arrived is None else arrived, wire
        if pipe.queue:
            pipe.take(0)  # sent in the epoch before: too old for a synchronous epoch
        flight, arrived = self.comm.start_exchange(
            wire, pipe.send, pipe.receive, layer, direction, "halo", SLOT
        )
        return key, flight, arrived, wire

    def finish(self, under_way, count, width, dtype):
        key, flight, arrived, _ = under_way
        if flight is not None:
            flight.wait()
            if self.mode == "asynchronous":
                self.kept[key] = arrived.clone()
        with self.recorder.inside("rest", "unpack"):
            if arrived is None:
                self.recorder.work(stream(count, width, dtype.itemsize, 0, 1))
                return torch.zeros(count, width, dtype=dtype, device=self.device)
            return decoded(arrived, width, self.bits, dtype, self.recorder)

    def pipe(self, layer: int, direction: str) -> Pipe:
        """The pipe that carries a layer's rows, or their gradients, from one epoch to the next."""
        key = f"{direction} {layer}"
        if key not in self.pipes:
            counts = self.plans[layer].counts(direction)
            self.pipes[key] = Pipe(self.comm, layer, direction, *counts, held=direction == "backward")
        return self.pipes[key]

    def after_epoch(self, epoch):
        for pipe in self.pipes.values():
            pipe.post()

    def state_dict(self):
        return {"kept": self.kept, "pipes": {key: pipe.state_dict() for key, pipe in self.pipes.items()}}

    def load_state_dict(self, state):
        self.kept = state["kept"]
        for key, saved in state["pipes"].items():
            direction, layer = key.split()
            self.pipe(int(layer), direction).load_state_dict(saved)
