"""Early stopping: a run ends when its validation score has not improved for a while."""

from __future__ import annotations

import math
from dataclasses import dataclass


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
        return 0 < self.patience <= self.without_better
