"""Evaluation: an exact full-graph forward pass with the current weights, whatever the system trains on.

It runs outside the train clock, so nothing of it is timed as training or counted as communication.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from harness.comm.comm import Comm, HaloPlan
from harness.core.adjacency import Adjacency
from harness.core.inputs import StaticInput
from harness.core.models import Model, Strategy
from harness.core.propagate import HaloDropout, propagate

SPLITS = ("train", "val", "test")


class ExactForward:
    """The strategy of evaluation, and of exact extra steps: every halo row fresh."""

    def __init__(self, adjacency: Adjacency, comm: Comm, plan: HaloPlan, purpose: str = "evaluate"):
        self.adjacency, self.comm, self.plan, self.purpose = adjacency, comm, plan, purpose

    def halo(self, layer, h):
        return self.comm.exchange(self.plan, h, layer, self.purpose)

    def propagate(self, layer, h, weight, dropout):
        return propagate(self.adjacency, h, self.halo(layer, h), weight, dropout)

    def output(self, layer, z):
        return z


class _Keeping(ExactForward):
    """An exact forward pass that keeps what its layers take in."""

    def __init__(self, strategy: ExactForward, kept: dict[int, torch.Tensor]):
        super().__init__(strategy.adjacency, strategy.comm, strategy.plan, strategy.purpose)
        self.kept = kept

    def halo(self, layer, h):
        self.kept[layer] = h
        return super().halo(layer, h)


class Evaluator:
    """Accuracy (single label) or micro-F1 (multi-label) of each split of the whole graph, the same on every worker; NaN of a
    split without vertices.

    make_input   builds the exact StaticInput; called at the first evaluation only
    """

    def __init__(self, strategy: Strategy, comm: Comm, make_input: Callable[[], StaticInput], masks: list[torch.Tensor],
                 labels: torch.Tensor, num_layers: int):
        self.strategy, self.comm, self.make_input, self.masks, self.labels = strategy, comm, make_input, masks, labels
        self.input: StaticInput | None = None
        no_ids = torch.empty(0, dtype=torch.int32)
        self.no_dropout = [HaloDropout(0.0, no_ids, no_ids, 0)] * num_layers

    @torch.no_grad()
    def logits(self, model: Model) -> torch.Tensor:
        """Exact logits [n, C] of the worker's own vertices."""
        if self.input is None:
            self.input = self.make_input()
        return model(None, self.input, self.strategy, self.no_dropout)

    def hidden(self, model: Model) -> dict[int, torch.Tensor]:
        """{layer: H [n, F]} that the exact forward pass gives layers 1.. to aggregate."""
        asked: dict[int, torch.Tensor] = {}
        plain, self.strategy = self.strategy, _Keeping(self.strategy, asked)
        try:
            self.logits(model)
        finally:
            self.strategy = plain
        return asked

    def __call__(self, model: Model) -> tuple[float, float, float]:
        logits = self.logits(model)
        counts: list[float] = []
        for mask in self.masks:
            scored = logits[mask]
            counts += [*score_counts(scored, self.labels[mask]), float(len(scored))]
        totals = self.comm.total(counts)
        return tuple(right / max(possible, 1.0) if vertices else math.nan
                     for right, possible, vertices in zip(totals[0::3], totals[1::3], totals[2::3]))


def score_counts(logits: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Numerator and denominator of the score of logits [t, C], which add up over workers."""
    if labels.ndim == 1:
        return [float((logits.argmax(1) == labels).sum()), float(len(labels))]
    predicted, true = logits > 0, labels > 0
    # Micro-F1 = 2 TP / (2 TP + FP + FN) = 2 TP / (predicted + true).
    return [2.0 * float((predicted & true).sum()), float(predicted.sum() + true.sum())]


def local_loss(logits: torch.Tensor, labels: torch.Tensor, train: torch.Tensor, divisor: float) -> torch.Tensor:
    """The summed loss of the rows `train` over `divisor`: with the count of all training vertices, a share of the global mean.

    Softmax cross-entropy; for multi-label graphs the binary cross-entropy averaged over classes. Shares add up over workers.
    """
    rows = logits[train]
    if labels.ndim == 1:
        return F.cross_entropy(rows, labels[train], reduction="sum") / divisor
    return F.binary_cross_entropy_with_logits(rows, labels[train], reduction="sum") / (divisor * labels.shape[1])
