"""Optimisers: what makes a step of the weights out of their gradients, the same for every system.

Each is a dataclass that `optimiser._target_` names; its values stand in `conf/optimiser/`. A step of Adam is
fused: it reads and writes each value once, instead of once per operation.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from harness.base.bounds import number
from harness.base.errors import InputError
from harness.base.uncompiled import keep_compiler_out

LARGEST = 1e38  # that a float of four bytes holds

keep_compiler_out()  # every torch optimiser imports it


@dataclass
class Optimiser:
    """Base of every optimiser.

    lr             learning rate, before the schedule
    weight_decay   how strongly weights are drawn to 0; how it is applied is the optimiser's own
    """

    lr: float = number(0.01, 0, LARGEST, above=True)
    weight_decay: float = number(5e-4, 0, 10**6)

    def make(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        """An optimiser of `parameters` with the learning rate `lr`. Under combine=quantised it gets some rows
        of each matrix, so a value's step may depend on that value's gradients alone: one that goes by the
        norm of a whole matrix then trains otherwise."""
        raise NotImplementedError


@dataclass
class Adam(Optimiser):
    """Adam (Kingma and Ba, 2015). weight_decay is added to the gradient (L2)."""

    def make(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=lr, weight_decay=self.weight_decay, fused=True)


@dataclass
class AdamW(Optimiser):
    """AdamW (Loshchilov and Hutter, 2019): Adam whose weight decay, lr * weight_decay * W, is taken from the
    weights apart from the gradient.

    amsgrad   divide by the largest second moment so far instead of the latest (Reddi, Kale and Kumar, 2018)
    """

    weight_decay: float = number(0.01, 0, 10**6)
    amsgrad: bool = False

    def make(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            parameters, lr=lr, weight_decay=self.weight_decay, amsgrad=self.amsgrad, fused=True
        )


@dataclass
class Sgd(Optimiser):
    """Gradient descent; every step sees the whole graph. weight_decay is added to the gradient (L2).

    momentum   0 to 1: the share of the last step's velocity that is kept
    nesterov   take the gradient as if the velocity had already been applied (Nesterov's momentum)
    """

    lr: float = number(0.1, 0, LARGEST, above=True)
    momentum: float = number(0.9, 0, 0.9999)
    nesterov: bool = False

    def __post_init__(self) -> None:
        if self.nesterov and not self.momentum:
            raise InputError("nesterov=true needs a momentum above 0; give momentum=0.9, or nesterov=false")

    def make(self, parameters: Iterable[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            parameters, lr=lr, weight_decay=self.weight_decay, momentum=self.momentum, nesterov=self.nesterov
        )
