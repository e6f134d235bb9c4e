"""Scores of one's own, beside those of `harness.core.scores`: values that follow from counts which add up
over workers, and are therefore exact however vertices are divided.

Each is a dataclass that `score.NAME._target_` names; those of the tree stand in `conf/score/`.
"""

import math
from dataclasses import dataclass

import torch


@dataclass
class Score:
    """Base of every such score."""

    def counts(self, predicted: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What one worker's vertices of a split contribute, [m]: added up over workers in double precision.

        predicted   [k] int64 class, or [k, C] bool where a vertex has several labels (`evaluate.threshold`)
        logits      [k, C]
        labels      [k] int64, or [k, C] where a vertex has several; 1 where it has the label
        """
        raise NotImplementedError

    def value(self, totals: torch.Tensor) -> float:
        """The score, a share of 1, from the sums [m] over all workers; NaN where nothing can be scored."""
        raise NotImplementedError


@dataclass
class MacroF1(Score):
    """The mean of F1 = 2 TP / (predicted + true) over the classes that are predicted or true somewhere."""

    def counts(self, predicted: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if labels.ndim == 1:
            classes = torch.arange(logits.shape[1], device=logits.device)
            predicted, labels = predicted[:, None] == classes, labels[:, None] == classes
        true = labels > 0
        right, either = (predicted & true).sum(0), predicted.sum(0) + true.sum(0)
        return torch.cat([2 * right, either])

    def value(self, totals: torch.Tensor) -> float:
        right, either = totals.view(2, -1)
        there = either > 0
        return float((right[there] / either[there]).mean()) if there.any() else math.nan
