"""SuperGNN: the fewest rows and partial sums that serve all cut edges, in few bits.

Zhuang, Zhang, Wu, Chen, Huang, Liu, Yokota, Dryden, Endo, Matsuoka, Wahib, "Scaling Large-scale GNN Training
to Thousands of Processors on CPU-based Supercomputers" (SuperGCN / SuperGNN), ICS 2025, arXiv 2411.16025. A
cut edge u -> v is served by u's row, or by v's partial sum over the edges from one sender; which of the two
follows from a least vertex cover of the cut edges between two workers. Sender j multiplies its rows by G_ij,
which gives its messages to i, and i multiplies these by S_ij; A_ih = sum_j S_ij G_ij:

    forward    Z_i = (A_ii H_i + sum_j S_ij Q(G_ij H_j)) W
    backward   dH_j = A_jj^T delta_j + sum_i G_ij^T Q(S_ij^T delta_i),     delta of A H

Q rounds each value of a message x to the nearest of 2^B evenly spaced values between the least and the
largest value of that message:

    z = min x,   s = (max x - min x) / (2^B - 1), 1 where that is 0;   both as bfloat16
    q = (x - z) / s, halves to the even code, in 0..2^B - 1;           x' = z + s q

so x' is biased, as deterministic rounding is. At 16 bits Q rounds each value to bfloat16.

Notation: k_ij messages from j to i in a layer of F columns, each a row or a partial sum.

Bytes per epoch over all workers, 4-byte floats: 2 sum_ij k_ij (ceil(F bits / 8) + 4) in each layer l >= 1 at
2, 4 and 8 bits, 4 F k_ij for each pair at 16 and 8 F k_ij at 32; half of that for l = 0 under
`features=refetch`, all of it under `labels=masked`.

Decisions
- the messages are those of `lean` with `rows=all` and `narrow=false`; `rows=needed` can be asked for.
- the constants are rounded before codes are taken of them, so that both ends compute with the same ones.
- layer 0: features once (fetched exactly, once) | refetch (messages in every epoch).
- attention needs rows: with model=gat there are no partial sums, and rows travel before dropout.
- masked label propagation, which its code has, is `labels=masked` (`harness/core/masked_labels.py`): other
  systems can have it too.
Departures: the paper's full text was not at hand. Cover, Q and labels are those of its public code, where the
cover is off by default and here always on, and where bits are 32 by default.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import one_of, word
from harness.comm.work import code
from harness.core.quantise import dequantise_even, quantise_even
from harness.core.system import Refuses
from systems.parts.messages import AS_THEY_ARE, Messages, MessageSystem

HALF = 16


@dataclass
class Supergnn(MessageSystem):
    """bits      bits per value of a message: 2, 4 or 8; 16: bfloat16; 32: not rounded
    features  "once": layer 0's rows are fetched one time, and kept; "refetch": in every epoch
    """

    bits: int = one_of(AS_THEY_ARE, 2, 4, 8, HALF, AS_THEY_ARE)
    features: str = word("once", "refetch")

    exact: ClassVar = {"bits": AS_THEY_ARE}
    refuses: ClassVar = Refuses(needed_rows="", attention="", labels="")

    def coded(self, layer, send, receive):
        return RoundedMessages(self.comm, layer, send, receive, self.bits)


class RoundedMessages(Messages):
    """Messages whose values are rounded to the nearest of 2^bits values, each row by itself; at 16 bits to
    bfloat16."""

    def __init__(self, comm, layer, send, receive, bits: int):
        super().__init__(comm, layer, send, receive)
        self.bits = bits

    def start(self, direction, rows):
        self.width, self.dtype = rows.shape[1], rows.dtype
        with self.recorder.inside("rest", "quantise", self.layer):
            if self.bits == HALF:  # as bytes, which every transport takes
                self.wire = rows.to(torch.bfloat16).view(torch.uint8)
            else:
                self.wire = quantise_even(rows, self.bits)
            super().start(direction, self.wire)  # it stays untouched until it has been sent
            self.recorder.work(code(len(rows), self.width, rows.nbytes, self.wire.nbytes))

    def finish(self, direction):
        wire = super().finish(direction)
        with self.recorder.inside("rest", "unpack", self.layer):
            if self.bits == HALF:
                rows = wire.view(torch.bfloat16).to(self.dtype)
            else:
                rows = dequantise_even(wire, self.width, self.bits, self.dtype)
            self.recorder.work(code(len(rows), self.width, wire.nbytes, rows.nbytes))
            return rows
