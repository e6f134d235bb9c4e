"""A layer's halo as CaPGNN asked for it in an epoch: what is under way, and in the end its rows.

With the pipeline a request outlives its epoch: it is used in the next one, and is part of a checkpoint.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.comm.flight import HaloPlan, InFlight
from systems.parts.jaca import Fetch, Part


@dataclass
class Request:
    """What `fetch` says of layer `layer`'s halo, of rows `width` wide, as asked for in `epoch`.

    flight, sent, arrived   the direct exchange, what it sends and what it fills
    announcement            the bytes by which owners tell that their rows are in the global tier
    shared                  rows taken from the global tier, and the epochs in which they were computed
    rows                    [m, F] once collected; oldest: the epoch in which the oldest of them was computed
    """

    layer: int
    epoch: int
    width: int
    fetch: Fetch
    flight: InFlight | None = None
    sent: torch.Tensor | None = None
    arrived: torch.Tensor | None = None
    announcement: InFlight | None = None
    shared: tuple[torch.Tensor, torch.Tensor] | None = None
    rows: torch.Tensor | None = field(default=None, repr=False)
    oldest: int | None = None

    def state_dict(self) -> dict[str, Any]:
        """What the next epoch uses once rows are collected: they, and the part whose gradients it sends."""
        part = self.fetch.gradient
        assert self.rows is not None, "a request is kept once it has been collected"
        return {
            "epoch": self.epoch,
            "oldest": self.oldest,
            "rows": self.rows.clone(),
            "places": part.places,
            "anyone": part.anyone,
            "send_rows": part.plan.send_rows,
            "send_counts": part.plan.send_counts,
            "receive_counts": part.plan.receive_counts,
        }

    @staticmethod
    def restore(layer: int, state: dict[str, Any], fetch: Fetch) -> Request:
        """A collected request from its state; `fetch` stands in for what is no longer asked of its own."""
        plan = HaloPlan(state["send_rows"], state["send_counts"], state["receive_counts"])
        fetch = dataclasses.replace(fetch, gradient=Part(plan, state["places"], state["anyone"]))
        rows = state["rows"]
        return Request(layer, state["epoch"], rows.shape[1], fetch, rows=rows, oldest=state["oldest"])
