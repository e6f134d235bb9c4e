"""The bounds of a config's numbers, which `--help` shows, and the words that a text may be. A dataclass
states them where it declares the field, and `harness.base.errors.typed` checks every value against them."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

KEY, WORDS = "bounds", "words"
MOST = 2**31 - 1  # what libraries take for a count
SEED = 2**32 - 1
LAYERS = 256  # of a model; draws tell epochs and so many layers apart
ROUNDS = 10**6  # epochs, and whatever is counted in them
WAIT = 10**6  # seconds, which is 11 days


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The range of a number.

    low     the least value; with `above` values must be more than this
    high    the largest value"""

    low: float
    high: float
    above: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.low < value if self.above else self.low <= value) and value <= self.high

    def __str__(self) -> str:
        return f"more than {self.low} and at most {self.high}" if self.above else f"{self.low} to {self.high}"


class OneOf(tuple[int, ...]):
    """The values that a number may have, where they are few."""

    def __str__(self) -> str:
        return f"one of {', '.join(map(str, self))}"


def one_of(default: int, *values: int) -> Any:
    """A dataclass field that is one of these numbers."""
    return dataclasses.field(default=default, metadata={KEY: OneOf(values)})


def number(default: Any, low: float = 0, high: float = MOST, above: bool = False) -> Any:
    """A dataclass field that is a number within `Bounds(low, high, above)`, or null where its type allows."""
    return dataclasses.field(default=default, metadata={KEY: Bounds(low, high, above)})


def word(default: str | None, *others: str) -> Any:
    """A dataclass field that is one of these words. Where `default` is None, null is allowed too."""
    return dataclasses.field(default=default, metadata={WORDS: [default, *others]})


@functools.cache
def bounds_of(cls: type) -> dict[str, Bounds | OneOf]:
    """The bounds of those fields of a dataclass that have bounds, by the field's name."""
    return {field.name: field.metadata[KEY] for field in dataclasses.fields(cls) if KEY in field.metadata}


def out_of_bounds(cls: type, values: DictConfig) -> Iterator[str]:
    """One sentence per number that is out of bounds, in a config of the dataclass `cls` or in its blocks."""
    stated = bounds_of(cls)
    for key in map(str, values):
        given = values[key]
        several = isinstance(given, ListConfig)
        for place, value in enumerate(given) if several else [(0, given)]:
            name = f"{key}[{place}]" if several else key
            if isinstance(value, DictConfig) and dataclasses.is_dataclass(kind := OmegaConf.get_type(value)):
                yield from (f"{name}.{sentence}" for sentence in out_of_bounds(kind, value))
            elif key in stated and value is not None and value not in stated[key]:
                yield f"{name}={value} is out of range: give {stated[key]}"
