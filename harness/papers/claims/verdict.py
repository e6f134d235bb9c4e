"""The rule by which a published value, or a direction, holds here.

Everything is decided on the mean over seeds of a value, and its 95 % interval. Whether that is told apart
from no difference is decided by `harness.results.report.estimate`. The printed effect is how far the
published value lies from "no difference". The share is how much of the printed effect was found here; where
the value is a ratio, effects are logarithms.

Where the paper has a direction, the first of these that fits:

    no effect here    the interval lies within a quarter of the printed effect around no difference (not of a
                      range that begins at no difference); or no seed shows a difference
    holds             told apart from no difference on the paper's side, and within the tolerance of the
                      published value with a share from 0.5 to 2; or our mean is on that side, and the
                      interval holds the published value and is at most half the printed effect wide
    weaker, stronger  told apart on the paper's side, with a share below 0.5, or above 2
    direction holds   the same with a share between; or a direction is all that is printed
    does not hold     told apart on the other side
    cannot tell       anything else

Where it has none, as of "as accurate as":

    holds             the whole interval lies within the tolerance
    does not hold     the whole interval lies outside of it
    cannot tell       anything else

The tolerance is 10 % of our mean unless an experiment's file gives another one with its reason. A published
range has no tolerance beyond its two ends. A value that no seed changes is one sample: it has no interval, is
judged as it stands, and the verdict says "deterministic". One seed alone decides nothing.

A verdict of "does not hold" is about the paper. Where the cause is ours (`CAUSES`, named in the experiment's
file), it is "cannot tell" (`signed`).
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.results.report.estimate import ROUNDING, Estimate, estimate

HOLDS, WEAKER, STRONGER, DIRECTION = "holds", "weaker", "stronger", "direction holds"
NO_EFFECT, FAILS, UNKNOWN = "no effect here", "does not hold", "cannot tell"
KEPT = (HOLDS, WEAKER, STRONGER, DIRECTION)  # verdicts on the paper's side
DECIDED = (*KEPT, FAILS)
# What a verdict other than "holds" may be owed to.
PAPER, SEEDS, TWIN, TIME_MODEL = "paper", "seeds", "twin", "time model"
CAUSES = (PAPER, "setting not printed", TWIN, SEEDS, TIME_MODEL, "hardware assumed", "our implementation")
LEAST, MOST = 0.5, 2.0  # share between which an effect is as strong as printed
TOLERANCE = 0.1  # share of our mean by which a published value may be off
SIDES = {"above": 1.0, "below": -1.0}
DETERMINISTIC = "deterministic"
MISSED = "here it does not hold"  # of a miss whose cause is not the paper


@dataclass(frozen=True)
class Share:
    """How much of a printed effect was found: 1 is all of it, 0 none, below 0 an effect on the other side.

    low, high   the ends of its interval; None where there is none
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __format__(self, how: str) -> str:
        ends = "" if self.low is None or self.high is None else f" [{self.low:{how}}, {self.high:{how}}]"
        return f"{self.value:{how}}{ends}"


@dataclass(frozen=True)
class Verdict:
    """A word of the rule, why where the word alone does not say it, and the share of the printed effect.

    cause   of CAUSES; "" of what holds, and where nothing was judged
    """

    word: str
    why: str = ""
    share: Share | None = None
    cause: str = ""


def judge(
    ours: Estimate,
    published: float | tuple[float, float] | None,
    direction: str | None = None,
    neutral: float = 0.0,
    tolerance: float | None = None,
    logarithmic: bool = False,
) -> Verdict:
    """The verdict on one value, by the rule alone.

    published    a number, or the ends of a range; None: the paper says a direction only
    direction    "above" or "below" `neutral`, which is the value of no difference; None: the paper has none
    tolerance    in the unit of the value; None: 10 % of our mean, or 0 around a range
    logarithmic  whether effects are differences of logarithms, as of ratios
    """
    if not math.isfinite(ours.mean):
        return Verdict(UNKNOWN, "our runs have no value")
    certain = ours.half is not None and ours.half <= ROUNDING * max(1.0, abs(ours.mean))
    half = 0.0 if certain or ours.half is None else ours.half
    interval = ours.mean - half, ours.mean + half
    ends = published if isinstance(published, tuple) else None if published is None else (published,) * 2
    slack = tolerance
    if slack is None:
        slack = 0.0 if isinstance(published, tuple) else TOLERANCE * abs(ours.mean)
    if direction is None:
        assert ends is not None, "a claim has a published value or a direction"
        found = _equal(interval, (ends[0] - slack, ends[1] + slack))
    else:
        effect = _Effect(SIDES[direction], neutral, logarithmic)
        told = SIDES[direction] * ours.side(neutral)
        found = _sided(ours.mean, told, interval, ends, slack, effect)
        if ends is not None:
            found = dataclasses.replace(found, share=effect.share(ours.mean, interval, ends))
    if ours.half is not None and not certain:
        return found
    share = found.share and Share(found.share.value)
    if ours.half is None:
        return Verdict(UNKNOWN, "one seed has no interval", share)
    return Verdict(found.word, "; ".join(filter(None, [DETERMINISTIC, found.why])), share)


@dataclass(frozen=True)
class _Effect:
    """How far values lie from no difference; positive on the paper's side."""

    side: float
    neutral: float
    logarithmic: bool

    def of(self, value: float) -> float:
        if abs(value - self.neutral) <= ROUNDING * max(1.0, abs(self.neutral)):
            return 0.0
        if self.logarithmic:
            return self.side * math.log(value / self.neutral) if value > 0 else -self.side * math.inf
        return self.side * (value - self.neutral)

    def among(self, interval: tuple[float, float]) -> tuple[float, float]:
        """The ends of an interval, ascending."""
        first, last = sorted(map(self.of, interval))
        return first, last

    def printed(self, ends: tuple[float, float]) -> float:
        """The least effect that is printed, above 0. Of a range that begins at no difference, it is the other
        end's."""
        return min((size for size in map(self.of, ends) if size > 0), default=0.0)

    def share(self, mean: float, interval: tuple[float, float], ends: tuple[float, float]) -> Share | None:
        def of(value: float) -> float:
            """Over the nearest published value; 1 of what lies within a published range."""
            within = min(max(value, ends[0]), ends[1])
            if within == value:
                return 1.0
            return self.of(value) / (self.of(within) or printed)

        printed = self.printed(ends)
        return Share(of(mean), *sorted(map(of, interval))) if printed > 0 else None


def _equal(interval: tuple[float, float], allowed: tuple[float, float]) -> Verdict:
    if allowed[0] <= interval[0] and interval[1] <= allowed[1]:
        return Verdict(HOLDS)
    if interval[1] < allowed[0] or allowed[1] < interval[0]:
        return Verdict(FAILS)
    return Verdict(UNKNOWN, "our interval reaches beyond the tolerance")


def _sided(
    mean: float,
    told: float,
    interval: tuple[float, float],
    ends: tuple[float, float] | None,
    slack: float,
    effect: _Effect,
) -> Verdict:
    """The verdict on a value of which the paper has a direction.

    told   1 where the mean is told apart from no difference on the paper's side, -1 on the other, or 0
    """
    nearest, farthest = effect.among(interval)
    printed = 0.0 if ends is None else effect.printed(ends)
    share = None if ends is None else effect.share(mean, interval, ends)
    if ends is not None and printed > 0:
        from_none = any(effect.of(end) == 0 for end in ends)  # a range that begins at no difference
        if -printed / 4 <= nearest and farthest <= printed / 4 and not from_none:
            return Verdict(NO_EFFECT)
        close = ends[0] - slack <= mean <= ends[1] + slack
        like = share is not None and LEAST <= share.value <= MOST
        covers = interval[0] <= ends[1] and ends[0] <= interval[1]
        if (close and like and told > 0) or (
            covers and farthest - nearest <= printed / 2 and effect.of(mean) > 0
        ):
            return Verdict(HOLDS)
    if nearest == farthest == 0:
        return Verdict(NO_EFFECT, "no seed shows a difference")
    if told < 0:
        return Verdict(FAILS)
    if told == 0:
        return Verdict(UNKNOWN, "our interval holds no difference")
    if share is None or LEAST <= share.value <= MOST:
        return Verdict(DIRECTION)
    return Verdict(WEAKER if share.value < LEAST else STRONGER)


def judge_order(steps: Sequence[Estimate]) -> Verdict:
    """The verdict on an order of rows.

    steps   each row less the next one, which the paper has above 0
    """
    single = [judge(step, None, "above") for step in steps]
    words = [each.word for each in single]
    certain = DETERMINISTIC if all(each.why.startswith(DETERMINISTIC) for each in single) else ""

    def said(word: str, why: str = "") -> Verdict:
        return Verdict(word, "; ".join(filter(None, [certain, why])))

    if all(word == DIRECTION for word in words):
        return said(DIRECTION)
    for word, what in ((FAILS, "goes the other way"), (NO_EFFECT, "shows no difference in any seed")):
        if word in words:
            return said(word, f"step {words.index(word) + 1} of {len(words)} {what}")
    return said(UNKNOWN, f"{words.count(DIRECTION)} of {len(words)} steps are told apart")


def as_well(control: Sequence[float], row: Sequence[float]) -> bool:
    """Whether a control does as well as a row: by seed, the row's lead over it is not told apart from 0, or
    is negative."""
    return estimate(r - c for r, c in zip(row, control)).side() <= 0


def signed(found: Verdict, cause: str, because: str = "") -> Verdict:
    """A verdict by the rule together with its cause. "does not hold" stays only where the cause is the paper.

    cause     that the experiment's file names; "" where it names none
    because   why it is that
    """
    if found.word == HOLDS or (found.word == DIRECTION and found.share is None):
        return found
    if found.word == UNKNOWN:
        return dataclasses.replace(found, cause=SEEDS)  # the interval, or one seed, leaves it open
    if found.word == FAILS and cause != PAPER:
        whose = because or ("no cause is named" if not cause else "")
        why = "; ".join(filter(None, [MISSED, found.why, whose]))
        return dataclasses.replace(found, word=UNKNOWN, why=why, cause=cause)
    why = "; ".join(filter(None, [found.why, because]))
    return dataclasses.replace(found, why=why, cause=cause)
