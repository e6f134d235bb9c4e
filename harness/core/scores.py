"""Scores of the exact forward pass over the whole graph: accuracy, area under the ROC curve, balanced
accuracy.

Every score is exact and the same on every worker, however the vertices are divided: workers exchange the
scores of their positives once per evaluation, and sum counts.

    accuracy   share of vertices whose highest logit is their class; of several labels per vertex the
               micro-F1, 2 TP / (predicted + true), a label being predicted where its probability is above
               `evaluate.threshold` (0.5: where its logit is above 0)
    auc        mean over classes c of P(s_c(positive) > s_c(negative)) + P(equal) / 2, positives being the
               vertices of class c and negatives the others of the split; s_c the log-odds of class c under
               the softmax (two classes: the difference of their logits, one pair of sets; several labels per
               vertex: the label's logit)
    balanced   mean over classes of the recall, TP / positives; of several labels per vertex the mean of
               (TP / positives + TN / negatives) / 2

A class without positives in a split is left out of that split's mean. So is one without negatives, for `auc`
and, of several labels per vertex, for `balanced`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from harness.comm.comm import Comm
from harness.core.counted import Accuracy, Balanced, Score, mean

SPLITS = ("train", "val", "test")
RANKED = ("val", "test")  # the splits that auc and balanced accuracy are given for


@dataclass(frozen=True)
class Scores:
    """Scores by split, in the order of SPLITS and RANKED; NaN for a split without vertices, or where no class
    has a mean.

    not_finite   vertices of the whole graph that have a logit which is not a finite number; the scores are
                 then NaN
    more         scores of `harness.core.counted` by name, in the order of RANKED
    """

    accuracy: tuple[float, float, float]
    auc: tuple[float, float]
    balanced: tuple[float, float]
    not_finite: int = 0
    more: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def leading(self, two_classes: bool) -> float:
        """The validation score that a run is judged by: the AUC of a graph with two classes, where both
        splits have vertices of both, else the accuracy (as `harness.results.summary.leading_score`)."""
        return self.auc[0] if two_classes and not any(map(math.isnan, self.auc)) else self.accuracy[1]

    def named(self) -> dict[str, float]:
        """`more`, by the names of a trace's `metrics`."""
        return {
            f"{split}_{name}": value for name, pair in self.more.items() for split, value in zip(RANKED, pair)
        }

    def columns(self) -> dict[str, float]:
        """By column of a trace's `epochs`."""
        named = {f"{split}_acc": value for split, value in zip(SPLITS, self.accuracy)}
        for score in ("auc", "balanced"):
            named |= {f"{split}_{score}": value for split, value in zip(RANKED, getattr(self, score))}
        return named


class Scorer:
    """Scores logits [n, C] of a worker's own vertices. labels [n] or [n, C]; masks: local rows of each split,
    [k] each.

    cut    where vertices have several labels, the logit above which a label is predicted
    more   scores beside the three, by name
    """

    def __init__(
        self,
        comm: Comm,
        labels: torch.Tensor,
        masks: list[torch.Tensor],
        cut: float = 0.0,
        more: Mapping[str, Score] | None = None,
    ):
        self.comm, self.labels, self.masks, self.cut, self.more = comm, labels, masks, cut, more or {}
        self.positives: list[list[int]] | None = None  # by worker: how many, by ranked split and class

    def __call__(self, logits: torch.Tensor) -> Scores:
        # Workers exchange the scores of their positives, and each counts how many of all workers' positives
        # outrank each of its own negatives. Two classes are one pair of sets: who is ahead in one is behind
        # in the other.
        classes = 1 if logits.shape[1] == 2 and self.labels.ndim == 1 else logits.shape[1]
        positives = self.positives = self.positives or self._count_positives(classes)
        split = [(logits[mask], self.labels[mask]) for mask in self.masks]
        ranked = [self._ranked(*pair) for pair in split[1:]]
        bad = (~torch.isfinite(logits)).any(1).sum()
        won = [outranked(*pair, theirs) for pair, theirs in zip(ranked, self._gather(ranked, positives))]
        sizes = torch.tensor([len(mask) for mask in self.masks[1:]], device=logits.device)
        own = [Accuracy(), Balanced(), *self.more.values()]
        asked = [(own[0], split[0]), *((score, pair) for score in own for pair in split[1:])]
        counts = [score.counts(predicted(*pair, self.cut), *pair) for score, pair in asked]
        # All counts are added up over workers at once; every score follows from the totals.
        bad, sizes, *rest = self._total([bad[None], sizes, *won, *counts])
        if bad:
            none = (math.nan, math.nan)
            return Scores((math.nan, *none), none, none, int(bad), dict.fromkeys(self.more, none))
        found = torch.tensor(positives, dtype=torch.float64).sum(0).view(2, classes)
        val_auc, test_auc = (_auc(*each) for each in zip(rest[:2], found, sizes))
        train, *others = (score.value(totals) for (score, _), totals in zip(asked, rest[2:]))
        accuracy, balanced, *more = zip(others[::2], others[1::2])
        return Scores((train, *accuracy), (val_auc, test_auc), balanced, more=dict(zip(self.more, more)))

    def _total(self, counts: list[torch.Tensor]) -> list[torch.Tensor]:
        """The sums over workers of tensors of counts, exact in double precision, in one operation."""
        flat = torch.cat([each.double().reshape(-1) for each in counts])
        totals = torch.tensor(self.comm.total(flat.tolist()), dtype=torch.float64)
        return [
            part.view(each.shape)
            for part, each in zip(totals.split([each.numel() for each in counts]), counts)
        ]

    def _ranked(self, logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What a split is ranked by: s [k, classes] float64, and which entries are positives, [k, classes]
        bool.
        """
        z = logits.double()
        if labels.ndim == 2:
            return z, labels > 0
        if z.shape[1] == 2:
            return z[:, 1:] - z[:, :1], labels[:, None] == 1
        return log_odds(z), labels[:, None] == torch.arange(z.shape[1], device=z.device)

    def _count_positives(self, classes: int) -> list[list[int]]:
        mine = torch.zeros(2 * classes, dtype=torch.int64, device=self.labels.device)
        for number, mask in enumerate(self.masks[1:]):
            labels = self.labels[mask]
            counts = (
                (labels > 0).sum(0)
                if labels.ndim == 2
                else torch.bincount(labels, minlength=classes + (classes == 1))
            )
            mine[number * classes : (number + 1) * classes] = counts[-classes:]
        return [[int(count) for count in part] for part in self.comm.all_gather(mine, -1, "evaluate")]

    def _gather(
        self, ranked: list[tuple[torch.Tensor, torch.Tensor]], positives: list[list[int]]
    ) -> list[list[torch.Tensor]]:
        """The scores of all workers' positives, by ranked split and class, each ascending."""
        mine = torch.cat([scores.t()[positive.t()] for scores, positive in ranked])  # by split, then class
        parts = self.comm.all_gather(mine, -1, "evaluate")
        groups = zip(*(part.split(counts) for part, counts in zip(parts, positives)))
        merged = [torch.cat(group).sort().values for group in groups]
        return [merged[: len(merged) // 2], merged[len(merged) // 2 :]]


def log_odds(z: torch.Tensor) -> torch.Tensor:
    """log(p / (1 - p)) of the softmax p of z [k, C], C > 1: z_c less the logarithm of the sum of exp(z_j),
    j != c. It grows with p, and tells apart what rounds to a probability of 1."""
    logs = torch.log_softmax(z, 1)
    odds = logs - torch.log(-torch.expm1(logs))
    # Of the highest logit 1 - p would vanish in p's rounding: its sum is made of the others.
    top, first = z.max(1, keepdim=True)
    return odds.scatter(1, first, top - z.scatter(1, first, -math.inf).logsumexp(1, keepdim=True))


def outranked(scores: torch.Tensor, positive: torch.Tensor, positives: list[torch.Tensor]) -> torch.Tensor:
    """[classes] float64: for each class, summed over the negatives among `scores` [k, classes], how many of
    all workers' `positives`, ascending, score higher; ties count half."""
    won = scores.new_zeros(len(positives))
    for c, everyones in enumerate(positives):
        column = scores[~positive[:, c], c]
        not_above = torch.searchsorted(everyones, column, right=True)
        below = torch.searchsorted(everyones, column)
        won[c] = (2 * len(everyones) - not_above - below).sum() / 2
    return won


def predicted(logits: torch.Tensor, labels: torch.Tensor, cut: float = 0.0) -> torch.Tensor:
    """What logits [t, C] predict: the class [t], or, where a vertex has several labels, each of them, [t, C]
    bool."""
    return logits.argmax(1) if labels.ndim == 1 else logits > cut


def _auc(won: torch.Tensor, positives: torch.Tensor, vertices: torch.Tensor) -> float:
    pairs = positives * (vertices - positives)
    return mean(won / pairs.clamp(min=1), pairs > 0)
