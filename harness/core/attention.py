"""Edge softmax over a worker's inner and halo vertices (Velickovic et al., "Graph Attention Networks", ICLR
2018).

    e_vu = LeakyReLU(target_v + source_u),  alpha_vu = exp(e_vu) / sum_w exp(e_vw),  z_v = sum_u alpha_vu y_u
                                            (eqs. 1-4)

for the in-neighbours u of v and v itself, with one alpha per edge and head. target_v and source_u are the two
halves of the score a . [W h_v || W h_u]. Compiled loops compute this on the CPU, torch operations elsewhere;
both keep alpha [E, heads] for the backward pass.
"""

from typing import Any

import numpy as np
import torch

from harness.base.autograd import applied
from harness.base.hollow import hollow
from harness.comm.recorder import UNCOUNTED, Recorder
from harness.comm.work import attention
from harness.core.kernels import attention_loops as loops
from harness.core.kernels.numba_kernel import balanced_bounds
from harness.core.kernels.parallel import use_threads
from harness.data.csr import transpose_entries
from harness.data.partition.shard import Csr


class AttentionEdges:
    """The in-edges of the first n of c inner vertices, with a self-loop for each, by row and by column.
    Columns are the c inner vertices and then the m of the halo.

    inner, halo   [n, c] and [n, m]; None: no halo

    By row: indptr [n + 1], indices [E] (a row's columns as given, its self-loop last), target [E] the row of
    each edge. By column: starts [c + m + 1], edge [E] positions in `indices`.
    """

    def __init__(self, inner: Csr, halo: Csr | None, device: torch.device):
        n, c = inner.num_rows, inner.num_columns
        total = c + (halo.num_columns if halo is not None else 0)
        blocks = [(inner, 0)] + ([(halo, c)] if halo is not None else [])
        rows = np.concatenate(
            [np.repeat(np.arange(n), np.diff(block.indptr)) for block, _ in blocks] + [np.arange(n)]
        )
        columns = np.concatenate(
            [block.indices.astype(np.int64) + first for block, first in blocks] + [np.arange(n)]
        )
        order = np.argsort(rows, kind="stable")
        self.target, self.indices = rows[order].astype(np.int32), columns[order].astype(np.int32)
        self.indptr = np.concatenate([[0], np.bincount(rows, minlength=n).cumsum()]).astype(np.int64)
        self.starts, _, self.edge = transpose_entries(self.indptr, self.indices, total, True)
        self.num_rows, self.num_columns, self.device = n, total, device
        if device.type != "cpu":
            self.target_on_device = torch.from_numpy(self.target).long().to(device)
            self.indices_on_device = torch.from_numpy(self.indices).long().to(device)

    @property
    def num_edges(self) -> int:
        return len(self.indices)


def attend(
    edges: AttentionEdges,
    y: torch.Tensor,
    source: torch.Tensor,
    target: torch.Tensor,
    recorder: Recorder = UNCOUNTED,
) -> torch.Tensor:
    """z [n, heads, f] from y [c + m, heads, f], source [c + m, heads] and target [n, heads]; differentiable
    in all three. recorder: who counts it.
    """
    if edges.device.type == "cpu":
        z = applied(_Attend, y, source, target, edges)
    else:
        z = attend_with_torch(edges.indices_on_device, edges.target_on_device, y, source, target)
    if recorder.training:
        (heads, f), size = y.shape[1:], y.element_size()
        ahead, back = attention(edges.num_rows, edges.num_columns, edges.num_edges, heads, heads * f, size)
        recorder.work(ahead)
        if z.requires_grad:
            recorder.later(back)
    return z


def attend_with_torch(
    indices: torch.Tensor, rows: torch.Tensor, y: torch.Tensor, source: torch.Tensor, target: torch.Tensor
) -> torch.Tensor:
    """`attend` by differentiable torch operations; indices, rows [E] int64."""
    score = torch.nn.functional.leaky_relu(target[rows] + source[indices], loops.SLOPE)
    top = torch.full_like(target, -torch.inf).scatter_reduce(0, rows[:, None].expand_as(score), score, "amax")
    weight = (score - top.detach()[rows]).exp()
    alpha = weight / torch.zeros_like(target).index_add(0, rows, weight)[rows]
    return torch.zeros(len(target), *y.shape[1:], dtype=y.dtype, device=y.device).index_add(
        0, rows, alpha[:, :, None] * y[indices]
    )


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: torch.Tensor, source: torch.Tensor, target: torch.Tensor, edges: AttentionEdges
    ) -> torch.Tensor:
        y, source, target = y.contiguous(), source.contiguous(), target.contiguous()
        alpha = torch.empty(edges.num_edges, y.shape[1], dtype=y.dtype)
        z = torch.empty(edges.num_rows, *y.shape[1:], dtype=y.dtype)
        ctx.save_for_backward(y, source, target, alpha)
        ctx.edges = edges
        if hollow(y):
            return z
        arrays = [each.numpy() for each in (y, source, target, alpha, z)]
        loops.forward_by_rows(
            balanced_bounds(edges.indptr, use_threads()), edges.indptr, edges.indices, *arrays
        )
        return z

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        y, source, target, alpha = ctx.saved_tensors
        edges: AttentionEdges = ctx.edges
        grad = grad.contiguous()
        d_score, d_target = torch.empty_like(alpha), torch.empty_like(target)
        d_y, d_source = torch.empty_like(y), torch.empty_like(source)
        if hollow(y):
            return d_y, d_source, d_target, None
        arrays = [each.numpy() for each in (y, source, target, alpha, grad, d_score, d_target)]
        threads = use_threads()
        rows, columns = (balanced_bounds(each, threads) for each in (edges.indptr, edges.starts))
        loops.backward_by_rows(rows, edges.indptr, edges.indices, *arrays)
        arrays = [each.numpy() for each in (alpha, grad, d_score, d_y, d_source)]
        loops.backward_by_columns(columns, edges.starts, edges.edge, edges.target, *arrays)
        return d_y, d_source, d_target, None
