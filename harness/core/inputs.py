"""The static part of layer 0: raw features do not change, so neither does A X. Evaluation, and training under
`features="once"`, compute it once and keep it.
"""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch

from harness.base.autograd import applied
from harness.comm.sparse import Given
from harness.core.adjacency import Propagation
from harness.core.counting import times
from harness.core.features import Rows, SparseRows, dense, filled, first_rows, rows_times, saves, sparse_rows
from harness.core.kernels.spmm import Kernel, spmm
from harness.core.propagate import HaloDropout


class Static(Protocol):
    """What is kept of layer 0: no epoch changes it."""

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """A [X; X_halo] W  [n, f_out], differentiable in W."""

    def own_times(self, weight: torch.Tensor) -> torch.Tensor:
        """X W  [n, f_out], differentiable in W."""


class StaticInput:
    """X and A [X; X_halo], ready to be multiplied by a weight in every epoch.

    Features with few non-zeros (bags of words) are kept sparse, where A (X W) costs far less than a dense A X
    would.

    x          [n, f0] the worker's own rows
    x_halo     [m, f0], or None where the adjacency has no halo
    rows_only  X and X_halo are kept and A X is not made: for an attention layer, whose edge weights change
               in every epoch, and for dropout of the features
    """

    def __init__(
        self, adjacency: Propagation, x: Given, x_halo: Given | None, kernel: Kernel, rows_only: bool = False
    ):
        self.adjacency, self.recorder = adjacency, kernel.recorder
        rows = x.shape[0] + (0 if x_halo is None else x_halo.shape[0])
        nonzeros = filled(x) + (0 if x_halo is None else filled(x_halo))
        given = len(x) if rows_only else adjacency.num_rows
        self.sparse = rows > 0 and saves(nonzeros + adjacency.num_entries, x, given)
        self.x: Rows = sparse_rows(x, kernel) if self.sparse else dense(x)
        self.x_halo: Rows | None = None
        self.product: torch.Tensor | None = None  # A [X; X_halo], where it is kept instead of X_halo
        if self.sparse:
            self.x_halo = None if x_halo is None else sparse_rows(x_halo, kernel)
        elif rows_only:
            self.x_halo = None if x_halo is None else dense(x_halo)
        else:
            self.product = adjacency.apply(dense(x), None if x_halo is None else dense(x_halo))

    def times(self, weight: torch.Tensor) -> torch.Tensor:
        """A [X; X_halo] W  [n, f_out], differentiable in W."""
        if self.product is not None:
            return times(self.product, weight, self.recorder, fixed=True)
        if not self.transforms_first(len(weight), weight.shape[1]):
            assert isinstance(self.x, torch.Tensor) and not isinstance(self.x_halo, SparseRows)
            return times(self.adjacency.apply(self.x, self.x_halo), weight, self.recorder, fixed=True)
        if isinstance(self.x, SparseRows):
            return applied(_SparseTimes, weight, self.x, self.x_halo, self.adjacency)
        z = spmm(self.adjacency.inner, rows_times(self.x, weight, self.recorder, fixed=True))
        if self.x_halo is None or self.adjacency.halo is None:
            return z
        return spmm(self.adjacency.halo, rows_times(self.x_halo, weight, self.recorder, fixed=True), z)

    def transforms_first(self, f_in: int, f_out: int) -> bool | None:
        """Whether `times` takes A (X W) rather than (A X) W; None where A X is kept."""
        if self.product is not None:
            return None
        return self.sparse or self.adjacency.transform_first(f_in, f_out, True)

    def dropped(self, drop: HaloDropout) -> StaticInput:
        """This input with dropout of X and X_halo, drawn before it returns; only where these are kept."""
        assert self.product is None, "A X has no rows to drop from"
        made = copy.copy(self)
        made.x = drop.inner(self.x)
        made.x_halo = None if self.x_halo is None else drop.halo(self.x_halo)
        return made

    def own_times(self, weight: torch.Tensor) -> torch.Tensor:
        """X W  [n, f_out] of the rows that the layer gives, differentiable in W."""
        return rows_times(first_rows(self.x, self.adjacency.num_rows), weight, self.recorder, fixed=True)

    def rows_times(self, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """X W  [n, f_out] and X_halo W  [m, f_out] (None without a halo), differentiable in W."""
        halo = None if self.x_halo is None else rows_times(self.x_halo, weight, self.recorder, fixed=True)
        return rows_times(self.x, weight, self.recorder, fixed=True), halo


class _SparseTimes(torch.autograd.Function):
    """A_ii (X W) + A_ih (X_halo W), differentiable in W: one node of autograd instead of four, each of which
    would take about as long as its product where a worker has few rows."""

    @staticmethod
    def forward(
        ctx: Any, weight: torch.Tensor, x: SparseRows, x_halo: SparseRows | None, adjacency: Propagation
    ) -> torch.Tensor:
        halo = None if x_halo is None else adjacency.halo
        ctx.parts = x, x_halo, adjacency.inner, halo
        ctx.due = adjacency.recorder.due(ctx.needs_input_grad[0])
        z = adjacency.inner.forward(x.forward(weight))
        if x_halo is not None and halo is not None:
            halo.forward(x_halo.forward(weight), out=z, accumulate=True)
        return z

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        x, x_halo, inner, halo = ctx.parts
        gradient = x.adjoint(inner.adjoint(g))
        if halo is not None:
            x_halo.adjoint(halo.adjoint(g), out=gradient, accumulate=True)
        inner.kernel.recorder.work(*ctx.due)
        return gradient, None, None, None
