"""A value over seeds, and whether two sides differ in it. This is the one place that decides the latter.

A difference or a ratio is paired over seeds and has a 95 % interval (`Estimate`). Two sides are told apart
where that interval leaves out the value of no difference. Samples that are not pairs, such as repeats of a
bench, are compared by the Mann-Whitney U test, which assumes nothing of their distribution."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

ROUNDING = 1e-12  # relative size of a difference that may be rounding in double precision alone


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds. `half` is half the width of its 95 % interval (Student's t): None with fewer than
    two seeds, 0 where all seeds agree (counts). A formatted estimate shows the interval only where it is more
    than the rounding of the mean."""

    mean: float
    half: float | None
    n: int

    def __format__(self, spec: str) -> str:
        if np.isnan(self.mean):
            return "-"
        if self.half is None or self.half <= ROUNDING * abs(self.mean):
            return format(self.mean, spec)
        mean = 0.0 if abs(self.mean) <= ROUNDING * self.half else self.mean
        return f"{mean:{spec}} ± {self.half:{spec.removeprefix('+')}}"

    def side(self, neutral: float = 0.0, *, counted: bool = False) -> int:
        """1 or -1 where the value is told to be above or below `neutral`, the value of no difference. 0 where
        it is not told apart from it; so too with fewer than two seeds, which have no interval.

        counted   the value does not vary by chance: any difference from `neutral` is told, whatever the seeds
        """
        if not self.n or (self.half is None and not counted):
            return 0
        reach = 0.0 if counted or self.half is None else self.half
        away = self.mean - neutral
        if abs(away) <= max(reach, ROUNDING * max(1.0, abs(neutral))):
            return 0
        return 1 if away > 0 else -1


def estimate(values: Iterable[float | None]) -> Estimate:
    """The estimate from one value per seed; None and NaN are left out. Its mean is NaN where none is left."""
    x = np.array([v for v in values if v is not None and not np.isnan(v)], dtype=np.float64)
    if not len(x):
        return Estimate(float("nan"), None, 0)
    if len(x) == 1:
        return Estimate(float(x[0]), None, 1)
    half = stdtrit(len(x) - 1, 0.975) * x.std(ddof=1) / np.sqrt(len(x)) if np.ptp(x) else 0.0
    return Estimate(float(x.mean()), float(half), len(x))


def side_of_samples(old: Sequence[float], new: Sequence[float], alpha: float) -> tuple[int | None, float]:
    """(side, p) of the two-sided Mann-Whitney U test. The side is 1 or -1 where the new samples are told to
    be above or below the old ones at the level `alpha`, 0 where they are not told apart. With too few samples
    to reach that level it is None, and p is NaN."""
    # The least p-value that so many samples can have: all samples of one side are below all of the other.
    if 2 / math.comb(len(old) + len(new), len(old)) >= alpha:
        return None, math.nan
    from scipy import stats  # a run ends without the third of a second that it takes

    p = float(stats.mannwhitneyu(old, new).pvalue)
    away = statistics.median(new) - statistics.median(old)
    return (0 if p >= alpha or not away else 1 if away > 0 else -1), p
