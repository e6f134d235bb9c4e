"""Words of a command line, KEY=VALUE."""

import re
from collections.abc import Iterable

from harness.base.errors import InputError

# A number, also one in base 60 or hexadecimal, of 400 characters or more. Python may read a number of so many
# digits and then refuse to show it (it shows 4300 at most).
DIGITS = re.compile(r"\b[0-9][0-9a-fA-FxX_:.]{399,}")


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
