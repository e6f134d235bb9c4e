"""EC-Graph: rows that are predicted or coded, and gradients whose error is sent with the next.

Song, Gu, Qi, Wang, Yu, "EC-Graph: A Distributed Graph Neural Network System with Error-Compensated
Compression", ICDE 2022.

Forward (ReqEC-FP). Every `period`-th epoch a row h is sent exactly, and with it the rate d at which it has
changed. In the epochs between, both ends predict it, and the owner codes it and picks what is nearest to it:

    (t + 1) mod T = 0   h;   d = (h - h_last) / (T - 1),  h_last = h
    else                p = h_last + r d,  r = (t + 1) mod T;   c the middle of h's bucket, of 2^B between the
                        least and the largest value of the message;   of c, p, (c + p) / 2 the least |. - h|_1

A row says in 2 bits which it is, and sends no values where it is p. The Bit-Tuner doubles B, up to 8, where
fewer than half of a message's rows sent values, and halves it, down to 1, where more than 0.8 did.
Backward (ResEC-BP). x = g + e is sent as C(x), the middle of its bucket; e = x - C(x).

Notation: T `period`, B `bits`, B' `backward_bits`; t the epoch; g the gradient of a row of F columns; e is 0
at first; k the rows of a message, from one worker to another in one layer, q those of them that send values.

Bytes of a message, 4-byte floats: forward ceil(q F B / 8) + ceil(2 k / 8) + 8, in an exact epoch 8 k F
(`rate=computed` and epoch 0: 4 k F); backward ceil(k F B' / 8) + 8. In every layer l >= 1, and forward for
l = 0 under `features=refetch`.

Decisions
- epoch 0 is exact, and sends no rate: d is 0 until the next exact epoch.
- h_last, d and e are kept for each pair of workers, and so is B. The public code keys e by layer and vertex,
  so that readers of one row overwrite each other's.
- rows are sent before dropout, which the receiver draws: dropped rows could not be predicted.
- equals are resolved in the order c, p, (c + p) / 2. A message of equal values has c = h.
- `rate=sent` is what the public code does, though both ends can compute d.
- period=1: every row is exact, and no rate is needed. backward_bits=32: gradients as they are.
- layer 0: features once (fetched exactly, once) | refetch (as other layers).
Departures: the equations are those of the public code. The paper's text, and so its numbers, were not at
hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import ROUNDS, number, one_of
from harness.base.errors import choice
from harness.base.hollow import dry, either
from harness.comm.work import code, stream
from harness.core.quantise import code_bytes, packed, unpacked
from harness.core.system import System, check_features
from harness.core.traits import Refuses
from systems.parts.coded import CodedHalo

AS_THEY_ARE, MOST_BITS = 32, 8
CODED, PREDICTED, BETWEEN = range(3)  # how a row is sent


@dataclass
class Ecgraph(System):
    """period         every so many epochs rows are sent exactly; 1: in all
    bits           per value of a coded row, at first: 1, 2, 4 or 8
    backward_bits  per value of a gradient: 1, 2, 4 or 8; 32: as it is
    tune           whether the bits of rows follow from how many of them send values
    rate           "sent": rows' rates of change travel with them; "computed": at both ends
    features       "once": layer 0's halo rows are fetched once, exactly; "refetch": in every epoch
    """

    period: int = number(10, 1, ROUNDS)
    bits: int = one_of(2, 1, 2, 4, MOST_BITS)
    backward_bits: int = one_of(4, 1, 2, 4, MOST_BITS, AS_THEY_ARE)
    tune: bool = True
    rate: str = "sent"
    features: str = "once"

    exact: ClassVar = {"period": 1, "backward_bits": AS_THEY_ARE}
    refuses: ClassVar = Refuses(wire="codes what it sends", needed_rows="")

    def __post_init__(self):
        choice("rate", self.rate, ("sent", "computed"))
        check_features(self.features)

    def setup(self, context):
        super().setup(context)
        self.epoch = 0
        # State, by layer: h_last and d [k, F] of rows sent and of rows read; e [m, F]; and B by worker, of
        # what is sent and of what is read.
        self.sent: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.read: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.error: dict[int, torch.Tensor] = {}
        self.tuned: dict[int, tuple[list[int], list[int]]] = {}

    def before_epoch(self, epoch):
        self.epoch = epoch

    def halo(self, layer, h):
        return CodedHalo(self, layer, h)

    def start(self, layer, direction, rows):
        plan = self.plans[layer]
        if direction == "backward":
            ways = plan.receive_counts, plan.send_counts
            send = self.start_plain if self.backward_bits == AS_THEY_ARE else self.start_gradients
        else:
            ways = plan.send_counts, plan.receive_counts
            exact = self.epoch == 0 or (self.epoch + 1) % self.period == 0
            send = self.start_plain if self.period == 1 else self.start_exact if exact else self.start_rows
        return send(layer, direction, rows, *ways)

    def finish(self, under_way, count, width, dtype):
        flight, arrived, _, made = under_way
        flight.wait()
        with self.recorder.inside("rest", "unpack"):
            return made(arrived)

    def start_plain(self, layer, direction, rows, send, receive):
        """Rows, or gradients, as they are."""
        flight, arrived = self.comm.start_exchange(rows, send, receive, layer, direction, "halo")
        return flight, arrived, rows, lambda came: came

    def start_exact(self, layer, direction, rows, send, receive):
        """Rows as they are, which predictions of the next epochs start from."""
        both, width = self.rate == "sent" and self.epoch > 0, rows.shape[1]
        self.sent[layer] = rows, self.change(rows, self.sent.get(layer))
        wire = torch.cat(self.sent[layer], 1) if both else rows
        flight, arrived = self.comm.start_exchange(wire, send, receive, layer, direction, "halo")

        def made(came: torch.Tensor) -> torch.Tensor:
            came = came.clone()  # it is kept
            h = came[:, :width].contiguous()
            rate = came[:, width:].contiguous() if both else self.change(h, self.read.get(layer))
            self.read[layer] = h, rate
            return h

        return flight, arrived, wire, made

    def change(self, h: torch.Tensor, before: tuple[torch.Tensor, torch.Tensor] | None) -> torch.Tensor:
        """d of rows h [k, F]."""
        self.recorder.work(stream(len(h), h.shape[1], h.element_size(), 2, 1))
        return torch.zeros_like(h) if before is None else (h - before[0]) / (self.period - 1)

    def predicted(self, last: torch.Tensor, rate: torch.Tensor) -> torch.Tensor:
        """p [k, F] of this epoch."""
        self.recorder.work(stream(len(last), last.shape[1], last.element_size(), 2, 1))
        return ((self.epoch + 1) % self.period * rate).add_(last)

    def start_rows(self, layer, direction, rows, send, receive):
        """What says how each row is sent; and, once it is there, the values of rows that send some."""
        width, size, dtype = rows.shape[1], rows.element_size(), rows.dtype
        sending, reading = self.tuned.setdefault(layer, ([self.bits] * len(send), [self.bits] * len(send)))
        heads, values, counts = [], [], []
        guesses = self.predicted(*self.sent[layer]).split(send)
        for peer, (x, guess) in enumerate(zip(rows.split(send), guesses)):
            codes, ends = coded(x, sending[peer])
            choices = nearest(x, guess, middles(codes, ends, sending[peer]))
            some = codes[choices != PREDICTED]
            heads.append(message(choices.to(dtype), 2, ends))
            values.append(packed(some.reshape(1, -1), sending[peer])[0])
            counts.append(len(some))
            sending[peer] = self.next_bits(sending[peer], len(some), len(x))
        self.recorder.work(stream(len(rows), width, size, 9, 3))  # codes, their middles, and three errors
        self.recorder.work(code(sum(counts), width, sum(counts) * width * size, sum(map(len, values))))
        self.recorder.metric("rows_with_values", sum(counts), layer)
        sizes = [message_bytes(k, 2, size) for k in receive]
        flight, came, _ = self.post(heads, sizes, [0] * len(send), layer, direction, slot=1)
        flight.wait()
        told = [parted(part, k, 2, dtype) for part, k in zip(came[:, 0].split(sizes), receive)]
        if dry():
            told = [(unknown(k), ends) for k, (_, ends) in zip(receive, told)]
        where = [(choices != PREDICTED).nonzero()[:, 0] for choices, _ in told]
        used = list(reading)
        sizes = [code_bytes(len(at) * width, bits) for at, bits in zip(where, used)]
        for peer, k in enumerate(receive):
            reading[peer] = self.next_bits(used[peer], len(where[peer]), k)

        def made(came: torch.Tensor) -> torch.Tensor:
            h = self.predicted(*self.read[layer])
            parts = zip(h.split(receive), came[:, 0].split(sizes), told, where, used)
            for into, part, (choices, ends), at, bits in parts:
                c = middles(unpacked(part[None], len(at) * width, bits, dtype).view(-1, width), ends, bits)
                into[at] = torch.where((choices[at] == BETWEEN)[:, None], (c + into[at]) / 2, c)
                self.recorder.work(code(len(at), width, part.nbytes, c.nbytes))
            return h

        with self.comm.for_once():  # of another size in the next epoch
            return *self.post(values, sizes, counts, layer, direction), made

    def next_bits(self, bits: int, valued: int, rows: int) -> int:
        """B after a message of `rows` rows of which `valued` sent values; in a dry run the most."""
        if not self.tune or not rows:
            return bits
        if dry() or 2 * valued < rows:
            return min(2 * bits, MOST_BITS)
        return max(bits // 2, 1) if 5 * valued > 4 * rows else bits

    def start_gradients(self, layer, direction, g, send, receive):
        """Gradients with what was left out of those before them."""
        bits, size, width, dtype = self.backward_bits, g.element_size(), g.shape[1], g.dtype
        x = g + self.error[layer] if layer in self.error else g
        wires, read = [], []
        for part in x.split(send):
            codes, ends = coded(part, bits)
            wires.append(message(codes, bits, ends))
            read.append(middles(codes, ends, bits))
        self.error[layer] = x - torch.cat(read)
        self.recorder.work(stream(len(x), width, size, 5, 2))  # codes, their middles and two sums
        self.recorder.work(code(len(x), width, x.nbytes, sum(map(len, wires))))
        sizes = [message_bytes(k * width, bits, size) for k in receive]

        def made(came: torch.Tensor) -> torch.Tensor:
            parts = zip(came[:, 0].split(sizes), receive)
            told = [parted(part, k * width, bits, dtype) for part, k in parts]
            rows = torch.cat([middles(codes.view(-1, width), ends, bits) for codes, ends in told])
            self.recorder.work(code(len(rows), width, came.nbytes, rows.nbytes))
            return rows

        return *self.post(wires, sizes, send, layer, direction), made

    def post(self, parts, sizes, counts, layer, direction, slot=0):
        """Send bytes to each worker, which hold `counts` rows, and receive `sizes` bytes."""
        wire = torch.cat(parts)[:, None]
        lengths = [len(part) for part in parts]
        under_way = self.comm.start_exchange(
            wire, lengths, sizes, layer, direction, "halo", slot, counted=counts
        )
        return *under_way, wire

    def state_dict(self):
        return {"sent": self.sent, "read": self.read, "error": self.error, "tuned": self.tuned}

    def load_state_dict(self, state):
        self.sent, self.read = state["sent"], state["read"]
        self.error, self.tuned = state["error"], state["tuned"]


def coded(x: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The buckets [k, F] of a message's values, of 2^B between its ends [2]."""
    if not x.numel():
        return x, x.new_zeros(2)
    ends = torch.stack([x.min(), x.max()])
    step = (ends[1] - ends[0]) / 2**bits
    step = torch.where(step > 0, step, 1)
    return (x - ends[0]).div_(step).floor_().clamp_max_(2**bits - 1), ends


def middles(codes: torch.Tensor, ends: torch.Tensor, bits: int) -> torch.Tensor:
    """The middles of such buckets."""
    return (codes + 0.5).mul_((ends[1] - ends[0]) / 2**bits).add_(ends[0])


def nearest(x: torch.Tensor, p: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Which of c, p and (c + p) / 2 is nearest to each row of x [k, F]: [k] int64."""
    if dry():
        return unknown(len(x))
    of_c, of_p = c - x, p - x
    between = (of_c + of_p).abs_().sum(1) / 2
    errors = torch.stack([of_c.abs_().sum(1), of_p.abs_().sum(1), between])
    return errors.min(0).indices  # the first of equals


def unknown(rows: int) -> torch.Tensor:
    """The same of a dry run, in which all rows send values, or none does."""
    return torch.full((rows,), CODED if either() else PREDICTED)


def message(codes: torch.Tensor, bits: int, ends: torch.Tensor) -> torch.Tensor:
    """The bytes of all these codes, one after the other, and of their ends; none without codes."""
    wire = packed(codes.reshape(1, -1), bits)[0]
    return torch.cat([wire, ends.view(torch.uint8)]) if codes.numel() else wire


def message_bytes(count: int, bits: int, size: int) -> int:
    """Bytes of such a message of `count` codes; `size` of a value."""
    return code_bytes(count, bits) + 2 * size if count else 0


def parted(
    wire: torch.Tensor, count: int, bits: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes [count] and ends [2] of a message."""
    if not count:
        return torch.zeros(0, dtype=dtype, device=wire.device), torch.zeros(
            2, dtype=dtype, device=wire.device
        )
    size = code_bytes(count, bits)
    return unpacked(wire[None, :size], count, bits, dtype)[0], wire[size:].clone().view(dtype)
