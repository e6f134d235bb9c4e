"""The keys that `halobench tune` chooses and the values that it chooses from, as `conf/tune/` holds them.

`common.yaml` holds the keys that are tuned for every system, `NAME.yaml` the knobs of `system=NAME` beside
them. A key has a list of values, or a range:

    system.bits: [2, 4, 8]
    optimiser.lr: {low: 0.001, high: 0.1, log: true}"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.base import yaml_text
from harness.base.errors import InputError, did_you_mean, typed
from harness.base.places import CONF
from harness.run import config as configs
from harness.run.config import Run

FOLDER, COMMON = "tune", "common"
DIGITS = 3  # significant digits of a drawn number, so that one can type it


@dataclass(frozen=True)
class Choices:
    """A list of values to choose from."""

    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that `fitted` tries; where a system accepts these, it accepts all."""
        return self.values

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def draw(self, trial: Any, key: str) -> Any:
        """A value, chosen by an `optuna.Trial`."""
        return trial.suggest_categorical(key, self.values)

    def __str__(self) -> str:
        return ", ".join(
            str(value).lower() if isinstance(value, bool) else f"{value}" for value in self.values
        )


@dataclass(frozen=True)
class Range:
    """The numbers between two.

    low, high  the least and the largest value; only whole numbers are drawn where both are whole
    log        true: equal ratios are equally likely
    """

    low: float
    high: float
    log: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    def __contains__(self, value: object) -> bool:
        return isinstance(value, int | float) and self.low <= value <= self.high

    def draw(self, trial: Any, key: str) -> Any:
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(key, self.low, self.high, log=self.log)
        drawn = float(f"{trial.suggest_float(key, self.low, self.high, log=self.log):.{DIGITS}g}")
        return min(max(drawn, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}{', by its logarithm' if self.log else ''}"


Space = Mapping[str, Choices | Range]


def read(system: str, config_dir: Path | None = None) -> dict[str, Choices | Range]:
    """The space of `system=SYSTEM`, by key. Its knobs come from the first folder that has the system's file,
    `config_dir` before the tree. InputError, which names the file, where it cannot be used."""
    made = _read(Path(CONF) / FOLDER / f"{COMMON}.yaml", "")
    for folder in filter(None, (config_dir, Path(CONF))):
        path = folder / FOLDER / f"{system}.yaml"
        if path.is_file():
            return made | _read(path, "system.")
    return made


def _read(path: Path, begin: str) -> dict[str, Choices | Range]:
    try:
        given = yaml_text.parsed(yaml_text.read(path))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} cannot be used: {str(error).splitlines()[0]}") from None
    if not isinstance(given, dict) or not given:
        raise InputError(f"{path} holds no keys: give KEY: [VALUE, ...], as {begin}bits: [2, 4, 8]")
    for key in given:
        if not str(key).startswith(begin):
            raise InputError(f'{path}: "{key}" is no knob of the system: give {begin}KNOB')
    return {str(key): _values(f"{path}: {key}", values) for key, values in given.items()}


def _values(where: str, given: Any) -> Choices | Range:
    if (
        isinstance(given, list)
        and given
        and all(isinstance(each, bool | int | float | str) for each in given)
    ):
        return Choices(tuple(given))
    if not isinstance(given, dict):
        raise InputError(f"{where}={given} is no space: give a list of values, or low and high")
    if not {"low", "high"} <= given.keys():
        raise InputError(f"{where} has {', '.join(map(str, given))}: give low and high")
    made = typed(Range, given, where)
    if not made.low < made.high or (made.log and made.low <= 0):
        least = "low above 0" if made.log else "low"
        raise InputError(
            f"{where} has low={made.low:g} and high={made.high:g}: give {least}, and more as high"
        )
    # Whole numbers stay whole: the field's type has made them floats.
    low, high = (given[end] if isinstance(given[end], int) else getattr(made, end) for end in ("low", "high"))
    return Range(low, high, made.log)


def fitted(space: Space, base: Run, given: Collection[str]) -> dict[str, Choices | Range]:
    """The space without the keys `given`. InputError where nothing is left, or where a value that stands for
    all of a key (`ends`) makes no run of `base`."""
    left = {key: values for key, values in space.items() if key not in given}
    if not left:
        raise InputError(f"{', '.join(space)} are all given: leave one out, which is then tuned")
    for key, values in left.items():
        block, _, name = key.partition(".")
        known = base.composed.get(block)
        if not isinstance(known, dict) or name not in known:
            keys = [f"{block}.{each}" for each in known] if isinstance(known, dict) else base.composed
            raise InputError(
                f"conf/{FOLDER}: {key} is not a key of {base.system_name}{did_you_mean(key, keys)}"
            )
        for value in values.ends:
            try:
                changed(base, {key: value})
            except InputError as error:
                raise InputError(f"conf/{FOLDER}: {error}") from None
    return left


def changed(base: Run, values: Mapping[str, Any], **top: Any) -> Run:
    """The run with other values. InputError where they make no run.

    values   by key of a block, as "optimiser.lr"
    top      by top-level key
    """
    config = {**base.composed, **top}
    for key, value in values.items():
        block, _, name = key.partition(".")
        config[block] = {**config[block], name: value}
    return configs.check(config)


def value_of(run: Run, key: str) -> Any:
    block, _, name = key.partition(".")
    return run.composed[block][name]
