"""The rule by which a published value, or a direction, holds here.

    holds             the published value, or a value of a published range, lies in our 95 % interval over
                      seeds, or within 10 % of our mean
    direction holds   our interval excludes "no difference", on the paper's side
    does not hold     our interval excludes the paper's direction; without a direction, the published value
    cannot tell       anything else, or it would hold and the control does as well

A control without remote rows that does as well shows that a system which keeps its promise here need not have
used what the promise is about. It takes nothing from a promise that is not kept. Where no seed shows any
difference, the interval is that one point and excludes either direction.

An interval may be so wide that it holds the published value and "no difference" too. That holds by the rule
and says little: the verdict says so, and it is counted apart.

Another tolerance than the 10 % is given in an experiment's file with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.report.groups import Estimate, estimate

HOLDS, DIRECTION, FAILS, UNKNOWN = "holds", "direction holds", "does not hold", "cannot tell"
DECIDED = (HOLDS, DIRECTION, FAILS)
SHARE = 0.1  # of our mean, by which a published value may be off
SIDES = {"above": 1.0, "below": -1.0}
NONE = "no seed shows a difference"
WIDE = "our interval holds no difference too"
ROUNDING = 1e-12  # of a difference that double precision may leave where there is none


@dataclass(frozen=True)
class Verdict:
    """One of the four words, and why where the word alone does not say it."""

    word: str
    why: str = ""


def judge(
    ours: Estimate,
    published: float | tuple[float, float] | None,
    direction: str | None = None,
    neutral: float = 0.0,
    tolerance: float | None = None,
) -> Verdict:
    """The verdict on one value.

    published   a number, or the ends of a range; None: the paper says a direction only
    direction   "above" or "below" `neutral`, which is the value of no difference
    tolerance   instead of 10 % of our mean, in the unit of the value
    """
    if not math.isfinite(ours.mean):
        return Verdict(UNKNOWN, "our runs have no value")
    near = SHARE * abs(ours.mean) if tolerance is None else tolerance
    interval = None if ours.half is None else (ours.mean - ours.half, ours.mean + ours.half)
    if published is not None:
        low, high = published if isinstance(published, tuple) else (published, published)
        if low - near <= ours.mean <= high + near:
            return Verdict(HOLDS)
        if interval is not None and interval[0] <= high and low <= interval[1]:
            wide = direction is not None and interval[0] <= neutral <= interval[1]
            return Verdict(HOLDS, WIDE if wide else "")
    if interval is None:
        return Verdict(UNKNOWN, "one seed has no interval")
    if direction is None:
        return Verdict(FAILS)
    side = SIDES[direction]
    nearest, farthest = sorted(side * _but_rounding(end - neutral, neutral) for end in interval)
    if nearest > 0:
        return Verdict(DIRECTION)
    if farthest < 0:
        return Verdict(FAILS)
    if nearest == farthest == 0:
        return Verdict(FAILS, NONE)
    return Verdict(UNKNOWN, "our interval holds no difference")


def _but_rounding(difference: float, neutral: float) -> float:
    return 0.0 if abs(difference) <= ROUNDING * max(1.0, abs(neutral)) else difference


def judge_order(steps: Sequence[Estimate]) -> Verdict:
    """The verdict on an order of rows: each step is the difference of a row to the next, which the paper has
    above 0."""
    single = [judge(step, None, "above") for step in steps]
    words = [each.word for each in single]
    if all(word == DIRECTION for word in words):
        return Verdict(DIRECTION)
    if FAILS in words:
        at = words.index(FAILS)
        what = "shows no difference in any seed" if single[at].why == NONE else "goes the other way"
        return Verdict(FAILS, f"step {at + 1} of {len(words)} {what}")
    return Verdict(UNKNOWN, f"{words.count(DIRECTION)} of {len(words)} steps are told apart")


def as_well(control: Sequence[float], row: Sequence[float]) -> bool:
    """Whether a control does as well as a row, by seed: the interval of how far the row is ahead does not
    exclude 0."""
    return judge(estimate(r - c for r, c in zip(row, control)), None, "above").word != DIRECTION
