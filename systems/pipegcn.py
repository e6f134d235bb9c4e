"""PipeGCN: Wan, Li, Wolfe, Kyrillidis, Kim, Lin, "PipeGCN: Efficient Full-Graph Training of Graph
Convolutional Networks with Pipelined Feature Communication", ICLR 2022; built here as a baseline, from notes
of it.

Implements pipelined training: what layer l needs of other workers in epoch t was sent in epoch t - 1, so that
a whole epoch of compute hides its transfer. With t the epoch, i this worker, j the others:

    Z_i^t  = A_ii H_i^t + sum_j A_ij H_j^(t-1)                     boundary features of the epoch before
    dH_i^t = (own edges' gradient)^t + sum_j (gradient of H_i at j)^(t-1)   and so are boundary gradients

Notation: the halo rows and gradients that arrived are `features[l]`, `gradients[l]`; in epoch 0 they are
zeros.

Decisions
- staleness is exactly 1, for features and for gradients; both are 0 in epoch 0.
- smoothing, off by default (the paper's -F, -G, -GF): stale = m stale + (1 - m) arrived, m = `momentum`, from
  zeros on.
- layer 0: features once (static, so fetched once, exactly) | refetch (through the pipe like any layer: 0 in
  epoch 0, then exact, but where features are smoothed). It has no gradients to return.
- boundary gradients are sent after the all-reduce of the weight gradients, which needs the link first;
  boundary features are sent as soon as they are computed.
- a gradient that arrives in epoch t is added to epoch t's own gradient of the same rows, in the backward pass
  of the layer.
Departures: the paper's text was not at hand; by notes of it there are none.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import number, word
from harness.comm.work import copied
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.coded import CodedSystem
from systems.parts.pipeline import Pipe


@dataclass
class Pipegcn(CodedSystem):
    """smooth_features   true: stale features are averaged over epochs
    smooth_gradients   true: stale gradients are averaged over epochs
    momentum   m, the weight of the past in these averages
    features   "once": layer 0's halo rows are fetched once, and are never stale; "refetch": in every epoch
    """

    smooth_features: bool = False
    smooth_gradients: bool = False
    momentum: float = number(0.95, 0, 0.999)
    features: str = word("once", "refetch")

    refuses: ClassVar = Refuses(needed_rows="")

    def traits(self):
        idle = [] if self.smooth_features or self.smooth_gradients else ["momentum"]
        return Traits(overlaps=True, ineffective=without_effect(self, idle, "nothing is smoothed"))

    def setup(self, context):
        super().setup(context)
        # State, by direction and layer: what is under way, and the rows [k, F] that are in use.
        self.pipes: dict[str, dict[int, Pipe]] = {"forward": {}, "backward": {}}
        self.stale: dict[str, dict[int, torch.Tensor]] = {"forward": {}, "backward": {}}
        for direction, first in (("forward", 0 if self.features == "refetch" else 1), ("backward", 1)):
            for l in range(first, self.num_layers):
                send, receive = self.plans[l].counts(direction)
                held, shape = direction == "backward", (sum(receive), self.widths[l])
                self.pipes[direction][l] = Pipe(self.comm, l, direction, send, receive, held)
                self.stale[direction][l] = torch.zeros(shape, device=self.device)

    def start(self, layer, direction, rows):
        """Put this epoch's boundary rows, or halo gradients, into the pipe. Returns what came of the epoch
        before, smoothed if asked: the halo to use, or the gradients to add to those of the boundary rows."""
        smooth = self.smooth_features if direction == "forward" else self.smooth_gradients
        stale, arrived = self.stale[direction][layer], self.pipes[direction][layer].push(rows, depth=1)
        if arrived is not None:
            stale.lerp_(arrived, 1 - self.momentum) if smooth else stale.copy_(arrived)
            self.recorder.work(copied(stale))
        if direction == "backward":
            return stale
        self.recorder.work(copied(stale))
        return stale.clone()

    def finish(self, under_way, count, width, dtype):
        return under_way

    def after_epoch(self, epoch):
        for pipe in self.pipes["backward"].values():
            pipe.post()

    def state_dict(self):
        return {
            "features": self.stale["forward"],
            "gradients": self.stale["backward"],
            "in_flight": [
                {l: pipe.state_dict() for l, pipe in pipes.items()} for pipes in self.pipes.values()
            ],
        }

    def load_state_dict(self, state):
        self.stale = {"forward": state["features"], "backward": state["gradients"]}
        for pipes, saved in zip(self.pipes.values(), state["in_flight"]):
            for l, pipe in pipes.items():
                pipe.load_state_dict(saved[l])
