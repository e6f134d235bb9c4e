"""Stale representations: the halo rows of every hidden layer, pulled from a store now and then and
constants in between.

The store keeps what the owners pushed, each push under a number, its stamp; this part keeps what was
pulled, and its stamps. Layer l's pull is asked for while layer l - 1 computes (DIGEST, Figure 2). One
worker has no remote row and no store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.comm.store import Pull, Push, Store
from harness.core.context import Context


class Representations:
    """rows  {layer: [m, F]} as last pulled, zeros before; read {layer: [stamp of each owner]} of these rows

    address, slots   of the store
    """

    def __init__(self, context: Context, address: str, slots: int):
        self.recorder, self.comm, self.sends = context.recorder, context.comm, sum(context.plan.send_counts)
        widths = dict(enumerate(context.widths[1:-1], 1))
        m = context.plan.num_halo
        self.rows = {layer: torch.zeros(m, width, device=context.device) for layer, width in widths.items()}
        self.read: dict[int, list[int]] = {layer: [] for layer in widths}
        self.store = (
            Store(address, context.comm, context.shard, widths, slots)
            if context.comm.size > 1 and widths
            else None
        )
        self.pushing: list[Push] = []
        self.pulling: dict[int, Pull] = {}

    def begin(self, inputs: dict[int, torch.Tensor], inner: int) -> None:
        """The store before round 1: the rows of `inputs` {layer: H [inner, F]}, as of round 0. Collective,
        outside the clock; what the exact forward pass sent of these layers, and the pushes, is the metric
        `start_bytes`."""
        if self.store is None:
            return
        for layer, h in inputs.items():
            self.push(layer, h, stamp=0)
        self.pushed()
        self.comm.barrier()
        width_bytes = sum(h.shape[1] * h.element_size() for h in inputs.values())
        self.recorder.metric("start_bytes", (self.sends + inner) * width_bytes)
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
        """Start fetching the halo rows of `layer` as pushed under stamp wanted[owner], None for the
        newest."""
        if self.store is not None and layer in self.rows:
            self.pulling[layer] = self.store.pull(layer, wanted)

    def wait(self, layer: int) -> torch.Tensor:
        """The halo rows [m, F] of layer `layer`: those being pulled, else those pulled before."""
        if layer in self.pulling:
            operation = self.pulling.pop(layer)
            self.rows[layer] = operation.wait()
            self.read[layer] = operation.stamps
        return self.rows[layer]

    def pending(self, layer: int) -> _Pending:
        return _Pending(self, layer)

    def report(self, now: int, per_round: int = 1) -> None:
        """Metrics of what a worker at stamp `now` read, where a round is `per_round` stamps: by layer, the
        oldest row's staleness and the mean over owners, in rounds. The exact forward pass of stamp 0 had the
        weights of stamp 1, and counts as theirs."""
        for layer, stamps in self.read.items():
            if stamps:
                staleness = [(now - max(stamp, 1)) / per_round for stamp in stamps]
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


class _Pending:
    def __init__(self, representations: Representations, layer: int):
        self.representations, self.layer = representations, layer

    def wait(self) -> torch.Tensor:
        return self.representations.wait(self.layer)
