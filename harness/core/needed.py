"""The rows that the loss needs, layer by layer, for training that computes and exchanges no others.

The loss reads the training vertices' logits alone. So the last layer gives Z of these vertices only, and
every layer takes the rows of the vertices that it gives Z of, and of their in-neighbours:

    R_L = train,    R_l = R_{l+1} and the in-neighbours of R_{l+1}        layer l: rows R_l -> rows R_{l+1}

delta = dL/dZ is 0 elsewhere, so no other row reaches the loss or a gradient: training is exact, for any
graph, partition and depth. The sets grow towards layer 0. A worker's own rows are therefore sorted by the
last set R_l that has them, the training vertices first: a layer takes and gives the first rows of that order.

Between workers, layer l exchanges the remote rows of R_l that own rows of R_{l+1} aggregate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.core.adjacency import Propagation, scales
from harness.core.attention import AttentionEdges
from harness.core.kernels.spmm import Kernel, SparseOperator
from harness.data.partition.shard import Csr, Shard


@dataclass
class NeededRows:
    """A worker's own rows that L layers need, and the remote ones.

    order    [counts[0]] int64 own rows: those of R_L first, then those that only R_{L-1} has, and so on,
             ascending inside each
    counts   [L + 1]: layer l takes the first counts[l] rows of that order and gives the first counts[l + 1]
    halos    by layer: places in the shard's halo of the remote rows that the layer aggregates, ascending
    plans    by layer: who sends which of the first counts[l] rows to whom
    """

    order: np.ndarray
    counts: list[int]
    halos: list[np.ndarray]
    plans: list[HaloPlan]


def needed_rows(shard: Shard, layers: int, comm: Comm) -> NeededRows:
    """The rows that the training vertices of all workers need. From the last layer back, workers tell each
    other once per layer which remote rows they need: 1 byte per row of the halo.
    """
    inner, halo = shard.inner_edges, shard.halo_edges
    halo_counts, send_counts = shard.halo_counts.tolist(), shard.send_counts.tolist()
    depth = np.where(shard.train, layers, -1)  # the last set that a row is in
    halos: list[np.ndarray] = []
    asked: list[np.ndarray] = []  # by layer: which of `send_rows` are sent
    # A layer takes the in-neighbours of what it gives: the remote ones it asks their owners for, and the own
    # ones join those that others ask for.
    for layer in reversed(range(layers)):
        given = depth > layer
        remote = touched(halo, given)
        mine = torch.from_numpy(remote.astype(np.uint8)).to(comm.device)[:, None]
        theirs = comm.exchange_now(mine, halo_counts, send_counts, -1, "backward", "needed")
        asked.append(theirs[:, 0].cpu().numpy().astype(bool))
        taken = touched(inner, given)
        taken[shard.send_rows[asked[-1]]] = True
        depth[taken & (depth < 0)] = layer
        halos.append(np.flatnonzero(remote))
    order, counts, place = ordered(depth, layers)
    by_owner, by_peer = (np.repeat(np.arange(comm.size), each) for each in (halo_counts, send_counts))
    plans = [
        HaloPlan(
            torch.from_numpy(place[shard.send_rows[sent]]).to(comm.device),
            np.bincount(by_peer[sent], minlength=comm.size).tolist(),
            np.bincount(by_owner[kept], minlength=comm.size).tolist(),
        )
        for sent, kept in zip(asked, halos)
    ]
    return NeededRows(order, counts, halos[::-1], plans[::-1])


def ordered(depth: np.ndarray, layers: int) -> tuple[np.ndarray, list[int], np.ndarray]:
    """`order` and `counts` of `NeededRows`, and the place [n] of each row in that order (undefined for a row
    that no layer needs). depth [n]: number of the last set R_l that each row is in, -1 for none."""
    counts = [int((depth >= layer).sum()) for layer in range(layers + 1)]
    order, place = np.argsort(-depth, kind="stable")[: counts[0]], np.empty(len(depth), np.int64)
    place[order] = np.arange(len(order))
    return order, counts, place


def touched(block: Csr, rows: np.ndarray) -> np.ndarray:
    """[columns] bool: the columns with an entry in one of `rows` [rows] bool."""
    found = np.zeros(block.num_columns, bool)
    found[block.indices[np.repeat(rows, np.diff(block.indptr))]] = True
    return found


class NeededAdjacency(Propagation):
    """A_ii [counts[l + 1], counts[l]] and A_ih of layer l, over the rows that it needs. An edge is in the
    block that has a column for its source; `inner_edges` and `halo_edges` of `shard` may be one and the same.
    """

    fixed = True

    def __init__(
        self,
        shard: Shard,
        needed: NeededRows,
        layer: int,
        normalisation: str,
        kernel: Kernel,
        device: torch.device,
    ):
        rows, columns = needed.order[: needed.counts[layer + 1]], needed.order[: needed.counts[layer]]
        halo = needed.halos[layer]
        self.self_loops = normalisation != "mean"
        self._blocks = (
            _part(shard.inner_edges, rows, columns, False),
            _part(shard.halo_edges, rows, halo, False) if len(halo) else None,
        )
        self._device = device
        row, column = scales(shard.degrees, normalisation)
        _, halo_column = scales(shard.halo_degrees, normalisation)
        # The block need not be square, so its self-loops are entries: that of row v is in column v.
        block = _part(shard.inner_edges, rows, columns, True) if self.self_loops else self._blocks[0]
        parts = [(block, column, columns), (self._blocks[1], halo_column, halo)]
        inner, outer = (
            SparseOperator(
                each, row[rows], None if scale is None else scale[taken], kernel=kernel, device=device
            )
            if each is not None
            else None
            for each, scale, taken in parts
        )
        assert inner is not None
        super().__init__(inner, outer)

    @cached_property
    def attention(self) -> AttentionEdges:
        """The same edges for an edge softmax, each vertex among its own neighbours."""
        return AttentionEdges(*self._blocks, self._device)

    @property
    def num_entries(self) -> int:
        return sum(block.num_entries for block in self._blocks if block is not None)


class PerLayer:
    """A propagation matrix for each layer."""

    def __init__(self, layers: Sequence[Propagation]):
        self.layers = list(layers)

    def at(self, layer: int) -> Propagation:
        return self.layers[layer]


def _part(block: Csr, rows: np.ndarray, columns: np.ndarray, self_loops: bool) -> Csr:
    """The block's `rows` and `columns` alone, numbered in these orders; columns ascend in every row.

    self_loops   row v also has an entry in column v
    """
    from scipy import sparse  # runs that need every row start without it

    # Entries by their places, from 1: an entry of weight 0 stays one. Self-loops are -1.
    places = np.arange(1, block.num_entries + 1, dtype=block.indptr.dtype)
    part = sparse.csr_array((places, block.indices, block.indptr), shape=block.shape)[rows][:, columns]
    if self_loops:
        part = part - sparse.eye_array(*part.shape, dtype=places.dtype, format="csr")
    part.sort_indices()
    values = None
    if block.values is not None:
        values = np.where(part.data < 0, np.float32(1), block.values[part.data - 1])
    return Csr(part.indptr.astype(places.dtype), part.indices.astype(np.int32), len(columns), values)
