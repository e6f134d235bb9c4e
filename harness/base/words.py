"""Words of a command line, KEY=VALUE: read, and written."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from harness.base.errors import InputError

# A number, also one in base 60 or hexadecimal, of 400 characters or more. Python may read a number of so many
# digits and then refuse to show it (it shows 4300 at most).
DIGITS = re.compile(r"\b[0-9][0-9a-fA-FxX_:.]{399,}")
PLAIN = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][\w./-]*")  # text that Hydra reads without quotes
NO_TEXT = frozenset({"null", "true", "false", "inf", "nan"})  # words that Hydra does not read as text


def key_value(word: str) -> tuple[str, str]:
    """What stands before the first "=" and after it. InputError where there is no "=", or no key, or a
    number of too many digits (`check_digits`)."""
    check_digits(word)
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise InputError(f'"{word}" is not KEY=VALUE: write KEY=VALUE, as epochs=100')
    return key, value


def check_digits(word: str) -> None:
    """InputError where a word has a number of 400 digits or more."""
    if found := DIGITS.search(word):
        raise InputError(
            f"{word[: found.start() + 20]}... has {len(found[0])} digits: give a number of fewer"
        )


def key_values(words: Iterable[str]) -> dict[str, str]:
    """The values of words, by key; of a key that is given twice, the last one. InputError as `key_value`."""
    return dict(map(key_value, words))


def key_of(word: str) -> str:
    """What stands before the first "=": the whole word where there is none."""
    return word.partition("=")[0]


def read_value(word: str) -> Any:
    """The value of KEY=VALUE, read as YAML. InputError as `key_value`, and where it cannot be read."""
    key, text = key_value(word)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError):
        # YAML's own reader raises others too, as of "2024-13-45", "!!bool x" and a thousand "[".
        raise InputError(f'"{word}" cannot be read: give {key}=VALUE, a number or a word') from None


def written(value: Any) -> str:
    """A value as an override of Hydra's has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str):
        if PLAIN.fullmatch(value) and value.lower() not in NO_TEXT:
            return value
        # A backslash has a meaning before a quote alone, also before the closing one.
        escaped = re.sub(r"(\\+)(?='|\Z)", r"\1\1", value).replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{written(k)}:{written(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    return str(value)
