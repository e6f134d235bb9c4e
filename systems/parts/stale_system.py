"""What DIGEST's two forms have in common: hidden rows that are pushed to a store and pulled from it every few
rounds, and are constants in between; and a loss of each worker's own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import torch

from harness.base.bounds import ROUNDS, number, word
from harness.comm.backend import check_address
from harness.comm.store import Operation, Pulled, Store
from harness.core.context import Context
from harness.core.mixins import BesideClock, OwnLoss
from harness.core.system import Refuses, System, Traits


class Representations:
    """The halo rows of every hidden layer. The store keeps what the owners pushed, each push under a number,
    its stamp; this object keeps what was pulled. Layer l's pull is asked for while layer l - 1 computes
    (DIGEST, Figure 2). A worker alone has no remote row and no store.

    rows  {layer: [m, F]} as last pulled, zeros before; read {layer: [stamp of each owner]} of these rows
    address, slots   of the store
    exact   whether the store begins with the rows of an exact forward pass
    """

    def __init__(self, context: Context, address: str, slots: int, exact: bool):
        self.recorder, self.comm, self.exact = context.recorder, context.comm, exact
        self.sends = sum(context.plan.send_counts)
        widths = dict(enumerate(context.widths[1:-1], 1))
        m = context.plan.num_halo
        self.rows = {layer: torch.zeros(m, width, device=context.device) for layer, width in widths.items()}
        self.read: dict[int, list[int]] = {layer: [] for layer in widths}
        self.store = (
            Store(address, context.comm, context.shard, widths, slots)
            if context.comm.size > 1 and widths
            else None
        )
        self.pushing: list[Operation[None]] = []
        self.pulling: dict[int, Operation[Pulled]] = {}

    def begin(self, inputs: dict[int, torch.Tensor], inner: int) -> None:
        """The store before round 1: the rows of `inputs` {layer: H [inner, F]}, as of round 0. Collective,
        outside the clock; the pushes, and what an exact forward pass sent of these layers where one was made,
        is the metric `start_bytes`."""
        if self.store is None:
            return
        for layer, h in inputs.items():
            self.push(layer, h, stamp=0)
        self.pushed()
        self.comm.barrier()
        width_bytes = sum(h.shape[1] * h.element_size() for h in inputs.values())
        self.recorder.metric("start_bytes", (self.sends * self.exact + inner) * width_bytes)
        self.recorder.metric("store_bytes", self.store.nbytes)

    def push(self, layer: int, h: torch.Tensor, stamp: int) -> None:
        """Start handing h [n, F] to the store; stamps of one worker ascend."""
        if self.store is not None:
            self.pushing.append(self.store.push(layer, h.detach(), stamp))

    def pushed(self) -> None:
        """Wait until the store has everything that was pushed."""
        for operation in self.pushing:
            operation.wait()
        self.pushing = []

    def pull(self, layer: int, wanted: Sequence[int | None]) -> None:
        """Start fetching the halo rows of `layer`, of each owner those pushed under stamp wanted[owner];
        None: those pushed last."""
        if self.store is not None and layer in self.rows:
            self.pulling[layer] = self.store.pull(layer, wanted)

    def wait(self, layer: int) -> torch.Tensor:
        """The halo rows [m, F] of layer `layer`: those being pulled, else those pulled before."""
        if layer in self.pulling:
            rows, self.read[layer] = self.pulling.pop(layer).wait()
            self.rows[layer] = rows.to(self.comm.device, non_blocking=True)
        return self.rows[layer]

    def report(self, now: int, per_round: int = 1) -> None:
        """Metrics of what a worker at stamp `now` read, where a round is `per_round` stamps: by layer, the
        oldest row's staleness and the mean over owners, in rounds. The exact forward pass of stamp 0 had the
        weights of stamp 1, and counts as theirs. Zeros of stamp 0 have no age, and are left out."""
        for layer, stamps in self.read.items():
            staleness = [(now - max(stamp, 1)) / per_round for stamp in stamps if stamp or self.exact]
            if staleness:
                self.recorder.metric("staleness", max(staleness), layer)
                self.recorder.metric("staleness_mean", sum(staleness) / len(staleness), layer)

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": {layer: rows.clone() for layer, rows in self.rows.items()},
            "read": self.read,
            "store": self.store.contents() if self.store is not None else {},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.rows, self.read = state["rows"], state["read"]
        if self.store is not None:
            self.store.restore(state["store"])

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


REFUSES = Refuses(
    wire="passes hidden rows through a store, which holds them as they are",
    needed_rows="keeps a representation of every boundary vertex",
)


@dataclass
class StaleSystem(OwnLoss, BesideClock, System):
    """interval  N, rounds from one push to the next
    store     where hidden rows are kept: "shared", the memory of one host, or the Redis server at
              redis://HOST:PORT
    start     what the store holds before round 1: "exact", the rows of an exact forward pass, or "zeros"
    loss      what a worker divides the sum of its losses by: "partition", its own training vertices, or
              "global", those of all workers
    features  "once": layer 0's halo rows are fetched once; "refetch": in every round
    """

    interval: int = number(10, 1, ROUNDS)
    store: str = "shared"
    start: str = word("exact", "zeros")
    loss: str = word("partition", "global")
    features: str = word("once", "refetch")

    slots: ClassVar = 2  # pushes that a slice of the store keeps

    def __post_init__(self):
        check_address(self.store)

    def traits(self):
        return Traits(overlaps=True)

    def setup(self, context):
        super().setup(context)
        self.context, self.round, self.pulling = context, 0, False
        self.wanted: list[int | None] = []  # by owner, the stamp of the push to pull; None: of its last one
        self.representations = Representations(context, self.store, self.slots, self.start == "exact")
        context.closing.callback(self.representations.close)

    def pushes(self) -> int | None:
        """The stamp of what this round pushes; None where it pushes nothing."""
        raise NotImplementedError

    def prefetch(self, layer: int) -> None:
        """PULL, lines 5-6 of Algorithm 1, while the layer before computes, in a round that is `pulling`: of
        each owner the push that is `wanted`."""
        if self.pulling:
            self.representations.pull(layer, self.wanted)

    def halo(self, layer, h):
        if layer == 0:
            return self.comm.exchange(self.plan, h, 0, "features")
        stamp = self.pushes()
        if stamp is not None:  # PUSH, lines 9-10: h is final as soon as it is computed
            self.representations.push(layer, h, stamp)
        self.prefetch(layer + 1)
        return SimpleNamespace(wait=partial(self.representations.wait, layer))

    def loss_divisor(self, local, total):
        return total if self.loss == "global" else max(local, 1)

    def state_dict(self):
        return {"representations": self.representations.state_dict()}

    def load_state_dict(self, state):
        self.representations.load_state_dict(state["representations"])
