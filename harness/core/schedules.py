"""Schedules: the learning rate of each epoch, as a share of the optimiser's `lr`.

Each is a dataclass that `schedule._target_` names; its values stand in `conf/schedule/`. A share depends on
the epoch's number alone, so a resumed run goes on with the same rates.
"""

import math
from dataclasses import dataclass

from harness.base.bounds import ROUNDS, number


@dataclass
class Schedule:
    """Base of every schedule.

    warmup   epochs over which the rate rises linearly: epoch e has (e + 1) / warmup of it; 0: no warm-up
    """

    warmup: int = number(0, 0, ROUNDS)

    def factor(self, epoch: int, epochs: int) -> float:
        """What `optimiser.lr` is multiplied by in `epoch`, counted from 0, of a run of `epochs`."""
        if epoch < self.warmup:
            return (epoch + 1) / self.warmup
        return self.after_warmup(epoch - self.warmup, epochs - self.warmup)

    def follows_epochs(self) -> bool:
        """Whether the rate of an epoch depends on how many epochs the run has."""
        return False

    def after_warmup(self, epoch: int, epochs: int) -> float:
        """The factor in `epoch` of the `epochs` that follow the warm-up, both counted from its end."""
        raise NotImplementedError


@dataclass
class Constant(Schedule):
    """The same rate in every epoch after the warm-up."""

    def after_warmup(self, epoch: int, epochs: int) -> float:
        return 1.0


@dataclass
class Step(Schedule):
    """The rate is multiplied by `gamma` every `every` epochs: gamma^(e // every).

    every    epochs from one multiplication to the next
    gamma    what the rate is multiplied by
    """

    every: int = number(50, 1, ROUNDS)
    gamma: float = number(0.1, 0, 1000, above=True)

    def after_warmup(self, epoch: int, epochs: int) -> float:
        try:
            return self.gamma ** (epoch // self.every)
        except OverflowError:  # beyond the largest float, in a run that goes on though it has diverged
            return math.inf


@dataclass
class Cosine(Schedule):
    """Half a cosine from 1 towards `floor`: floor + (1 - floor) (1 + cos(pi e / epochs)) / 2 (Loshchilov and
    Hutter, 2017, without restarts).

    floor    what the rate ends at, as a share of what it begins with
    """

    floor: float = number(0.0, 0, 1)

    def follows_epochs(self) -> bool:
        return True

    def after_warmup(self, epoch: int, epochs: int) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * epoch / epochs)) / 2
