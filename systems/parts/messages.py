"""The exchange over cut edges as two sparse products: G makes what a sender sends, and S is what its receiver
multiplies that with.

With (U, D) a cover of the needed cut edges from worker j to worker i (`systems.parts.cover`), the messages
from j to i are the rows of U and the partial sums of D:

    G_ij [k, own rows of j]     unit rows for U; A_vu over the edges of each sum for D
    S_ij [rows of i, k]         A_vu over the edges that rows of U serve; unit columns for D

and A_ih [..] over all senders is sum_j S_ij G_ij. Both are linear: backward, the receiver of messages sends
S^T delta back, and their sender multiplies that by G^T.
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch

from harness.base.autograd import applied
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.work import code
from harness.core.adjacency import Propagation
from harness.core.attention import AttentionEdges
from harness.core.counting import times
from harness.core.draws import draws
from harness.core.features import precision, rows_times
from harness.core.kernels.spmm import SparseOperator
from harness.core.needed import PerLayer
from harness.core.quantise import Code, ColumnCode, RowCode
from harness.core.system import display_name
from harness.data.partition.shard import Csr, Shard
from systems.parts.coded import CodedSystem
from systems.parts.cover import Cover, least_cover, rows_alone


class MessageAdjacency(Propagation):
    """The operators of one layer: A_ii, S in the place of A_ih, and G.

    send         G [messages sent, own rows], grouped by receiver
    receive      S [rows, messages received], grouped by sender
    counts       messages to and from each worker; received ones are the columns of S
    transformed  whether X W is sent, and A (X W) taken, instead of X and (A X) W
    spared       columns of X W that need not be sent
    """

    fixed = True
    transformed, spared = False, 0

    def __init__(self, of: Propagation, plan: HaloPlan, comm: Comm, cover: bool):
        block = of.halo.block if of.halo is not None else Csr(np.zeros(of.num_rows + 1, np.int32), _NONE, 0)
        weights = of.halo.weights() if of.halo is not None else np.zeros(0)
        # A shard's rows are in the order of the vertices, and a cover is found of rows in halo order.
        rows = np.repeat(np.arange(block.num_rows), np.diff(block.indptr))
        block = block_of(rows, block.indices, weights, (block.num_rows, block.num_columns))
        assert block.values is not None
        # The receiver finds the cover, and tells each sender which rows and which sums to send.
        found = (least_cover if cover else rows_alone)(block, plan.receive_counts)
        receive, received, told = _receiving(block, block.values, found, plan.receive_counts)
        sent, send = _sending(plan, of.num_inner, *tell(comm, *told))
        kernel, device = of.inner.kernel, of.inner.device
        self.receive = SparseOperator(received, kernel=kernel, device=device)
        self.send = SparseOperator(sent, kernel=kernel, device=device)
        super().__init__(of.inner, self.receive)
        self.counts = send, receive
        self.num_halo = 0  # what arrives is multiplied by nothing but S
        self.num_own = of.num_own
        self.passes = of.passes

    @cached_property
    def attention(self) -> AttentionEdges:
        raise NotImplementedError("a message may be a sum over several neighbours")

    def sending(self, of: Propagation, transformed: bool, spared: int) -> MessageAdjacency:
        """The same operators for a layer that sends X W without its last `spared` columns, or sends X."""
        made = copy.copy(self)
        made.transformed, made.spared = transformed, spared
        # Sparse features are never aggregated as they are: where X is sent, it is dense.
        made.features = of.features if transformed else None
        return made

    def transform_first(self, f_in: int, f_out: int, first: bool = False) -> bool:
        return self.transformed


_NONE = np.zeros(0, np.int32)


def _receiving(
    block: Csr, weights: np.ndarray, cover: Cover, counts: list[int]
) -> tuple[list[int], Csr, tuple[list[np.ndarray], list[np.ndarray]]]:
    """How many messages come from each worker, S, and what each sender is told: whole numbers (of rows, of
    sums, each sum's length; then, as places in the sender's part of the halo, the rows and the sums' entries)
    and the weights of the sums' entries."""
    workers = len(counts)
    owners, first = np.repeat(np.arange(workers), counts), np.cumsum([0, *counts])
    rows = np.flatnonzero(cover.rows)
    of_rows, of_sums = owners[rows], cover.owner
    num_rows, num_sums = (np.bincount(each, minlength=workers) for each in (of_rows, of_sums))
    # A sender's messages: its rows in halo order, then its sums in the receiver's order of rows.
    start = np.cumsum(num_rows + num_sums) - (num_rows + num_sums)
    # By halo row, and by sum: its message's place among all that come, which is a column of S.
    place = np.zeros(block.num_columns, np.int64)
    place[rows] = start[of_rows] + np.arange(len(rows)) - (np.cumsum(num_rows) - num_rows)[of_rows]
    by_sum = start[of_sums] + num_rows[of_sums]
    by_sum += np.arange(len(of_sums)) - (np.cumsum(num_sums) - num_sums)[of_sums]
    served = np.flatnonzero(cover.rows[block.indices])
    target = np.searchsorted(block.indptr, served, side="right") - 1
    received = block_of(
        np.concatenate([target, cover.target]),
        np.concatenate([place[block.indices[served]], by_sum]),
        np.concatenate([weights[served], np.ones(len(by_sum))]),
        (block.num_rows, int((num_rows + num_sums).sum())),
    )
    numbers, values = [], []
    lengths = np.diff(cover.starts)
    for j in range(workers):
        mine = of_sums == j
        entries = cover.entries[np.repeat(mine, lengths)]
        local = np.concatenate([rows[of_rows == j], block.indices[entries]]) - first[j]
        numbers.append(np.concatenate([[num_rows[j], num_sums[j]], lengths[mine], local]))
        values.append(weights[entries])
    return (num_rows + num_sums).tolist(), received, (numbers, values)


def tell(
    comm: Comm, numbers: list[np.ndarray], values: list[np.ndarray]
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """`Comm.tell` of whole numbers and of weights."""
    return comm.tell(numbers, torch.int64), comm.tell(values, torch.get_default_dtype())


def _sending(
    plan: HaloPlan, own: int, numbers: list[np.ndarray], values: list[np.ndarray]
) -> tuple[Csr, list[int]]:
    """G, of what `_receiving` told on each worker, and how many of its rows go to each worker."""
    rows, columns, weights = [], [], []
    counts: list[int] = []
    sent = plan.send_rows.cpu().split(plan.send_counts)
    for told, value, mine in zip(numbers, values, sent):
        num_rows, num_sums = told[:2] if len(told) else (0, 0)
        lengths = np.concatenate([np.ones(num_rows, np.int64), told[2 : 2 + num_sums]])
        rows.append(np.repeat(np.arange(len(lengths)) + sum(counts), lengths))
        columns.append(mine.numpy()[told[2 + num_sums :]])
        weights.append(np.concatenate([np.ones(num_rows), value]))
        counts.append(len(lengths))
    shape = sum(counts), own
    return block_of(np.concatenate(rows), np.concatenate(columns), np.concatenate(weights), shape), counts


def block_of(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int]) -> Csr:
    """A block of these entries, ascending in each row, its values in the model's precision."""
    order = np.lexsort((columns, rows))
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=shape[0]))])
    return Csr(
        indptr.astype(np.int32 if len(rows) < 2**31 else np.int64),
        columns[order].astype(np.int32),
        shape[1],
        values[order].astype(precision()),
    )


class Messages:
    """A layer's messages under way, as they are, in one pass after the other: `start`, then `finish`.

    send, receive   how many go to and come from each worker in the forward pass
    epoch           that noise is drawn for: to be set in each
    """

    epoch = 0

    def __init__(self, comm: Comm, layer: int, send: list[int], receive: list[int]):
        self.comm, self.recorder, self.layer = comm, comm.recorder, layer
        self.counts = {"forward": (send, receive), "backward": (receive, send)}

    def start(self, direction: str, rows: torch.Tensor) -> None:
        """Send rows [k, w], grouped by receiver; they stay untouched until `finish`."""
        self.flight, self.received = self.comm.start_exchange(
            rows, *self.counts[direction], self.layer, direction, "halo"
        )

    def finish(self, direction: str) -> torch.Tensor:
        """What came, [k, w], grouped by sender; to be read before the next exchange."""
        self.flight.wait()
        return self.received


class CodedMessages(Messages):
    """Messages at `bits` bits per value, rounded stochastically, with one scale of `scale`: for each "column"
    of what goes to one worker, or for each "row" (`harness.core.quantise`).

    Bytes of k messages of width w to one worker: w (ceil(k bits / 8) + 2), or k (ceil(w bits / 8) + 2).
    """

    CODES: ClassVar[dict[str, type[Code]]] = {"column": ColumnCode, "row": RowCode}

    def __init__(
        self,
        comm: Comm,
        layer: int,
        send: list[int],
        receive: list[int],
        bits: int,
        seed: int,
        scale: str = "column",
    ):
        super().__init__(comm, layer, send, receive)
        self.bits, self.seed, self._code_of = bits, seed, self.CODES[scale]
        self._codes: dict[tuple[str, int], tuple[Code, Code]] = {}

    def start(self, direction: str, rows: torch.Tensor) -> None:
        count, width = rows.shape
        send, self.come = self._code(direction, width)
        self.dtype = rows.dtype
        with self.recorder.inside("rest", "quantise", self.layer):
            key = self.seed, self.epoch, self.layer, direction, self.comm.rank
            noise = draws(*key, (count * width,), rows.dtype, rows.device)
            wire = send.quantise(rows, noise)
            self.flight, self.received = self.comm.start_exchange(
                wire[:, None], send.sizes, self.come.sizes, self.layer, direction, "halo", counted=send.counts
            )
            self.wire = wire  # stays untouched until it has been sent
            self.recorder.work(code(count, width, rows.nbytes + noise.nbytes, wire.nbytes))

    def finish(self, direction: str) -> torch.Tensor:
        self.flight.wait()
        with self.recorder.inside("rest", "unpack", self.layer):
            wire = self.received[:, 0]
            rows = self.come.dequantise(wire, self.dtype)
            self.recorder.work(code(len(rows), self.come.width, wire.nbytes, rows.nbytes))
            return rows

    def _code(self, direction: str, width: int) -> tuple[Code, Code]:
        """The code of what is sent and that of what comes, made once per direction and width."""
        if (direction, width) not in self._codes:
            send, receive = (self._code_of(counts, width, self.bits) for counts in self.counts[direction])
            self._codes[direction, width] = send, receive
        return self._codes[direction, width]


class _Served(torch.autograd.Function):
    """Both products and the exchange as one node of the autograd graph: where few rows are sent, a node for
    each would take longer than the work."""

    @staticmethod
    def forward(ctx: Any, y: torch.Tensor, adjacency: MessageAdjacency, messages: Messages) -> torch.Tensor:
        ctx.adjacency, ctx.messages = adjacency, messages
        ctx.due = messages.recorder.due(ctx.needs_input_grad[0])
        sent = adjacency.send.forward(y)
        if adjacency.spared:  # each row is shifted so that its last column is 0, and need not be sent
            sent = sent[:, :-1] - sent[:, -1:]
        messages.recorder.metric("messages", len(sent), messages.layer)
        messages.start("forward", sent)
        z = adjacency.inner.forward(y)
        received = messages.finish("forward")
        if adjacency.spared:
            received = torch.nn.functional.pad(received, (0, 1))
        return adjacency.receive.forward(received, out=z, accumulate=True)

    @staticmethod
    def backward(ctx: Any, delta: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        adjacency: MessageAdjacency = ctx.adjacency
        messages: Messages = ctx.messages
        back = adjacency.receive.adjoint(delta)
        messages.start("backward", back[:, :-1].contiguous() if adjacency.spared else back)
        g = adjacency.inner.adjoint(delta)
        sent = messages.finish("backward")
        if adjacency.spared:  # a row of these gradients adds up to 0, which gives its last column
            sent = torch.cat([sent, -sent.sum(1, keepdim=True)], 1)
        adjacency.send.adjoint(sent, out=g, accumulate=True)
        messages.recorder.work(*ctx.due)
        return g, None, None


def served(y: torch.Tensor, adjacency: MessageAdjacency, messages: Messages) -> torch.Tensor:
    """A_ii Y + sum_j S_ij M_ij of the own rows y, where M_ij are the messages that come; differentiable in y.

    The last `adjacency.spared` columns of y do not travel.
    """
    return applied(_Served, y, adjacency, messages)


AS_THEY_ARE = 32


class MessageSystem(CodedSystem[PerLayer]):
    """A system whose hidden rows travel as messages, and under `features=refetch` its features.

    messages   "cover": the fewest rows and partial sums; "rows": rows alone
    narrow     whether H W travels where it is narrower than H, and in the last layer C - 1 of C columns
    bits       bits per value of a message; 32: not coded
    """

    messages: str = "cover"
    narrow: bool = False
    bits: int = AS_THEY_ARE

    spares = True  # whether the model lets a column of logits be left out; from `setup` on, what it says

    def coded(self, layer: int, send: list[int], receive: list[int]) -> Messages:
        """What exchanges a layer's messages in a coded form: `send` and `receive` [P] of them to and from
        each worker."""
        raise NotImplementedError

    def supports(self, run):
        if run.wire != "float32" and self.bits != AS_THEY_ARE:
            name = display_name(self)
            return (
                f"wire={run.wire} cannot be: {name} codes what it sends; give wire=float32 or system.bits=32"
            )
        return super().supports(run)

    def setup(self, context):
        super().setup(context)
        self.spares = context.additive
        self.under_way: dict[int, Messages] = {}  # by layer
        if not context.matrix:
            return
        layers: list[Propagation] = [context.adjacency.at(layer) for layer in range(self.num_layers)]
        made: dict[int, MessageAdjacency] = {}  # layers that need the same rows share a plan
        for layer in range(0 if self.features == "refetch" else 1, self.num_layers):
            of = layers[layer]
            if id(of) not in made:
                made[id(of)] = MessageAdjacency(of, self.plans[layer], self.comm, self.messages == "cover")
            sent = self.narrowed(self.shard, self.widths, layer)
            if layer and self.comm.size > 1 and not any(map(sum, made[id(of)].counts)):
                # Nothing travels to or from this worker: the cheaper product goes first.
                f_in, f_out = self.widths[layer : layer + 2]
                sent = of.transform_first(f_in, f_out), 0
            layers[layer] = made[id(of)].sending(of, *sent)
        self.adjacency = PerLayer(layers)

    def narrowed(self, shard: Shard, widths: list[int], layer: int) -> tuple[bool, int]:
        """Whether a layer sends H W, and without how many of its columns."""
        f_in, f_out = widths[layer : layer + 2]
        spares = self.spares and shard.labels.ndim == 1 and widths[-1] > 1
        spared = int(spares and layer == len(widths) - 2)
        transformed = self.narrow and f_out - spared < f_in
        return transformed, spared if transformed else 0

    def propagate(self, layer, h, weight, dropout):
        a = self.adjacency.at(layer)
        assert isinstance(a, MessageAdjacency)
        x = dropout.inner(a.inner_rows(h))
        y = rows_times(x, weight, self.recorder, a.fixed) if a.transformed else x
        z = served(y, a, self.messages_of(layer, *a.counts))
        return z if a.transformed else times(z, weight, self.recorder, a.fixed)

    def halo(self, layer, h):
        exact = self.bits == AS_THEY_ARE
        return self.comm.exchange(self.plans[layer], h, layer) if exact else super().halo(layer, h)

    def start(self, layer, direction, rows):
        messages = self.messages_of(layer, *self.plans[layer].counts("forward"))
        messages.start(direction, rows)
        return messages, direction

    def finish(self, under_way, count, width, dtype):
        messages, direction = under_way
        return messages.finish(direction)

    def messages_of(self, layer, send, receive):
        """What exchanges a layer's messages, as they are or coded: `send` and `receive` [P] of them to and
        from each worker. The same object in every epoch."""
        if layer not in self.under_way:
            exact = self.bits == AS_THEY_ARE
            given = layer, send, receive
            self.under_way[layer] = Messages(self.comm, *given) if exact else self.coded(*given)
        self.under_way[layer].epoch = self.epoch
        return self.under_way[layer]
