"""What stands between two layers: activations, and batch norm over the vertices of all workers."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from harness.base.autograd import applied
from harness.comm.comm import Comm

EPS = 1e-5  # keeps the divisor of a column from 0 whose values are all equal
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
}


class BatchNorm(nn.Module):
    """Batch norm (Ioffe and Szegedy, 2015) whose batch is the whole graph:

        y = weight (z - mean) / sqrt(var + EPS) + bias          mean, var [f] over all vertices of all workers

    Every pass sees the whole graph, so the exact forward pass of evaluation takes its own statistics, as
    training does: there are no running averages, and nothing to keep for a resumed run.

    Bytes per layer and pass, over P workers: 2 (P - 1) (2 f + 1) values forward, 2 (P - 1) 2 f backward,
    purpose `batch_norm`.
    """

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, z: torch.Tensor, comm: Comm, vertices: int, layer: int) -> torch.Tensor:
        """The normalised rows y [n, f] of z [n, f], whose first `vertices` rows are this worker's vertices;
        the others are mirrors, whose masters bring them into the statistics.
        """
        return applied(_Standardise, z, comm, vertices, layer) * self.weight + self.bias


class _Standardise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: torch.Tensor, comm: Comm, vertices: int, layer: int) -> torch.Tensor:
        # Each worker sums its own rows and the sums are added up. The variance is summed around the mean, in
        # a second all-reduce: the difference of two large sums would lose its digits.
        own = z[:vertices]
        sums = torch.cat([own.sum(0), own.new_tensor([float(vertices)])])
        comm.all_reduce(sums, "batch_norm", layer, "forward")
        count = sums[-1]
        centred = z - sums[:-1] / count
        squares = centred[:vertices].square().sum(0)
        comm.all_reduce(squares, "batch_norm", layer, "forward")
        scale = torch.rsqrt(squares / count + EPS)
        standard = centred * scale
        ctx.save_for_backward(standard, scale, count)
        ctx.given = comm, vertices, layer
        return standard

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        # dL/dz = scale (g - (sum g + standard sum(g standard)) / count), both sums over all vertices. Rows of
        # one vertex on several workers each bring a part of g; the master subtracts for all of them.
        standard, scale, count = ctx.saved_tensors
        comm, vertices, layer = ctx.given
        sums = torch.cat([g.sum(0), (g * standard).sum(0)])
        comm.all_reduce(sums, "batch_norm", layer)
        total, along = sums.view(2, -1) / count
        back = g.clone(memory_format=torch.contiguous_format)
        back[:vertices] -= total + standard[:vertices] * along
        return back * scale, None, None, None
