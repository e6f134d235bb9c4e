"""A system that `halobench advise` considers."""

from __future__ import annotations

from dataclasses import dataclass

from harness.base.places import command_line, own_config, own_config_option
from harness.model.plan.plan import Plan
from harness.model.plan.trial import Trial
from harness.model.replay.times import Times

HEADINGS = (
    "system", "GB per worker", "MB per epoch", "steps", "modelled epoch, ms", "best val", "epochs",
    "modelled s", "",
)  # fmt: skip


@dataclass
class Candidate:
    """A system, and what became of it.

    trial    its last run here, replayed on the cluster; None: nothing ran, or of a smaller twin
    early_s  modelled seconds until its probe reached SHARE of the best score of exact training's; infinite
             where it did not
    epochs   until the score is reached; None: it is not, or nothing was trained
    best     best validation score; None: nothing was trained
    why      in a few words, where it is out
    """

    name: str
    words: list[str]
    plan: Plan | None
    why: str = ""
    trial: Trial | None = None
    early_s: float = float("inf")
    epochs: int | None = None
    best: float | None = None

    @property
    def command(self) -> str:
        """What trains it."""
        return command_line(["halobench", "run", *own_config_option(), *self.words], bool(own_config()))

    @property
    def role(self) -> str:
        """ "reference", "control", or "" """
        return self.plan.run.system.role if self.plan is not None else ""

    @property
    def fits(self) -> bool:
        """False where its plan is known not to fit the cluster's devices. Exact training is trained on this
        machine even so, since its score is what others are held to."""
        return self.plan is None or self.plan.fits is not False

    @property
    def times(self) -> Times | None:
        """Of a modelled epoch: as replayed, or as planned at its most bytes; None where neither is known."""
        if self.trial is not None:
            return self.trial.times
        planned = self.plan.seconds if self.plan is not None else []
        return max(planned, key=lambda times: times.epoch, default=None)

    @property
    def steps(self) -> int:
        """Optimiser steps per epoch."""
        if self.trial is not None:
            return self.trial.trace.steps
        return self.plan.run.system.traits().steps if self.plan is not None else 1

    @property
    def step_s(self) -> float:
        """Modelled seconds of an optimiser step; infinite where they are not known."""
        return self.times.epoch / self.steps if self.times is not None else float("inf")

    @property
    def rank(self) -> tuple[float, float]:
        """By which systems are ordered."""
        return self.early_s, self.step_s

    @property
    def bytes(self) -> float | None:
        """Of all workers in an epoch, as counted, or as planned at its most; None where neither is known."""
        if self.trial is not None:
            return self.trial.bytes
        return self.plan.bytes_epoch()[1] if self.plan is not None and self.plan.epochs else None

    @property
    def reached_s(self) -> float | None:
        """Modelled seconds until the score is reached; of a trial with what its first epoch fetches. None too
        where the system does not fit."""
        if self.epochs is None or self.times is None or not self.fits:
            return None
        return self.trial.ends[self.epochs - 1] if self.trial is not None else self.epochs * self.times.epoch
