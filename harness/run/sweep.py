"""What a command's -m asks for: which keys are swept, how many runs that makes, where Hydra starts them, and
what its sweeper optimises."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

from harness.base.errors import InputError
from harness.base.words import key_of, key_value
from harness.results import objective
from harness.run import overrides

OPTUNA = "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper"
DIRECTION = "hydra.sweeper.direction"


@dataclass(frozen=True)
class Sweep:
    """What a command with -m asks for.

    keys        that are given several values
    parts       the sweeps, one after another, that it consists of: the words of each
    before      how many runs come before each part
    total       runs altogether; None where that is not known
    elsewhere   the folder of results where the launcher starts jobs in other processes; else None
    optimises   whether the sweeper chooses values by the results of earlier runs
    objective, direction   what it optimises and which way, where it does
    grid        whether the sweeper tries every point of a grid, whatever the results are
    plain       whether its runs follow from its words alone, with nothing of Hydra's own among them
    """

    keys: list[str]
    parts: list[list[str]]
    before: list[int]
    total: int | None
    elsewhere: Path | None
    optimises: bool
    objective: str | None
    direction: str
    grid: bool
    plain: bool


def read(words: list[str], conf: str) -> Sweep:
    """The sweep that the words of a command ask for. InputError where it cannot be made."""
    composed = overrides.settings(words, conf)
    launcher, sweeper = (composed.hydra[kind]["_target_"] for kind in ("launcher", "sweeper"))
    swept, parts = overrides.swept(words), overrides.parts(words, conf)
    basic = sweeper.endswith(".BasicSweeper")
    grid = "GridSampler" in str(composed.hydra.sweeper.get("sampler"))
    elsewhere = None if launcher.endswith(".BasicLauncher") else Path(composed.results)
    direction = ""
    # Runs are counted only where the command line lists all values: not those of a config, nor of a pattern.
    inside = dict.fromkeys(map(str, composed.hydra.sweeper.get("params") or ()))
    if basic:
        sizes = [math.prod(len(values or ()) for values in overrides.swept(part).values()) for part in parts]
        total = sum(sizes) if all(sizes) and not inside else None
    else:
        if len(parts) > 1:
            lacked = sorted(set(words) - set(parts[0]).intersection(*parts[1:]))
            raise InputError(
                f"{' '.join(lacked)}: not every option has the key, and a sweeper that optimises needs one"
                " space of values; give options that all have it"
            )
        direction = objective.direction(composed.objective)
        sizes, total = [0], composed.hydra.sweeper.get("n_trials")
        if grid:
            total = None  # n_trials, or the number of the grid's points where that is smaller
        if sweeper == OPTUNA:
            parts = [_towards(parts[0], composed.objective, direction)]
    before = list(itertools.accumulate(sizes, initial=0))
    keys, name = [*inside, *swept], composed.objective
    plain = basic and elsewhere is None and total is not None and overrides.is_plain(words)
    return Sweep(keys, parts, before, total, elsewhere, not basic, name, direction, grid, plain)


def _towards(words: list[str], name: str | None, direction: str) -> list[str]:
    """The words with the direction in which the objective improves. Hydra's own default is to minimise."""
    given = next((key_value(word)[1] for word in words if key_of(word) == DIRECTION), None)
    if given is None:
        return [*words, f"{DIRECTION}={direction}"]
    if given != direction:
        raise InputError(
            f"{DIRECTION}={given} makes objective={name or 'null'} worse; leave it out, or give {direction}"
        )
    return words
