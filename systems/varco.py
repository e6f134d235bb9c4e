"""VARCO: a part of the columns of every row, which grows to all of them.

Cervino, Turja, Mostafa, Himayat, Ribeiro, "Distributed Training of Large Graph Neural Networks with Variable
Communication Rates", arXiv 2406.17611, 2024. In epoch t of T, S is the set of columns that are sent, of F:

    r = max(1, c - a (c - 1) t / T),   |S| = ceil(F / r)
    x' = x on S, 0 elsewhere           forward; backward the gradients of x' on S, 0 elsewhere

Notation: c `compression`, a `slope`; M the halo vertices of all workers.

Bytes per epoch over all workers, 4-byte floats: 4 M |S| forward and backward of every layer l >= 1, and
forward of layer 0 under `features=refetch`.

Decisions
- both ends draw S from the seed, the epoch and the layer, so that no index travels; S is the same for all
  rows and for both directions of a layer.
- nothing is rescaled, so x' is x / r in the mean; `rescale=true` multiplies by F / |S|.
- layer 0: features once (fetched exactly, once) | refetch (compressed in every epoch).
Departures: the paper's full text was not at hand. The rule of r, the defaults of c and a, that both ends draw
the same columns, and that gradients follow them, are from memory of it; one S for all rows is ours. Its
public code sends fewer rows in place of fewer columns.
"""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from harness.base.bounds import LAYERS, number, word
from harness.base.splitmix import GOLDEN, mix_int
from harness.comm.work import moved, stream
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.coded import CodedSystem

MASK = 2**64 - 1


@dataclass
class Varco(CodedSystem):
    """compression  in the first epoch, the columns of a row divided by those that are sent; 1: exact
    slope        compression falls to 1 in epoch T / slope of T: above 1 within the run; 0: it stays
    rescale      whether what arrives is multiplied by columns over columns sent
    features     "once": layer 0's halo rows are fetched once, whole; "refetch": compressed in every epoch
    """

    compression: float = number(128.0, 1)
    slope: float = number(5.0, 0, 10**6)
    rescale: bool = False
    features: str = word("once", "refetch")

    exact: ClassVar[dict[str, Any]] = {"compression": 1}
    refuses: ClassVar = Refuses(needed_rows="")

    def traits(self):
        whole = self.compression == 1
        idle, why = ["slope", "rescale"] if whole else [], "at system.compression=1 whole rows are sent"
        return Traits(
            follows_epochs=self.slope > 0 and not whole, ineffective=without_effect(self, idle, why)
        )

    def repeats(self, epochs):
        whole = math.ceil(min(epochs, epochs / self.slope)) if self.traits().follows_epochs else 1
        return max(1, whole), 1

    def setup(self, context):
        super().setup(context)
        self.epochs = context.epochs

    def before_epoch(self, epoch):
        super().before_epoch(epoch)
        self.recorder.metric("compression", self.rate())

    def rate(self) -> float:
        """r of this epoch."""
        c = self.compression
        return max(1.0, c - self.slope * (c - 1) * self.epoch / self.epochs)

    def count(self, width: int) -> int:
        """|S| of `width` columns in this epoch."""
        # A quotient of floats may lie just above the whole number that it stands for.
        return max(1, math.ceil(round(width / self.rate(), 9)))

    def start(self, layer, direction, rows):
        width = rows.shape[1]
        sent = columns(self.seed, self.epoch, layer, width, self.count(width)).to(self.device)
        part = rows.index_select(1, sent) if len(sent) < width else rows
        self.recorder.work(moved(part))
        # A part of the columns has another size in the next epoch, so its memory is not kept; whole rows
        # keep their size.
        with self.comm.for_once() if len(sent) < width else nullcontext():
            send, receive = self.plans[layer].counts(direction)
            flight, arrived = self.comm.start_exchange(part, send, receive, layer, direction, "halo")
        return sent, part, flight, arrived

    def finish(self, under_way, count, width, dtype):
        sent, _, flight, arrived = under_way
        flight.wait()
        if len(sent) == width:
            return arrived
        with self.recorder.inside("rest", "unpack"):
            rows = arrived.new_zeros(count, width)
            rows[:, sent] = arrived * (width / len(sent)) if self.rescale else arrived
            self.recorder.work(moved(arrived), stream(count, width, arrived.element_size(), 0, 1))
            return rows


def columns(seed: int, epoch: int, layer: int, width: int, count: int) -> torch.Tensor:
    """S: `count` of `width` columns [count] int64, ascending; every worker draws the same."""
    key = (seed * 1_000_003 + epoch) * (LAYERS + 1) + layer
    first = mix_int(key & MASK)
    order = sorted(range(width), key=lambda column: mix_int((first + column * GOLDEN) & MASK))
    return torch.tensor(sorted(order[:count]))
