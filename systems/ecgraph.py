"""EC-Graph: rows that are predicted or coded, and gradients whose error is sent with the next.

Song, Gu, Qi, Wang, Yu, "EC-Graph: A Distributed Graph Neural Network System with Error-Compensated
Compression", ICDE 2022.

Forward (ReqEC-FP). Every `period`-th epoch a row h is sent exactly, and with it the rate d at which it has
changed. In the epochs between, both ends predict it, and the owner codes it and picks what is nearest to it:

    (t + 1) mod T = 0   h;   d = (h - h_last) / (T - 1),  h_last = h
    else                p = h_last + r d,  r = (t + 1) mod T;   c the middle of h's bucket, of 2^B between the
                        least and the largest value of the message;   h is replaced by the one of c, p and
                        (c + p) / 2 that is nearest to it, by |. - h|_1

Each row says in 2 bits which one it is, and sends no values where it is p. The Bit-Tuner doubles B, up to 8,
where fewer than half of a message's rows sent values, and halves it, down to 1, where more than 0.8 did.
Backward (ResEC-BP). A gradient g is sent with the error e of the one before: x = g + e is sent as C(x), the
middle of its bucket, and e = x - C(x).

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
- ties are resolved in the order c, p, (c + p) / 2. A message of equal values has c = h.
- `rate=sent` is what the public code does, though both ends can compute d.
- period=1: every row is exact, at compensate=false too, and no rate is needed. backward_bits=32: gradients
  as they are.
- compensate=false leaves out what makes up for errors: in every epoch, the first too, a row is sent as its
  code c in B bits, and a gradient as C(g); k F values of a message in ceil(k F B / 8) + 8 bytes.
- layer 0: features once (fetched exactly, once) | refetch (as other layers).
Departures: the equations and the bits are those of the public code. The paper's text, and so its numbers,
were not at hand.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from harness.base.bounds import ROUNDS, number, one_of, word
from harness.base.hollow import dry, either, hollow
from harness.comm.work import code, stream
from harness.core.kernels import quantise_loops as loops
from harness.core.quantise import code_bytes, packed, unpacked
from harness.core.system import Refuses, Traits, without_effect
from systems.parts.coded import CodedSystem

AS_THEY_ARE, MOST_BITS = 32, 8
CODED, PREDICTED, BETWEEN = range(3)  # how a row is sent


@dataclass
class Ecgraph(CodedSystem):
    """period         every so many epochs rows are sent exactly; 1: in all
    bits           bits per value of a coded row, at first: 1, 2, 4 or 8
    backward_bits  bits per value of a gradient: 1, 2, 4 or 8; 32: not coded
    tune           true: the bits of rows follow from how many rows send values; false: `bits` throughout
    compensate     false: no row is predicted or sent exactly (but all at period=1), and no error is added to
                   the next gradient
    rate           "sent": rows' rates of change travel with them; "computed": at both ends
    features       "once": layer 0's halo rows are fetched once, exactly; "refetch": in every epoch
    """

    period: int = number(10, 1, ROUNDS)
    bits: int = one_of(2, 1, 2, 4, MOST_BITS)
    backward_bits: int = one_of(4, 1, 2, 4, MOST_BITS, AS_THEY_ARE)
    tune: bool = True
    compensate: bool = True
    rate: str = word("sent", "computed")
    features: str = word("once", "refetch")

    exact: ClassVar = {"period": 1, "backward_bits": AS_THEY_ARE}
    refuses: ClassVar = Refuses(wire="has a code of its own for what it sends", needed_rows="")

    def traits(self):
        if self.period == 1:
            idle, why = ["bits", "tune", "rate"], "at system.period=1 every row is sent as it is"
            if self.backward_bits == AS_THEY_ARE:
                idle.append("compensate")
        else:
            idle = [] if self.compensate else ["period", "tune", "rate"]
            why = "at system.compensate=false every row is sent as its code"
        return Traits(ineffective=without_effect(self, idle, why))

    def setup(self, context):
        super().setup(context)
        # State, by layer: h_last and d [k, F], of the rows sent and of the rows read; e [m, F]; and B by
        # worker, of what is sent to it and of what is read from it.
        self.sent: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.read: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.error: dict[int, torch.Tensor] = {}
        self.tuned: dict[int, tuple[list[int], list[int]]] = {}
        compile_loops(torch.zeros(1, 1, device=self.device), self.bits)

    def start(self, layer, direction, rows):
        if direction == "backward":
            send = self.start_plain if self.backward_bits == AS_THEY_ARE else self.start_codes
        elif self.period == 1:
            send = self.start_plain
        elif not self.compensate:
            send = self.start_codes
        else:
            exact = self.epoch == 0 or (self.epoch + 1) % self.period == 0
            send = self.start_exact if exact else self.start_rows
        return send(layer, direction, rows, *self.plans[layer].counts(direction))

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
        """Send rows as they are, and their rates; the predictions of the next epochs start from them."""
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

    def prediction(self, last: torch.Tensor, rate: torch.Tensor) -> "Prediction":
        """Of rows [k, F] in this epoch."""
        self.recorder.work(stream(len(last), last.shape[1], last.element_size(), 2, 1))
        return Prediction(last, rate, (self.epoch + 1) % self.period)

    def start_rows(self, layer, direction, rows, send, receive):
        """Send two messages to each worker: first how each row is sent, and when the others' have come, the
        values of the rows that send some."""
        width, size, dtype = rows.shape[1], rows.element_size(), rows.dtype
        sending, reading = self.tuned.setdefault(layer, ([self.bits] * len(send), [self.bits] * len(send)))
        heads, values, counts = [], [], []
        # Owners predict as their readers do, and choose for each row what stands for it.
        predictions = self.prediction(*self.sent[layer]).split(send)
        for peer, (x, prediction) in enumerate(zip(rows.split(send), predictions)):
            choices, ends, some, count = chosen(x, prediction, sending[peer])
            heads.append(message(choices, 2, ends))
            values.append(some)
            counts.append(count)
            sending[peer] = self.next_bits(sending[peer], count, len(x))
        self.recorder.work(stream(len(rows), width, size, 9, 3))  # codes, their middles, and three errors
        self.recorder.work(code(sum(counts), width, sum(counts) * width * size, sum(map(len, values))))
        self.recorder.metric("rows_with_values", sum(counts), layer)
        # The choices travel first: the receiver needs them to know how many bytes of values will come.
        sizes = [message_bytes(k, 2, size) for k in receive]
        flight, came, _ = self.post(heads, sizes, [0] * len(send), layer, direction, slot=1)
        flight.wait()
        told = [parted(part, k, 2, dtype) for part, k in zip(came[:, 0].split(sizes), receive)]
        if dry():
            told = [(unknown(k), ends) for k, (_, ends) in zip(receive, told)]
        valued = [int((choices != PREDICTED).sum()) for choices, _ in told]
        used = list(reading)
        sizes = [code_bytes(count * width, bits) for count, bits in zip(valued, used)]
        for peer, k in enumerate(receive):
            reading[peer] = self.next_bits(used[peer], valued[peer], k)

        # The receiver predicts rows too, and takes what their values say where some have come.
        def made(came: torch.Tensor) -> torch.Tensor:
            predicted = self.prediction(*self.read[layer])
            h = torch.empty_like(predicted.last)
            by_peer = h.split(receive), predicted.split(receive), came[:, 0].split(sizes)
            for into, prediction, part, (choices, ends), count, bits in zip(*by_peer, told, valued, used):
                fill(into, prediction, part, choices, ends, bits)
                self.recorder.work(code(count, width, part.nbytes, count * width * size))
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

    def start_codes(self, layer, direction, g, send, receive):
        """Send gradients with the error e of those before them, and keep the error of what is sent; where
        nothing is compensated, rows or gradients as their codes."""
        bits = self.backward_bits if direction == "backward" else self.bits
        size, width, dtype = g.element_size(), g.shape[1], g.dtype
        x = self.error[layer].add_(g) if layer in self.error else g.clone()
        if self.compensate:
            self.error[layer] = x
        wires = [compensated(part, bits) for part in x.split(send)]
        self.recorder.work(stream(len(x), width, size, 5, 2))  # codes, their middles and two sums
        self.recorder.work(code(len(x), width, x.nbytes, sum(map(len, wires))))
        sizes = [message_bytes(k * width, bits, size) for k in receive]

        def made(came: torch.Tensor) -> torch.Tensor:
            rows = came.new_empty(sum(receive), width, dtype=dtype)
            for into, part in zip(rows.split(receive), came[:, 0].split(sizes)):
                read_middles(into, part, bits)
            self.recorder.work(code(len(rows), width, came.nbytes, rows.nbytes))
            return rows

        return *self.post(wires, sizes, send, layer, direction), made

    def post(self, parts, sizes, counts, layer, direction, slot=0):
        """Start sending `parts`, the bytes for each worker, which count as `counts` rows, and receiving
        `sizes` bytes from each."""
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


@dataclass(frozen=True)
class Prediction:
    """p = h_last + r d of rows [k, F]. Compiled loops make each value where they use it: p has no memory.

    last, rate   h_last and d [k, F]
    ahead        r, the epochs since h_last was sent
    """

    last: torch.Tensor
    rate: torch.Tensor
    ahead: int

    def rows(self) -> torch.Tensor:
        """p [k, F]."""
        return (self.ahead * self.rate).add_(self.last)

    def split(self, counts: list[int]) -> "list[Prediction]":
        """Of so many rows each."""
        parts = zip(self.last.split(counts), self.rate.split(counts))
        return [Prediction(last, rate, self.ahead) for last, rate in parts]

    @property
    def in_loops(self) -> tuple[np.ndarray, np.ndarray, int]:
        return self.last.numpy(), self.rate.numpy(), self.ahead


def compiled(x: torch.Tensor) -> bool:
    """Whether compiled loops take x; the torch operations beside them are for GPUs."""
    return x.device.type == "cpu" and not hollow(x)


def ends_of(x: torch.Tensor) -> torch.Tensor:
    """The least and the largest value [2] of a message; 0 of one without values."""
    return torch.stack(torch.aminmax(x)) if x.numel() else x.new_zeros(2)


def chosen(x: torch.Tensor, p: Prediction, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """How each row of a message x [k, F] is sent [k], the message's ends, the bytes of the values that are
    sent, and of how many rows they are."""
    if compiled(x):
        ends, choices = ends_of(x), x.new_empty(len(x))
        wire = torch.empty(code_bytes(x.numel(), bits), dtype=torch.uint8)
        given = ends.numpy(), bits, choices.numpy(), wire.numpy()
        count = loops.nearest(x.numpy(), *p.in_loops, *given)
        return choices, ends, wire[: code_bytes(count * x.shape[1], bits)], count
    codes, ends = coded(x, bits)
    choices = nearest(x, p.rows(), middles(codes, ends, bits))
    some = codes[choices != PREDICTED]
    return choices.to(x.dtype), ends, packed(some.reshape(1, -1), bits)[0], len(some)


def fill(
    h: torch.Tensor, p: Prediction, wire: torch.Tensor, choices: torch.Tensor, ends: torch.Tensor, bits: int
) -> None:
    """h [k, F] <- the rows that `chosen` made `wire` [bytes] of."""
    if compiled(h):
        loops.restore_nearest(wire.numpy(), choices.numpy(), ends.numpy(), bits, *p.in_loops, h.numpy())
        return
    at, width = (choices != PREDICTED).nonzero()[:, 0], h.shape[1]
    c = middles(unpacked(wire[None], len(at) * width, bits, h.dtype).view(-1, width), ends, bits)
    h.copy_(p.rows())
    h[at] = torch.where((choices[at] == BETWEEN)[:, None], (c + h[at]) / 2, c)


def compile_loops(one: torch.Tensor, bits: int) -> None:
    """Have the loops compiled, on a message of one row [1, F]: epoch 0, which compiles all others, is exact
    and calls none of these."""
    if compiled(one):
        still = Prediction(one, one, 0)
        choices, ends, wire, _ = chosen(one, still, bits)
        choices, ends = parted(message(choices, 2, ends), len(one), 2, one.dtype)
        fill(one.clone(), still, wire, choices, ends, bits)


def compensated(x: torch.Tensor, bits: int) -> torch.Tensor:
    """The message [bytes] of x [k, F]; x <- x - C(x), what the message leaves out."""
    if compiled(x):
        ends, wire = ends_of(x), torch.empty(message_bytes(x.numel(), bits, x.itemsize), dtype=torch.uint8)
        loops.compensate(x.numpy(), ends.numpy(), bits, wire.numpy())
        if len(wire):
            wire[-2 * x.itemsize :] = ends.view(torch.uint8)
        return wire
    codes, ends = coded(x, bits)
    x -= middles(codes, ends, bits)
    return message(codes, bits, ends)


def read_middles(rows: torch.Tensor, wire: torch.Tensor, bits: int) -> None:
    """rows [k, F] <- the middles of buckets that `compensated` made `wire` [bytes] of."""
    if compiled(rows) and len(wire):
        ends = wire[-2 * rows.itemsize :].clone().view(rows.dtype)
        no_prediction = Prediction(rows, rows, 0)
        fill(rows, no_prediction, wire, rows.new_zeros(len(rows)), ends, bits)
    elif len(rows):
        codes, ends = parted(wire, rows.numel(), bits, rows.dtype)
        rows.copy_(middles(codes.view_as(rows), ends, bits))


def coded(x: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The buckets [k, F] of a message's values, of 2^B between its ends [2]."""
    ends = ends_of(x)
    step = (ends[1] - ends[0]) / 2**bits
    step = torch.where(step > 0, step, 1)
    return (x - ends[0]).div_(step).floor_().clamp_max_(2**bits - 1), ends


def middles(codes: torch.Tensor, ends: torch.Tensor, bits: int) -> torch.Tensor:
    """The middles of the buckets `codes` [k, F] that `coded` gave."""
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
    """What `nearest` gives in a dry run, in which all rows send values, or none does."""
    return torch.full((rows,), CODED if either() else PREDICTED)


def message(codes: torch.Tensor, bits: int, ends: torch.Tensor) -> torch.Tensor:
    """A message: the bytes of all codes, one after the other, then of their ends [2]; empty without codes."""
    wire = packed(codes.reshape(1, -1), bits)[0]
    return torch.cat([wire, ends.view(torch.uint8)]) if codes.numel() else wire


def message_bytes(count: int, bits: int, size: int) -> int:
    """Bytes of a `message` of `count` codes, whose ends take `size` bytes each."""
    return code_bytes(count, bits) + 2 * size if count else 0


def parted(
    wire: torch.Tensor, count: int, bits: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """The codes [count] and ends [2] of a `message`."""
    if not count:
        nothing = torch.zeros(2, dtype=dtype, device=wire.device)
        return nothing[:0], nothing
    size = code_bytes(count, bits)
    return unpacked(wire[None, :size], count, bits, dtype)[0], wire[size:].clone().view(dtype)
