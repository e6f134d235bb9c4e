"""What a command's -m asks for: which keys are swept, its runs, where Hydra starts them, and what its sweeper
optimises."""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path

from hydra.errors import HydraException
from omegaconf import DictConfig

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
    elsewhere   the folder of results where the launcher starts jobs in other processes; else None
    composed    the config that its runs have in common, with Hydra's own settings
    runs        each as its overrides, without Hydra's own; empty where Hydra's sweeper makes them
    words       of the command, as Hydra's sweeper needs them; empty where it does not make the runs
    at_once     how many runs a launcher is given at once
    total       runs altogether; None where that is not known
    objective, direction   what it optimises and which way, where it does
    grid        whether the sweeper tries every point of a grid, whatever the results are
    """

    keys: list[str]
    elsewhere: Path | None
    composed: DictConfig
    runs: list[list[str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    at_once: int = 1
    total: int | None = None
    objective: str | None = None
    direction: str = ""
    grid: bool = False

    @property
    def optimises(self) -> bool:
        return bool(self.direction)


def read(words: list[str]) -> Sweep:
    """The sweep that the words of a command ask for. InputError where it cannot be made."""
    composed = overrides.settings(words)
    launcher, sweeper = (composed.hydra[kind]["_target_"] for kind in ("launcher", "sweeper"))
    inside = composed.hydra.sweeper.get("params") or {}  # values that a config lists
    if sweeper.endswith(".BasicSweeper"):  # for which a key on the command line is the same key
        given = {key_of(word).lstrip("+") for word in words}
        inside = {key: values for key, values in inside.items() if key not in given}
    keys = list(dict.fromkeys([*map(str, inside), *overrides.swept(words)]))
    elsewhere = None if launcher.endswith(".BasicLauncher") else Path(composed.results)
    if sweeper.endswith(".BasicSweeper"):
        listed = [f"{key}={values}" for key, values in inside.items()]
        args = overrides.parse(words)
        if args.config_name or args.config_path:  # which only Hydra finds, and maybe the options too
            total = None
            with contextlib.suppress(InputError, HydraException):
                total, words = len(overrides.expand([*listed, *words])), overrides.for_sweeper(words)
            return Sweep(keys, elsewhere, composed, words=words, total=total)
        runs = overrides.expand([*listed, *words])
        runs = [[word for word in run if not word.lstrip("+~").startswith("hydra")] for run in runs]
        at_once = composed.hydra.sweeper.get("max_batch_size")
        if at_once is not None and at_once < 1:
            raise InputError(
                f"hydra.sweeper.max_batch_size={at_once} is out of range: give 1 or more, or null"
            )
        return Sweep(keys, elsewhere, composed, runs, at_once=at_once or len(runs) or 1, total=len(runs))
    direction = objective.direction(composed.objective)
    grid = "GridSampler" in str(composed.hydra.sweeper.get("sampler"))
    # With a grid it is n_trials, or the number of the grid's points where that is smaller.
    total = None if grid else composed.hydra.sweeper.get("n_trials")
    words = overrides.for_sweeper(words)
    if sweeper == OPTUNA:
        words = _towards(words, composed.objective, direction)
    return Sweep(
        keys,
        elsewhere,
        composed,
        words=words,
        total=total,
        objective=composed.objective,
        direction=direction,
        grid=grid,
    )


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
