"""Z = A [H; halo] W over one worker's rows, and its adjoint in two forms.

`propagate` is the owner-computes form: the gradient of every halo row is computed where it was used and
travels back through the halo's own backward pass. `propagate_gathered` is the one-dimensional matrix form
(CAGNET, SANCUS): the gradient delta = dL/dZ of every block is gathered instead, and (SANCUS, eqs. 4 and 5)

    G_i = sum_j (A^T)_ij delta_j,    dL/dH_i = G_i W^T,    dL/dW = sum_i H_i^T G_i
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from harness.base.autograd import applied
from harness.comm import work
from harness.comm.comm import Comm
from harness.comm.flight import HaloPlan
from harness.comm.recorder import UNCOUNTED, Recorder
from harness.core.adjacency import Adjacency, Propagation
from harness.core.counting import adjoint_times, times
from harness.core.features import Features, R, Rows, SparseRows, drop_rows, rows_times
from harness.core.kernels.spmm import spmm


class Pending(Protocol):
    """Halo rows on their way: `wait()` gives them, [m, F], in halo order."""

    def wait(self) -> torch.Tensor: ...


class WrongRows(Exception):
    """A system answered with rows of another shape, type or device than asked for. The message says what was
    given and what is needed; whoever catches it names the system.
    """


def arrived(pending: Pending, adjacency: Propagation, h: torch.Tensor) -> torch.Tensor:
    """The halo rows [m, F] that a system gives a layer whose own rows are h [n, F]. Compiled products read
    them unchecked, so that rows of another shape would be read beyond their end: WrongRows."""
    if not hasattr(pending, "wait"):
        given = type(pending).__name__
        raise WrongRows(f"gave {given}, which has no wait(), as its halo; Ready(rows) makes one of rows")
    rows = pending.wait()
    which = "halo" if adjacency.drawn is None else "drawn halo"
    return checked(
        rows, (adjacency.num_halo, h.shape[1]), h, f"halo rows, one per {which} vertex in halo order"
    )


def checked(rows: torch.Tensor, shape: tuple[int, ...], like: torch.Tensor, what: str) -> torch.Tensor:
    """`rows` where they have this shape and the type of `like`; WrongRows where not."""
    wanted = f"{what}, {list(shape)} of {like.dtype} on {like.device}"
    if not isinstance(rows, torch.Tensor):
        raise WrongRows(f"gave {type(rows).__name__}; needed are {wanted}")
    if (tuple(rows.shape), rows.dtype, rows.device) != (shape, like.dtype, like.device):
        raise WrongRows(f"gave {list(rows.shape)} of {rows.dtype} on {rows.device}; needed are {wanted}")
    return rows


class Strategy:
    """Whom the layers of a model ask for remote rows: a system, or a pass over rows of another kind. It has a
    `name`, by which messages call it.

    adjacency   a propagation matrix, or one for each layer: `at(layer)` gives the layer's
    """

    name: str
    comm: Comm
    adjacency: Any

    def halo(self, layer: int, h: torch.Tensor) -> Pending:
        """The remote rows layer `layer` aggregates now, given this worker's inner rows h [n, F]."""
        raise NotImplementedError

    def propagate(
        self, layer: int, h: torch.Tensor, weight: torch.Tensor, dropout: HaloDropout
    ) -> torch.Tensor:
        """(A_ii h + A_ih halo) W  [n, f_out]. Overridden only where the backward pass is the system's own."""
        return propagate(self.adjacency.at(layer), h, self.halo(layer, h), weight, dropout)


class ExactForward(Strategy):
    """The strategy of evaluation, and of exact extra steps: every halo row fresh.

    kept   {layer: its input h}, filled by forward passes while it is set; None: inputs are not kept
    """

    name = "the exact forward pass"
    kept: dict[int, torch.Tensor] | None = None

    def __init__(self, adjacency: Propagation, comm: Comm, plan: HaloPlan, purpose: str):
        self.adjacency, self.comm, self.plan, self.purpose = adjacency, comm, plan, purpose

    def halo(self, layer: int, h: torch.Tensor) -> Pending:
        if self.kept is not None:
            self.kept[layer] = h
        return self.comm.exchange(self.plan, h, layer, self.purpose)


class HaloDropout:
    """Dropout of layer inputs, drawn by global vertex id: the same mask for any partition, on halo rows as on
    inner rows.

    Rows travel and are cached before dropout; the receiver drops. ids are [n] and [m] int32.
    """

    recorder = UNCOUNTED  # who counts it

    def __init__(self, p: float, inner_ids: torch.Tensor, halo_ids: torch.Tensor, key: int):
        self.p, self.inner_ids, self.halo_ids, self.key = p, inner_ids, halo_ids, key

    def inner(self, x: R) -> R:
        """Own rows x [n, F] after dropout; x itself where p is 0."""
        return self._dropped(x, self.inner_ids) if self.p else x

    def halo(self, x: R, drawn: torch.Tensor | None = None) -> R:
        """As `inner`, of the halo's rows x [m, F], or of those at the places `drawn` in the halo."""
        if not self.p:
            return x
        return self._dropped(x, self.halo_ids if drawn is None else self.halo_ids[drawn])

    def _dropped(self, x: R, ids: torch.Tensor) -> R:
        dropped = drop_rows(x, ids, self.p, self.key)
        if self.recorder.training:
            if isinstance(x, SparseRows):
                self.recorder.work(work.drop(x.num_entries, 1, x.entries.itemsize))
            elif isinstance(dropped, torch.Tensor):
                once = work.drop(len(dropped), dropped.shape[1], dropped.element_size())
                self.recorder.work(once)
                if dropped.requires_grad:
                    self.recorder.later(once)
        return dropped


def propagate(
    adjacency: Propagation, h: torch.Tensor, pending: Pending, weight: torch.Tensor, drop: HaloDropout
) -> torch.Tensor:
    """(A_ii h + A_ih halo) W  [n, f_out], the local part computed while the halo is in flight."""
    features, rows = adjacency.layer_0(h), drop.inner(adjacency.inner_rows(h))
    recorder = adjacency.recorder
    if isinstance(rows, SparseRows):
        first, x = True, spmm(rows, weight)
    else:
        f_in, f_out = weight.shape
        first = adjacency.transform_first(f_in, f_out, features is not None)
        x = times(rows, weight, recorder, adjacency.fixed) if first else rows
    z = spmm(adjacency.inner, x)
    x_halo = arrived(pending, adjacency, h)
    if adjacency.halo is None:
        z = applied(KeepHaloInGraph, z, x_halo)
    elif first:
        halo_rows: Rows = x_halo if features is None else features.halo(x_halo)
        y = rows_times(drop.halo(halo_rows, adjacency.drawn), weight, recorder, adjacency.fixed)
        z = spmm(adjacency.halo, y, z)
    else:
        z = spmm(adjacency.halo, drop.halo(x_halo, adjacency.drawn), z)
    return z if first else times(z, weight, recorder, adjacency.fixed)


class KeepHaloInGraph(torch.autograd.Function):
    """Gives z back as it is, and keeps the halo in the autograd graph of a worker without halo edges: other
    workers read its rows, so that its backward exchange must run all the same.
    """

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, x_halo: torch.Tensor) -> torch.Tensor:
        ctx.shape = x_halo.shape
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return g, g.new_zeros(ctx.shape)


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        sparse: SparseRows | None,
        features: Features | None,
        adjacency: Adjacency,
        pending: Pending,
        drop: HaloDropout,
        gather_delta: Callable[[torch.Tensor], Pending],
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.sparse, ctx.adjacency, ctx.gather_delta = sparse, adjacency, gather_delta
        f_in, f_out = weight.shape
        first = sparse is not None or adjacency.transform_first(f_in, f_out, features is not None)
        recorder = adjacency.recorder
        own = x if sparse is None else sparse
        z = adjacency.inner.forward(rows_times(own, weight, recorder, adjacency.fixed) if first else x)
        x_halo = arrived(pending, adjacency, x)
        if adjacency.halo is not None and first:
            halo_rows: Rows = x_halo if features is None else features.halo(x_halo)
            y = rows_times(drop.halo(halo_rows), weight, recorder, adjacency.fixed)
            adjacency.halo.forward(y, out=z, accumulate=True)
        elif adjacency.halo is not None:
            adjacency.halo.forward(drop.halo(x_halo), out=z, accumulate=True)
        return z if first else times(z, weight, recorder, adjacency.fixed)

    @staticmethod
    def backward(
        ctx: Any, delta: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor, None, None, None, None, None, None]:
        x, weight = ctx.saved_tensors
        adjacency: Adjacency = ctx.adjacency
        # G_i: the worker's own part of A^T delta is computed while remote deltas are on their way.
        pending: Pending = ctx.gather_delta(delta)
        inner, out = adjacency.out_edges()
        g = inner.forward(delta)
        remote = checked(
            pending.wait(),
            (out.num_columns, delta.shape[1]),
            delta,
            "deltas, one per remote vertex that out-edges lead to",
        )
        if len(remote):
            out.forward(remote, out=g, accumulate=True)
        w_grad = adjoint_times(x, g, adjacency.recorder) if ctx.sparse is None else ctx.sparse.adjoint(g)
        x_grad = None
        if ctx.needs_input_grad[0]:
            x_grad = times(g, weight.t(), adjacency.recorder, adjacency.fixed)
        return x_grad, w_grad, None, None, None, None, None, None


def propagate_gathered(
    adjacency: Adjacency,
    h: torch.Tensor,
    pending: Pending,
    weight: torch.Tensor,
    drop: HaloDropout,
    gather_delta: Callable[[torch.Tensor], Pending],
) -> torch.Tensor:
    """As `propagate`, but halo rows get no gradient. In the backward pass `gather_delta(delta [n, f_out])`
    starts fetching the deltas of the remote vertices that the worker's out-edges reach; `wait()` on what it
    returns gives them, [m', f_out]."""
    features, rows = adjacency.layer_0(h), drop.inner(adjacency.inner_rows(h))
    sparse = rows if isinstance(rows, SparseRows) else None
    x = rows if sparse is None else h
    return applied(_Gathered, x, weight, sparse, features, adjacency, pending, drop, gather_delta)


class BackwardMark(torch.autograd.Function):
    """The identity. When the backward pass reaches it, it tells the recorder that layer `layer` begins."""

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, recorder: Recorder, layer: int) -> torch.Tensor:
        ctx.recorder, ctx.layer, ctx.due = recorder, layer, recorder.due(ctx.needs_input_grad[0])
        return z.view_as(z)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.recorder.segment("compute", "backward", ctx.layer)
        ctx.recorder.work(*ctx.due)
        return g, None, None
