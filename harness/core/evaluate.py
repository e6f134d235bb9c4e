"""Evaluation: an exact full-graph forward pass with the current weights, whatever the system trains on.

It runs outside the train clock, so nothing of it is timed as training or counted as communication.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from harness.comm.comm import Comm
from harness.core.counted import Score
from harness.core.inputs import Static
from harness.core.models import Model
from harness.core.propagate import ExactForward, HaloDropout
from harness.core.scores import Scorer, Scores


class Evaluator:
    """Scores of each split of the whole graph, the same on every worker (`harness.core.scores`).

    make_input   builds the exact static input; called where none is kept: at the first evaluation, and again
                 after `Trainer.exact_inputs`, which keeps none
    cut, scores  see `harness.core.scores.Scorer`
    features     gives layer 0's input [n, f0], where that differs between evaluations; None: it is static
    """

    def __init__(
        self,
        strategy: ExactForward,
        comm: Comm,
        make_input: Callable[[], Static],
        masks: list[torch.Tensor],
        labels: torch.Tensor,
        num_layers: int,
        cut: float,
        scores: Mapping[str, Score],
        features: Callable[[], torch.Tensor] | None = None,
    ):
        self.strategy, self.make_input, self.features = strategy, make_input, features
        self.scorer = Scorer(comm, labels, masks, cut, scores)
        self.input: Static | None = None
        no_ids = torch.empty(0, dtype=torch.int32)
        self.no_dropout = [HaloDropout(0.0, no_ids, no_ids, 0)] * num_layers

    @torch.no_grad()
    def logits(self, model: Model) -> torch.Tensor:
        """Exact logits [n, C] of the worker's own vertices."""
        x = torch.empty(0)  # no layer reads it where there is a static input
        if self.features is not None:
            x = self.features()
        elif self.input is None:
            self.input = self.make_input()
        logits: torch.Tensor = model(x, self.input, self.strategy, self.no_dropout)
        return logits

    def hidden(self, model: Model) -> dict[int, torch.Tensor]:
        """{layer: H [n, F]} that the exact forward pass gives layers 1.. to aggregate."""
        asked: dict[int, torch.Tensor] = {}
        self.strategy.kept = asked
        try:
            self.logits(model)
        finally:
            self.strategy.kept = None
        return asked

    def __call__(self, model: Model) -> Scores:
        return self.scorer(self.logits(model))


def targets(labels: np.ndarray, device: torch.device) -> torch.Tensor:
    """Labels as `local_loss` takes them, on a device: of one label per vertex [k] int64, of several [k, C] in
    the default precision."""
    return torch.as_tensor(labels).to(device, torch.int64 if labels.ndim == 1 else torch.get_default_dtype())


def local_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    train: torch.Tensor,
    divisor: float,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """The summed loss of the rows `train` [t], divided by `divisor`; where that is the count of all workers'
    training vertices, a share of the global mean. weights [t]: factors of each row's loss; None: 1.

    Softmax cross-entropy; for multi-label graphs the binary cross-entropy averaged over classes. Shares add
    up over workers.
    """
    rows, one_label = logits[train], labels.ndim == 1
    loss = F.cross_entropy if one_label else F.binary_cross_entropy_with_logits
    whole = divisor if one_label else divisor * labels.shape[1]
    if weights is None:
        return loss(rows, labels[train], reduction="sum") / whole
    each = loss(rows, labels[train], reduction="none")
    return (each if one_label else each.sum(1)) @ weights / whole


@dataclass
class EarlyStopping:
    """patience: evaluations in a row without a better score after which a run ends; 0: it never ends early.

    best    the highest score so far; without_better: evaluations that came after it
    """

    patience: int
    best: float = -math.inf
    without_better: int = 0

    def over(self, score: float) -> bool:
        """Whether the run ends with this evaluation. A split that cannot be scored (NaN) does not count."""
        if math.isnan(score):
            return False
        self.without_better = 0 if score > self.best else self.without_better + 1
        self.best = max(score, self.best)
        return self.ended

    @property
    def ended(self) -> bool:
        """Whether the run ends with the last evaluation that was counted."""
        return 0 < self.patience <= self.without_better
