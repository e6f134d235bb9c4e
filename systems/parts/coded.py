"""Halo rows and their gradients that travel in another form than that of rows."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from harness.comm.crossing import Crossing
from harness.comm.flight import HaloPlan
from harness.comm.recorder import Recorder
from harness.comm.work import moved


class Coder(Protocol):
    """A system that says what is sent for the rows of a layer, and which rows stand for what arrived."""

    plans: list[HaloPlan]
    recorder: Recorder

    def start(self, layer: int, direction: str, rows: torch.Tensor) -> Any:
        """Send `rows` [k, F], "forward" of the plan's senders or "backward" of its receivers; returns what
        `finish` takes."""

    def finish(self, under_way: Any, count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """The rows [count, width] that stand for what has arrived."""


class CodedHalo(Crossing):
    """An exchange of a layer's rows under way in both passes, in the form that the coder gives them."""

    def __init__(self, coder: Coder, layer: int, h: torch.Tensor):
        self.coder, self.width, self.dtype = coder, h.shape[1], h.dtype
        self.plan = coder.plans[layer]
        super().__init__(coder.recorder, layer, h)

    def send(self, h):
        with self.recorder.inside("rest", "pack", self.layer):
            rows = h.index_select(0, self.plan.send_rows)
            self.recorder.work(moved(rows))
        self.start("forward", rows)

    def take(self):
        return self.finish(self.plan.num_halo)

    def send_back(self, g):
        self.start("backward", g)

    def take_back(self):
        rows = self.plan.send_rows
        return rows, self.finish(len(rows))

    def start(self, direction: str, rows: torch.Tensor) -> None:
        with self.recorder.inside("rest", "code", self.layer):
            self.under_way = self.coder.start(self.layer, direction, rows)

    def finish(self, count: int) -> torch.Tensor:
        return self.coder.finish(self.under_way, count, self.width, self.dtype)
