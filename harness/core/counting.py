"""Counting what a worker computes where it computes it, in the backward pass too."""

import torch

from harness.comm.recorder import Recorder
from harness.comm.work import Work, dense, stream
from harness.core.dense import adjoint, times_weight


def times(x: torch.Tensor, weight: torch.Tensor, recorder: Recorder, fixed: bool = False) -> torch.Tensor:
    """x @ weight, x [n, f_in] and weight [f_in, f_out], counted: the product, and backwards x^T g for the
    weight and g W^T for x, where these need a gradient. fixed: x has the same shape in every epoch."""
    z = times_weight(x, weight, fixed)
    if recorder.training:
        (n, f_in), f_out, size = x.shape, weight.shape[1], z.element_size()
        recorder.work(dense(n, f_in, f_out, size))
        if z.requires_grad and weight.requires_grad:
            recorder.later(dense(f_in, n, f_out, size))
        if z.requires_grad and x.requires_grad:
            recorder.later(dense(n, f_out, f_in, size))
    return z


def adjoint_times(x: torch.Tensor, g: torch.Tensor, recorder: Recorder) -> torch.Tensor:
    """x^T g [f_in, f_out] of x [n, f_in] and g [n, f_out], counted; not differentiable."""
    recorder.work(dense(x.shape[1], len(x), g.shape[1], g.element_size()))
    return adjoint(x, g)


def streamed(
    z: torch.Tensor, recorder: Recorder, *, reads: int, writes: int, back: tuple[int, int] = (0, 0)
) -> torch.Tensor:
    """Count the passes over all values that have made z [n, ..]; returns z.

    reads, writes   how many times as many values as z has were read, and written
    back            the same of the backward pass; (0, 0): it does nothing
    """
    if recorder.training:
        rows, size = len(z), z.element_size()
        width = z.numel() // max(rows, 1)
        recorder.work(stream(rows, width, size, reads, writes))
        if z.requires_grad and any(back):
            recorder.later(stream(rows, width, size, *back))
    return z


def lost(rows: int, logits: torch.Tensor) -> tuple[Work, Work]:
    """The work of the loss of `rows` of the logits [n, C]. Forward: these rows are taken out and their
    log-softmax is made. Backward: its gradient is made and put into rows for all n."""
    n, classes, size = len(logits), logits.shape[1], logits.element_size()
    ahead, back = stream(rows, classes, size, 3, 2), stream(rows, classes, size, 2, 1)
    return ahead, back._replace(written=back.written + n * classes * size)


def stepped(optimiser: torch.optim.Optimizer) -> list[Work]:
    """The work of an optimiser's step: each parameter that has a gradient, the gradient and what the
    optimiser keeps in the parameter's shape are read, and all but the gradient written."""
    made = []
    for group in optimiser.param_groups:
        for parameter in (each for each in group["params"] if each.grad is not None):
            state = optimiser.state.get(parameter, {}).values()
            kept = sum(getattr(each, "shape", None) == parameter.shape for each in state)
            size = parameter.element_size()
            made.append(stream(1, parameter.numel(), size, 2 + kept, 1 + kept))
    return made
