"""The exchange of halo rows, and of their gradients, in a form other than plain rows; and the form that
several systems give them, codes of a few bits that are rounded without bias (`harness.core.quantise`).
"""

from typing import Any

import torch

from harness.comm.crossing import Crossing
from harness.comm.recorder import Recorder
from harness.comm.work import code, moved
from harness.core.context import A
from harness.core.draws import draws
from harness.core.quantise import dequantise, quantise
from harness.core.system import System
from harness.data.partition.shard import Shard


class CodedSystem(System[Shard, A]):
    """A system that says what is sent for the rows of a layer, and which rows stand for what arrived."""

    def setup(self, context):
        super().setup(context)
        self.epoch = 0

    def before_epoch(self, epoch):
        self.epoch = epoch

    def halo(self, layer, h):
        return CodedHalo(self, layer, h)

    def start(self, layer: int, direction: str, rows: torch.Tensor) -> Any:
        """Start sending `rows` [k, F]: "forward", own rows that others read; "backward", the gradients of
        halo rows, to the owners. Returns what `finish` takes."""
        raise NotImplementedError

    def finish(self, under_way: Any, count: int, width: int, dtype: torch.dtype) -> torch.Tensor:
        """The rows [count, width] that stand for what has arrived."""
        raise NotImplementedError


class CodedHalo(Crossing):
    """An exchange of a layer's rows under way in both passes, in the form that the coder gives them."""

    def __init__(self, coder: CodedSystem[Any], layer: int, h: torch.Tensor):
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


def noise(system: System, epoch: int, layer: int, direction: str, rows: torch.Tensor) -> torch.Tensor:
    """u [k, F] in [0, 1) for the rows that this worker sends, drawn by the seed, epoch, layer, direction and
    worker alone, so that a run repeats and resumes."""
    rank, shape = system.comm.rank, rows.shape
    return draws(system.seed, epoch, layer, direction, rank, shape, rows.dtype, system.device)


def coded(rows: torch.Tensor, bits: int, u: torch.Tensor, recorder: Recorder) -> torch.Tensor:
    """The wire form [k, bytes] of rows [k, F] in codes of `bits` bits, rounded by u [k, F]. The work is
    counted."""
    wire = quantise(rows, bits, u)
    recorder.work(code(len(rows), rows.shape[1], rows.nbytes + u.nbytes, wire.nbytes))
    return wire


def decoded(
    wire: torch.Tensor, width: int, bits: int, dtype: torch.dtype, recorder: Recorder
) -> torch.Tensor:
    """The rows [k, width] that a wire form stands for. The work is counted."""
    rows = dequantise(wire, width, bits, dtype)
    recorder.work(code(len(rows), width, wire.nbytes, rows.nbytes))
    return rows
