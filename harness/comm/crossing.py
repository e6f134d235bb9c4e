"""Rows that cross between workers while a layer computes, as autograd sees them."""

from typing import Any

import torch

from harness.base.autograd import applied
from harness.comm.recorder import Recorder
from harness.comm.rows import scatter_add_rows
from harness.comm.work import pack, stream


class Crossing:
    """A layer's halo under way: two autograd nodes around the work that needs no remote rows. `wait()` once,
    for the halo [m, F].

    A subclass says what is sent and what is used, in four methods:

                  before the local work                 after the local work
        forward   send(h), when h is there              take(), when the halo is needed
        backward  send_back(g), when the gradient g     take_back(), when the gradient of h is needed
                  of the halo is there

    The backward pass runs autograd's nodes in the reverse of the order in which they were made. So gradients
    leave before the local work of the backward pass and are waited for after it.
    """

    def __init__(self, recorder: Recorder, layer: int, h: torch.Tensor):
        self.recorder, self.layer = recorder, layer
        self.token: torch.Tensor | None = applied(_Before, h, self)

    def wait(self) -> torch.Tensor:
        # autograd's graph holds this object; if it held the graph's tensor too, neither would be freed
        token, self.token = self.token, None
        return applied(_After, token, self)

    def send(self, h: torch.Tensor) -> None:
        """Start sending rows of h [n, F] to whoever reads them."""
        raise NotImplementedError

    def take(self) -> torch.Tensor:
        """The halo [m, F] to aggregate."""
        raise NotImplementedError

    def send_back(self, g: torch.Tensor) -> None:
        """Start sending the halo's gradients g [m, F] to the rows' owners."""
        raise NotImplementedError

    def take_back(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Rows [s] and gradients [s, F] to add up in h's gradient, in this order; None where there are
        none.
        """
        raise NotImplementedError


class _Before(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: torch.Tensor, crossing: Crossing) -> torch.Tensor:
        ctx.crossing, ctx.shape, ctx.due = crossing, h.shape, crossing.recorder.due(ctx.needs_input_grad[0])
        crossing.send(h)
        return h.new_empty(())  # ties the two nodes together; holds nothing

    @staticmethod
    def backward(ctx: Any, token: torch.Tensor) -> tuple[torch.Tensor, None]:
        crossing: Crossing = ctx.crossing
        back = crossing.take_back()
        with crossing.recorder.inside("rest", "unpack", crossing.layer):
            g = token.new_zeros(ctx.shape)
            crossing.recorder.work(stream(len(g), g.numel() // max(len(g), 1), g.element_size(), 0, 1))
            if back is not None:
                crossing.recorder.work(pack(len(back[1]), back[1].shape[1], g.element_size(), added=True))
                scatter_add_rows(g, *back)
        crossing.recorder.work(*ctx.due)
        return g, None


class _After(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token: torch.Tensor, crossing: Crossing) -> torch.Tensor:
        ctx.crossing, ctx.due = crossing, crossing.recorder.due(ctx.needs_input_grad[0])
        return crossing.take().detach()  # what is kept elsewhere must not become part of this graph

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.crossing.send_back(g.contiguous())
        ctx.crossing.recorder.work(*ctx.due)
        return g.new_empty(()), None
