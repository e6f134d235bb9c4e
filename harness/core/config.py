"""The typed schema of the blocks `model` and `evaluate`; the values stand in `conf/`."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from harness.base.bounds import LAYERS, ROUNDS, number, word
from harness.base.errors import InputError

ACTIVATIONS = ("relu", "elu", "leaky_relu", "gelu", "tanh")
NORMS = ("none", "layer", "batch", "l2")


@dataclass
class ModelConfig:
    """Base of every model: `layers` graph convolutions, and what stands between them. A model derives from it
    and says what a layer is.

    name         what messages and tables call it
    layers       graph convolutions, one after another; each needs its halo rows
    hidden       width of the rows between layers
    dropout      acts on every layer's input but the features
    input_dropout   acts on the features. Layer 0's product A X is then no longer kept under features=once:
                 it is computed in every epoch, from rows that are kept
    norm         between layers: "none", "layer" (layer norm before the activation), "batch" (batch norm
                 before the activation, its statistics over all vertices of all workers) or "l2" (rows of
                 length 1 after the activation)
    activation   between layers: "relu", "elu", "leaky_relu" (slope 0.01), "gelu" or "tanh"
    residual     adds a layer's input to its activation's output, in every layer but the last: hidden rows as
                 they are, features through a matrix X W
    """

    name: str = ""
    layers: int = number(2, 1, LAYERS)
    hidden: int = number(64, 1, 2**20)
    dropout: float = number(0.5, 0.0, 0.99)
    norm: str = word(*NORMS)
    activation: str = word(*ACTIVATIONS)
    residual: bool = False
    input_dropout: float = number(0.0, 0.0, 0.99)

    # Whether a layer is of the form A H W with a fixed propagation matrix A. One that is not asks the system
    # for halo rows (`System.halo`), and systems with a product of their own refuse it.
    matrix: ClassVar[bool] = True
    # Whether its layers give as many rows as `strategy.adjacency.at(layer).num_rows` says, which under
    # rows=needed are fewer than they take. A model that says no is refused under rows=needed.
    fewer_rows: ClassVar[bool] = False
    # Whether a shift common to a row of the last layer's A H W shifts that row's logits alike, which the loss
    # of one label per vertex does not see. Systems may then leave out a column of it.
    additive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.name = self.name or type(self).__name__.lower()

    @property
    def aggregation(self) -> str:
        """The name `harness.core.adjacency` knows the propagation matrix by: "symmetric", "row" or "mean"."""
        return "symmetric"

    def layer(self, f_in: int, f_out: int, last: bool, generator: torch.Generator) -> torch.nn.Module:
        """One layer, from rows [n, f_in] to [n, f_out], its weights drawn from `generator`; the last one
        gives logits. Norm, activation and residual are added around it.

        See `harness.core.models.Layer.forward` for the one method that it needs.
        """
        raise NotImplementedError


@dataclass
class EvaluateConfig:
    """every: epochs between exact evaluations (the last epoch is always evaluated); 0 evaluates at the end
    only.

    threshold   of graphs whose vertices have several labels: a label is predicted where its probability, the
                logistic function of its logit, is above this (micro-F1 and balanced accuracy)
    patience    the run ends after so many evaluations in a row without a better validation score (the one
                that its best epoch is chosen by); 0: it goes on to its last epoch
    """

    every: int = number(1, 0, ROUNDS)
    threshold: float = number(0.5, 0, 0.999999, above=True)
    patience: int = number(0, 0, ROUNDS)

    def __post_init__(self) -> None:
        if self.patience and not self.every:
            raise InputError(
                f"patience={self.patience} counts evaluations, of which every=0 makes one at the end; give"
                " every=1 or more"
            )

    @property
    def cut(self) -> float:
        """The logit whose probability is `threshold`: 0 for 0.5."""
        return math.log(self.threshold / (1 - self.threshold))
