"""One worker's rows of the propagation matrix, as operators over its inner and its halo vertices.

    Z_i = A_ii X_i + A_ih X_halo          A = R (B + S) C

with B the adjacency (B_vu = the weight of edge u -> v, 1 in a graph without weights), R and C diagonal scales
and S the self-loops, which weigh 1, by normalisation (d = in-degree without self-loops, the sum of a row of
B, over the whole graph unless `degrees="local"`):

    symmetric   R = C = (D + I)^-1/2, S = I   GCN's D^-1/2 A D^-1/2; A_vu = B_vu / sqrt((d_v + 1) (d_u + 1))
    row         R = (D + I)^-1, C = I, S = I
    mean        R = D^-1, C = I, S = 0        GraphSAGE's (weighted) mean over neighbours; 0 where d = 0
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np
import torch

from harness.comm.recorder import Recorder
from harness.core.attention import AttentionEdges
from harness.core.features import Features, Rows, precision
from harness.core.kernels.spmm import Kernel, SparseOperator
from harness.core.order import FEATURES, HIDDEN, Passes, Shape
from harness.data.partition.shard import Shard


def scales(degrees: np.ndarray, normalisation: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Row and column scale [len(degrees)] of vertices with these in-degrees, in the model's precision; the
    column scale is None where it is 1.
    """
    d = degrees.astype(np.float64)
    # A float64 run keeps float64 scales: Adam turns a gradient's rounding into a step where the gradient is
    # nearly 0.
    dtype = precision()
    if normalisation == "symmetric":
        scale = (1.0 / np.sqrt(d + 1.0)).astype(dtype)
        return scale, scale
    if normalisation == "row":
        return (1.0 / (d + 1.0)).astype(dtype), None
    return np.divide(1.0, d, out=np.zeros_like(d), where=d > 0).astype(dtype), None


def scales_of(
    degrees: np.ndarray, halo_degrees: np.ndarray, normalisation: str
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Row scale [n], column scale [n] and halo column scale [m]; a column scale is None where it is 1."""
    return *scales(degrees, normalisation), scales(halo_degrees, normalisation)[1]


def shape_of(operator: SparseOperator) -> Shape:
    return Shape(operator.num_rows, operator.num_columns, operator.num_entries)


class Propagation:
    """A_ii [n, n] and, where remote rows are aggregated, A_ih [n, m], and in which order they are cheapest to
    apply. Where a layer gives fewer rows, both have only these, and A_ii only the columns that they use.

    drawn   [m] int64, which rows of the worker's halo the columns of A_ih stand for; None: all, in halo order
    fixed   whether n and m are the same in every epoch
    features   X, by which layer 0's input is recognised; None: it is treated as that of other layers
    """

    fixed = False
    features: Features | None = None
    passes: tuple[Passes, Passes] = FEATURES, HIDDEN  # of layer 0 and of the others

    def __init__(self, inner: SparseOperator, halo: SparseOperator | None, drawn: torch.Tensor | None = None):
        self.inner, self.halo, self.drawn = inner, halo, drawn
        self.num_inner, self.num_halo = inner.num_columns, halo.num_columns if halo is not None else 0
        self.num_rows = inner.num_rows  # of Z: fewer than own rows of X where not all are needed
        self.num_own = self.num_rows  # rows of Z that are this worker's vertices: all of them

    def at(self, layer: int) -> Propagation:
        """The matrix of layer `layer`: this one in all of them."""
        return self

    def layer_0(self, h: torch.Tensor) -> Features | None:
        """The features where h, the input of a layer, is X; else None."""
        return self.features if self.features is not None and self.features.are(h) else None

    def inner_rows(self, h: torch.Tensor) -> Rows:
        """A layer's own input h [n, F]; where that is X, sparse if that saves."""
        features = self.layer_0(h)
        return h if features is None else features.own

    def apply(self, x: torch.Tensor, x_halo: torch.Tensor | None) -> torch.Tensor:
        """A_ii x + A_ih x_halo  [n, F], without autograd."""
        z = self.inner.forward(x)
        if self.halo is not None and x_halo is not None:
            self.halo.forward(x_halo, out=z, accumulate=True)
        return z

    def transform_first(self, f_in: int, f_out: int, first: bool = False) -> bool:
        """Whether A (X W) is taken instead of (A X) W (`harness.core.order`); first: in layer 0, whose input
        has no gradient.
        """
        blocks = [shape_of(part) for part in (self.inner, self.halo) if part is not None]
        passes = self.passes[0 if first else 1]
        order = self.inner.kernel.order
        more = self.num_inner + self.num_halo - self.num_rows
        return order.transform_first(blocks, self.num_rows, more, f_in, f_out, passes)

    @cached_property
    def attention(self) -> AttentionEdges:
        """The same edges for an edge softmax, each vertex among its own neighbours."""
        halo = None if self.halo is None else self.halo.block
        return AttentionEdges(self.inner.block, halo, self.inner.device)

    @property
    def num_entries(self) -> int:
        """Entries of both blocks, without the self-loops that an operator adds by itself."""
        return self.inner.num_entries + (self.halo.num_entries if self.halo is not None else 0)

    @property
    def recorder(self) -> Recorder:
        """Who counts what is computed with it."""
        return self.inner.kernel.recorder


class Adjacency(Propagation):
    """A_ii and A_ih of one shard.

    degrees   "global", or "local": cut edges dropped and degrees counted inside the worker (there is no halo
              then)
    """

    fixed = True

    def __init__(
        self, shard: Shard, normalisation: str, kernel: Kernel, device: torch.device, degrees: str = "global"
    ):
        self.self_loops = normalisation != "mean"
        inner_degrees = shard.degrees if degrees == "global" else shard.inner_edges.row_sums()
        row, column = scales(inner_degrees, normalisation)
        self._made = partial(SparseOperator, kernel=kernel, device=device)
        loops, symmetric = self.self_loops, shard.symmetric
        inner = self._made(shard.inner_edges, row, column, self_loops=loops, symmetric=symmetric)
        halo = None
        if degrees == "global" and shard.num_halo:
            _, halo_column = scales(shard.halo_degrees, normalisation)
            halo = self._made(shard.halo_edges, row, halo_column)
        super().__init__(inner, halo)
        self._shard, self.normalisation, self.kernel, self.device = shard, normalisation, kernel, device
        self._out: tuple[SparseOperator, SparseOperator] | None = None

    def scales(self) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
        """`scales_of` whole-graph degrees."""
        return scales_of(self._shard.degrees, self._shard.halo_degrees, self.normalisation)

    def out_edges(self) -> tuple[SparseOperator, SparseOperator]:
        """The worker's rows of A^T: over inner vertices and over the remote vertices its out-edges reach."""
        if self._out is None:
            outward, loops, symmetric = self._shard.outward, self.self_loops, self._shard.symmetric
            row, column = scales(self._shard.degrees, self.normalisation)
            out_row, _ = scales(outward.halo_degrees, self.normalisation)
            # A^T = C (B^T + S) R: row and column scales change places.
            self._out = (
                self._made(outward.inner_edges, column, row, self_loops=loops, symmetric=symmetric),
                self._made(outward.halo_edges, column, out_row),
            )
        return self._out
