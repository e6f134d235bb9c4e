"""Words of a command line, KEY=VALUE."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.base.errors import InputError

# A number, in base 60 and hexadecimal too, of so many digits that Python (4300) may read it and not show it.
DIGITS = re.compile(r"\b[0-9][0-9a-fA-FxX_:.]{399,}")


def key_value(word: str) -> tuple[str, str]:
    """What stands before the first "=" and after it. InputError where there is no "=", or no key."""
    check_digits(word)
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise InputError(f'"{word}" is not KEY=VALUE: write KEY=VALUE, as epochs=100')
    return key, value


def check_digits(word: str) -> None:
    """InputError where a word has a number of more digits than Python shows, 4300, or nearly so."""
    if found := DIGITS.search(word):
        raise InputError(
            f"{word[: found.start() + 20]}... has {len(found[0])} digits: give a number of fewer"
        )


def key_values(words: Iterable[str]) -> dict[str, str]:
    """The values of words by their keys, the last of a key that is given twice. InputError as `key_value`."""
    return dict(map(key_value, words))


def key_of(word: str) -> str:
    """What stands before the first "=": the whole word where there is none."""
    return word.partition("=")[0]
