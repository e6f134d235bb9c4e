"""The product of CAGNET's 1.5D algorithm: c workers share a block row of A, and its sum.

P workers, c of them in each of P / c groups; worker (i, k) = i c + k is number k of group i. The parts of a
group's workers together are block row i. The blocks j with j mod c = k are those of column k, P / c^2 of
them. With V vertices, T = A H is made in three steps, and T = A^T delta alike:

    gather   every worker sends its rows to the others of its group        4 (c - 1) V f bytes
    blocks   worker (j, j mod c) sends block j to number j mod c of each   4 (P / c - 1) V f
             other group (deltas: in the backward pass)
    sums     worker (i, k) adds up A_ij H_j over the blocks j of column    4 (c - 1) V f
             k, and sends each other worker of group i that one's rows

A worker holds A_ij for the blocks of its column, and for no others.
"""

from typing import Any

import numpy as np
import torch

from harness.base.autograd import applied
from harness.comm.comm import Comm
from harness.comm.flight import InFlight
from harness.comm.work import moved, pack
from harness.core.adjacency import Adjacency, Propagation, scales
from harness.core.counting import adjoint_times, times
from harness.core.kernels.spmm import SparseOperator
from harness.data.partition.shard import OutEdges, Shard
from systems.parts.messages import block_of, tell

Operators = tuple[SparseOperator | None, SparseOperator | None]


class ReplicatedRows(Propagation):
    """A worker's part of A and of A^T, over all rows of its group: over the group's own block, where its
    column has that, and over the column's other blocks, grouped by block.

    replication   c, whose square divides the workers
    """

    fixed = True

    def __init__(self, of: Adjacency, shard: Shard, comm: Comm, replication: int):
        super().__init__(of.inner, of.halo)
        self.comm, self.sizes = comm, shard.sizes.tolist()
        self.group, self.number = divmod(comm.rank, replication)
        first = self.group * replication
        self.members = range(first, first + replication)
        self.heights = [sum(self.sizes[m : m + replication]) for m in range(0, comm.size, replication)]
        # Rows to and from each worker: of its own in its group, and of blocks in its column.
        peers = [m in self.members and m != comm.rank for m in range(comm.size)]
        self.own = [shard.num_inner * peer for peer in peers]
        self.theirs = [size * peer for size, peer in zip(self.sizes, peers)]
        self.sends = self.group % replication == self.number  # the block of its group
        self.to, self.come = [0] * comm.size, [0] * comm.size
        for group, height in enumerate(self.heights):
            if group != self.group:
                worker = group * replication + self.number
                self.to[worker] = self.sends * self.heights[self.group]
                self.come[worker] = (group % replication == self.number) * height
        forward = self._operators(of, shard, shard)
        # A symmetric A is its own transpose; weights and one-sided normalisations make it none.
        same = shard.symmetric and not shard.weighted and of.normalisation == "symmetric"
        backward = forward if same else self._operators(of, shard, shard.outward)
        self.operators = {"forward": forward, "backward": backward}

    def transform_first(self, f_in: int, f_out: int, first: bool = False) -> bool:
        return False

    def _operators(self, of: Adjacency, shard: Shard, edges: Shard | OutEdges) -> Operators:
        """A's two operators from in-edges (`edges` is the shard), or those of A^T from out-edges: over the
        group's own block, and over the other blocks of the column. Each worker knows the edges of its own
        rows, and tells each other worker of its group those that lead to that one's column."""
        starts, rank, width = np.cumsum([0, *self.sizes]), self.comm.rank, len(self.members)
        row, column, weight = self._entries(of, shard, edges, starts)
        group = (np.searchsorted(starts, column, side="right") - 1) // width
        numbers: list[np.ndarray] = [np.zeros(0, np.int64)] * self.comm.size
        values: list[np.ndarray] = [np.zeros(0)] * self.comm.size
        for number, member in enumerate(self.members):
            mine = group % width == number
            numbers[member], values[member] = np.concatenate([row[mine], column[mine]]), weight[mine]
        own = numbers[rank], values[rank]
        numbers, values = tell(self.comm, numbers, values)
        numbers[rank], values[rank] = own
        row, column = np.concatenate([numbers[m].reshape(2, -1) for m in self.members], axis=1)
        weight = np.concatenate([values[m] for m in self.members])
        first, last = starts[self.members[0]], starts[self.members[-1] + 1]
        place = np.zeros(starts[-1], np.int64)  # of a row among those that come
        for worker, (end, count) in enumerate(zip(np.cumsum(self.come), self.come)):
            begin = starts[worker // width * width]
            place[begin : begin + count] = np.arange(end - count, end)
        inside, height = (column >= first) & (column < last), self.heights[self.group]
        made: list[SparseOperator | None] = []
        for chosen, wide, at in (
            (inside, self.sends * height, column - first),
            (~inside, sum(self.come), place[column]),
        ):
            block = block_of(row[chosen] - first, at[chosen], weight[chosen], (height, wide))
            operator = SparseOperator(block, kernel=of.kernel, device=of.device)
            made.append(operator if wide else None)
        return made[0], made[1]

    def _entries(
        self, of: Adjacency, shard: Shard, edges: Shard | OutEdges, starts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row, column and value of each entry of A, or of A^T, in this worker's rows. Rows and columns are
        numbered over all workers' rows; each worker's begin at its `starts`."""
        turned = 1 if edges is shard else -1  # A^T: row and column scales change places
        into, near = scales(shard.degrees, of.normalisation)[::turned]
        far = scales(edges.halo_degrees, of.normalisation)[::turned][1]
        blocks, n = (edges.inner_edges, edges.halo_edges), shard.num_inner
        loops = np.arange(n if of.self_loops else 0)
        rows = [np.repeat(np.arange(n), np.diff(block.indptr)) for block in blocks]
        row = np.concatenate([*rows, loops])
        source = np.concatenate([blocks[0].indices, n + blocks[1].indices.astype(np.int64), loops])
        weights = [np.ones(b.num_entries) if b.values is None else b.values for b in blocks]
        weight = np.concatenate([*weights, np.ones(len(loops))])
        if into is not None:
            weight = weight * into[row]
        if near is not None and far is not None:
            weight = weight * np.concatenate([near, far])[source]
        begin = starts[self.comm.rank]
        remote = np.repeat(starts[:-1], edges.halo_counts) + edges.halo_rows
        return row + begin, np.concatenate([begin + np.arange(n), remote])[source], weight

    def product(self, layer: int, h: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """(A H) W  [n, f_out], of own rows h [n, f_in]; backwards delta travels as H does."""
        return applied(_Product, h, weight, self, layer)

    def times(self, x: torch.Tensor, layer: int, direction: str) -> torch.Tensor:
        """The own rows [n, F] of A X, or backward of A^T X, of own rows x [n, F]. No autograd."""
        recorder, sizes = self.comm.recorder, [self.sizes[m] for m in self.members]
        # gather: the group's workers send each other their rows, which make up the group's block.
        flight, received = self._start(x, self.own, self.theirs, layer, direction, "gather")
        flight.wait()
        with recorder.inside("rest", "unpack", layer):
            pieces = list(received.split([self.theirs[m] for m in self.members]))
            pieces[self.number] = x
            block = torch.cat(pieces)
            recorder.work(moved(block))
        # blocks: the column's blocks arrive while the group's own block is multiplied, if this column has it.
        purpose = "blocks" if direction == "forward" else "deltas"
        flight, received = self._start(block, self.to, self.come, layer, direction, purpose)
        inside, others = self.operators[direction]
        sums = x.new_zeros(block.shape) if inside is None else inside.forward(block)
        flight.wait()
        if others is not None:
            others.forward(received, sums, accumulate=True)
        # sums: each worker of the group gets its own rows' sums from all others, and adds them up.
        with recorder.inside("rest", "pack", layer):
            parts = list(sums.split(sizes))
            mine = parts.pop(self.number)
            packed = torch.cat(parts)
            recorder.work(moved(packed))
        received = self.comm.exchange_now(packed, self.theirs, self.own, layer, direction, "sums")
        with recorder.inside("rest", "unpack", layer):
            for part in received.view(len(parts), *x.shape):
                mine += part
            recorder.work(pack(len(received), x.shape[1], x.element_size(), added=True))
        return mine

    def _start(
        self, rows: torch.Tensor, to: list[int], come: list[int], layer: int, direction: str, purpose: str
    ) -> tuple[InFlight, torch.Tensor]:
        """Start sending all of these rows [k, F] to each worker that `to` gives k, and receiving."""
        copies = sum(count > 0 for count in to)
        with self.comm.recorder.inside("rest", "pack", layer):
            key, shape = (direction, purpose, layer, "pack"), (copies * len(rows), rows.shape[1])
            halved = self.comm.halved(rows.dtype, layer, purpose)
            packed = self.comm.outgoing(key, shape, rows.dtype, halved)
            packed.view(copies, *rows.shape).copy_(rows)
            self.comm.recorder.work(moved(packed))
        return self.comm.start_exchange(packed, to, come, layer, direction, purpose)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, rows: ReplicatedRows, layer: int
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.rows, ctx.layer = rows, layer
        return times(rows.times(x, layer, "forward"), weight, rows.recorder, rows.fixed)

    @staticmethod
    def backward(ctx: Any, delta: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, None, None]:
        (x, weight), rows = ctx.saved_tensors, ctx.rows
        g = rows.times(delta, ctx.layer, "backward")
        x_grad = times(g, weight.t(), rows.recorder, rows.fixed) if ctx.needs_input_grad[0] else None
        return x_grad, adjoint_times(x, g, rows.recorder), None, None
