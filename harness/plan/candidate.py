"""A system that `halobench advise` considers."""

from __future__ import annotations

from dataclasses import dataclass

from harness.plan.plan import Plan

HEADINGS = (
    "system", "GB per worker", "MB per epoch", "modelled epoch, ms", "best val", "epochs", "modelled s", "",
)  # fmt: skip


@dataclass
class Candidate:
    """A system, and what became of it.

    epochs   until the score is reached; None: it is not, or nothing was trained
    best     best validation score; None: nothing was trained
    why      in a few words, where it is out
    """

    name: str
    words: list[str]
    plan: Plan | None
    why: str = ""
    epochs: int | None = None
    best: float | None = None

    @property
    def epoch_s(self) -> float:
        """Modelled seconds of an epoch at its most bytes."""
        assert self.plan is not None
        return max(times.epoch for times in self.plan.seconds)

    @property
    def reached_s(self) -> float | None:
        """Modelled seconds until the score is reached."""
        return None if self.epochs is None else self.epochs * self.epoch_s
