"""Scores that follow from counts which add up over workers, and are therefore exact however vertices are
divided. `harness.core.scores` says what accuracy and balanced accuracy are; every run has them.

A score of one's own is a dataclass that `score.NAME._target_` names; the tree's stand in `conf/score/`.
"""

import math
from dataclasses import dataclass

import torch


@dataclass
class Score:
    """Base of every such score."""

    def counts(self, predicted: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What one worker's vertices of a split contribute, a tensor of numbers: added up over workers in
        double precision.

        predicted   [k] int64 class, or [k, C] bool where a vertex has several labels (`evaluate.threshold`)
        logits      [k, C]
        labels      [k] int64, or [k, C] where a vertex has several; 1 where it has the label
        """
        raise NotImplementedError

    def value(self, totals: torch.Tensor) -> float:
        """The score, a share of 1, from the sums over all workers; NaN where nothing can be scored."""
        raise NotImplementedError


class Accuracy(Score):
    """Counts are numerator and denominator, and the vertices of the split."""

    def counts(self, predicted: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        vertices = torch.full((), len(labels), device=labels.device)
        if labels.ndim == 1:
            return torch.stack([(predicted == labels).sum(), vertices, vertices])
        true = labels > 0
        # Micro-F1 = 2 TP / (2 TP + FP + FN) = 2 TP / (predicted + true).
        return torch.stack([2 * (predicted & true).sum(), predicted.sum() + true.sum(), vertices])

    def value(self, totals: torch.Tensor) -> float:
        right, possible, vertices = totals
        return mean(right / possible.clamp(min=1), vertices > 0)


class Balanced(Score):
    """Counts are TP, positives, TN and negatives of every class. With one label per vertex the score is the
    recall alone, so TP and positives are given twice."""

    def counts(self, predicted: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if labels.ndim == 1:
            recall = [
                torch.bincount(each, minlength=logits.shape[1])
                for each in (labels[predicted == labels], labels)
            ]
            return torch.stack(recall * 2)
        true = labels > 0
        there = [predicted & true, true, ~predicted & ~true, ~true]
        return torch.stack([each.sum(0) for each in there])

    def value(self, totals: torch.Tensor) -> float:
        right, positives, rejected, negatives = totals
        recalls = right / positives.clamp(min=1) + rejected / negatives.clamp(min=1)
        return mean(recalls / 2, (positives > 0) & (negatives > 0))


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
        return mean(right / either, either > 0)


def mean(values: torch.Tensor, there: torch.Tensor) -> float:
    """The mean of the values that are there; NaN where none is."""
    return float(values[there].mean()) if there.any() else math.nan
