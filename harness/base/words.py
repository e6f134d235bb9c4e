"""Words of a command line, KEY=VALUE."""

from __future__ import annotations

from collections.abc import Iterable

from harness.base.errors import InputError


def key_value(word: str) -> tuple[str, str]:
    """What stands before the first "=" and after it. InputError where there is no "=", or no key."""
    key, equals, value = word.partition("=")
    if not (key and equals):
        raise InputError(f'"{word}" is not KEY=VALUE: write KEY=VALUE, as epochs=100')
    return key, value


def key_values(words: Iterable[str]) -> dict[str, str]:
    """The values of words by their keys, the last of a key that is given twice. InputError as `key_value`."""
    return dict(map(key_value, words))


def key_of(word: str) -> str:
    """What stands before the first "=": the whole word where there is none."""
    return word.partition("=")[0]
