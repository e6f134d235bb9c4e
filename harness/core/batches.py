"""Training on mini-batches: several optimiser steps per epoch, each over the blocks of its own vertices.

A *step* is one optimiser step of all workers; its *seeds* are the training vertices whose loss it takes. Hop
1 expands the seeds and makes the last layer's *block*, hop L makes layer 0's. A block has destinations and
the sources that they aggregate, destinations first:

    layer L-1   destinations: the seeds           sources: they, and the neighbours that were chosen for them
    layer l     destinations: layer l+1's sources       ...
    layer 0     ...                               sources: the *inputs*, whose features are needed

So a block is a shard in small. Its destinations are the inner vertices and its further sources the halo,
whose rows are here already. Layers, dropout, loss, clock and checkpoints are those of full-batch training.

    Z_v = sum_u A_vu f_v h_u (+ A_vv h_v)         f_v = d_v / k_v: d_v neighbours, of which k_v were chosen

With k_v of d_v drawn uniformly a sum over the sample has the expectation of the sum over all neighbours; the
self-loop is no neighbour and is never drawn. GAT's softmax is over the sample and has no factor.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch

from harness.base.terminal import counted
from harness.comm.comm import Comm
from harness.core.adjacency import Adjacency, Propagation, scales, scales_of
from harness.core.context import Context
from harness.core.features import R, Rows, first_rows
from harness.core.inputs import Static
from harness.core.kernels.spmm import SparseOperator
from harness.core.needed import PerLayer
from harness.core.propagate import HaloDropout, Strategy
from harness.core.system import Ready, Refuses, System
from harness.data.partition.shard import Csr


@dataclass
class Sampled:
    """The edges that were chosen for n destinations, and the m further sources that they bring, as arrays.

    inner, halo   in-edges from destinations [n, n] and from further sources [n, m], columns ascending in
                  every row (one that was drawn twice stands there twice), without self-loops; values where
                  edges have weights
    ids, halo_ids   [n], [m] global vertex ids
    degrees, halo_degrees   [n], [m] in-degrees that A's scales are made of, as `Shard.degrees`
    factor        [n] float64 d_v / k_v
    leaves        how many of the further sources, the last ones, no block below computes: their rows are 0
    """

    inner: Csr
    halo: Csr
    ids: np.ndarray
    halo_ids: np.ndarray
    degrees: np.ndarray
    halo_degrees: np.ndarray
    factor: np.ndarray
    leaves: int = 0

    @property
    def num_edges(self) -> int:
        return self.inner.num_entries + self.halo.num_entries

    def alone(self) -> Sampled:
        """Its destinations and the edges between them, without further sources."""
        return replace(
            self,
            halo=self.halo.emptied(0),
            halo_ids=self.halo_ids[:0],
            halo_degrees=self.halo_degrees[:0],
            leaves=0,
        )


class Block(Propagation):
    """One layer's operator over a batch. Rows h of a layer are those of the sources: [n + m - leaves, F].

    like     the worker's whole matrix: normalisation, kernel and device are its own
    layer    whose products it is for
    recount  degrees are counted anew inside the block, as DGL's GraphConv does: in-edges of a row and
             out-edges of a column, self-loops among them
    """

    def __init__(self, found: Sampled, like: Adjacency, layer: int, recount: bool = False):
        self.found, self.device, self.first = found, like.device, layer == 0
        n = len(found.ids)
        row, column, halo_column = (
            self._recounted(like)
            if recount
            else scales_of(found.degrees, found.halo_degrees, like.normalisation)
        )
        factor = np.ones(n) if recount else found.factor
        scaled, alike = (row * factor).astype(row.dtype), bool((factor == 1).all())
        # Where a row also counts itself, the factor is for its neighbours only, so it goes into the values of
        # their entries instead of the row's scale.
        weighs = like.self_loops and not alike
        values = _times_factor(found.inner, factor, row.dtype) if weighs else None
        made = partial(SparseOperator, kernel=like.kernel, device=self.device)
        inner = made(
            found.inner, row if weighs else scaled, column, self_loops=like.self_loops, values=values
        )
        halo = made(found.halo, scaled, halo_column) if found.halo.num_columns else None
        super().__init__(inner, halo)

    def _recounted(self, like: Adjacency) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        found, n = self.found, len(self.found.ids)
        row, column = scales(found.inner.row_sums() + found.halo.row_sums(), like.normalisation)
        if column is None:
            return row, None, None
        out = np.bincount(found.inner.indices, found.inner.values, minlength=n)
        far = np.bincount(found.halo.indices, found.halo.values, minlength=found.halo.num_columns)
        far = far - 1  # it has no self-loop, for which `scales` adds 1
        return row, scales(out, like.normalisation)[1], scales(far, like.normalisation)[1]

    def of_layer(self, layer: int) -> Block:
        """The same operators, for another layer's products."""
        made = copy.copy(self)
        made.first = layer == 0
        return made

    def inner_rows(self, h: torch.Tensor) -> Rows:
        """The destinations' rows [n, F] among the sources'."""
        return h[: self.num_inner]

    def halo_rows(self, h: torch.Tensor) -> torch.Tensor:
        """The further sources' rows [m, F]."""
        rows = h[self.num_inner :]
        if not self.found.leaves:
            return rows
        return torch.cat([rows, rows.new_zeros(self.found.leaves, h.shape[1])])

    def transform_first(self, f_in: int, f_out: int, first: bool = False) -> bool:
        return super().transform_first(f_in, f_out, self.first)

    def dropout(self, p: float, key: int) -> HaloDropout:
        """The layer's dropout, drawn by global vertex id."""
        ids, halo = torch.from_numpy(self.found.ids), torch.from_numpy(self.found.halo_ids)
        return _BlockDropout(p, ids.to(self.device), halo.to(self.device), key)


class _BlockDropout(HaloDropout):
    def inner(self, x: R) -> R:
        """Dropout of the destinations' rows, the first of x: a layer may hand over its whole input."""
        return super().inner(first_rows(x, len(self.inner_ids)))


def _times_factor(block: Csr, factor: np.ndarray, dtype: np.dtype) -> np.ndarray:
    values = np.repeat(factor, np.diff(block.indptr))
    return (values if block.values is None else values * block.values).astype(dtype)


@dataclass
class Batch:
    """What a worker trains on in one step, on its device.

    x       [inputs, f0] features of the first block's sources
    blocks  [L], layer 0 first
    labels  [b] int64, or [b, C] in the model's precision, of this worker's seeds: the first destinations of
            the last block, which may have more
    total   seeds of this step on all workers
    divisor what this worker's summed loss is divided by for its gradients, which are then summed over
            workers; None: `total`, for the mean over all seeds of the step
    weights [b] what each seed's loss is multiplied by, in the model's precision; None: 1
    static  what is kept of layer 0, where its block is the same in many steps; `x` is then not read
    """

    x: torch.Tensor
    blocks: Sequence[Block]
    labels: torch.Tensor
    total: int
    divisor: float | None = None
    weights: torch.Tensor | None = None
    static: Static | None = None


class BlockPass(Strategy):
    """The strategy of one step: every row that a layer uses is in its input."""

    def __init__(self, batch: Batch, comm: Comm, name: str):
        self.blocks, self.adjacency, self.comm, self.name = batch.blocks, PerLayer(batch.blocks), comm, name

    def halo(self, layer: int, h: torch.Tensor) -> Ready:
        return Ready(self.blocks[layer].halo_rows(h))


class BatchSystem(System):
    """Base of every system that trains on mini-batches over an edge-cut partition.

    The trainer asks for `make_batch(epoch, step)` `steps()` times per epoch. A worker without seeds in a step
    takes part in its weight all-reduce with gradients of 0. From step to step nothing is kept of layer 0 but
    what the system itself keeps.
    """

    refuses: ClassVar[Refuses] = Refuses(
        wire="pulls features by vertex, of which wire says nothing",
        needed_rows="computes the rows that the seeds of its batches need as it is",
        combine="takes a step per mini-batch, and each would be coded",
        features_wire="pulls features by vertex, as they are",
        batch_norm="has no statistics of all vertices, which those of a mini-batch are not",
    )
    # what is to be given where a batch asks for more memory than there is
    smaller: ClassVar[str] = "smaller batches"

    @classmethod
    def _missing_method(cls) -> str | None:
        return "make_batch(self, epoch, step)" if cls.make_batch is BatchSystem.make_batch else None

    def steps(self) -> int:
        """Optimiser steps per epoch, each with a forward and a backward pass; asked for after `setup`."""
        raise NotImplementedError

    def setup(self, context: Context) -> None:
        super().setup(context)
        self.totals: Counter[str] = Counter()  # metrics that `make_batch` adds up over an epoch

    def after_epoch(self, epoch: int) -> None:
        for name, value in {"steps": self.steps(), **self.totals}.items():
            self.recorder.metric(name, value)
        self.totals.clear()

    def seeds_per_epoch(self, training: int) -> int:
        """How many seeds an epoch takes on all workers, of `training` training vertices."""
        return training

    def seeds_in(self, epoch: int, step: int) -> int | None:
        """How many seeds this worker has in a step, for messages about a batch that is not made yet; None
        where it cannot say."""
        return None

    def make_batch(self, epoch: int, step: int) -> Batch | None:
        """This worker's part of a step; None where it has no seeds in it. Called inside the train clock, by
        all workers alike."""
        raise NotImplementedError

    def strategy(self, batch: Batch) -> BlockPass:
        """How the layers of `batch` find the rows that they use: all are in the layer's input. Called right
        after `make_batch`."""
        return BlockPass(batch, self.comm, self.name)


def too_large(system: BatchSystem, batch: Batch | None, epoch: int, step: int) -> str:
    """The message that a step ran out of memory; batch: None where it was not yet made."""
    size = system.seeds_in(epoch, step)
    said = "a batch" if size is None else f"a batch of {counted(size, 'seed')}"
    if batch is not None:
        said = f"a batch of {counted(len(batch.labels), 'seed')} and {counted(len(batch.x), 'input')}"
    return (
        f"worker {system.comm.rank} ran out of memory in epoch {epoch + 1}, step {step + 1}, in {said};"
        f" give {system.smaller}"
    )
