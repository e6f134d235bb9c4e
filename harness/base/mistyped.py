"""The sentence for a value whose type is not its key's."""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from omegaconf.errors import OmegaConfBaseException

WORDS: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def mistyped(cls: type, values: Mapping[str, Any], prefix: str, error: OmegaConfBaseException) -> str:
    """One sentence for what OmegaConf refuses among `values` of the dataclass `cls`, outside of its `blocks`:
    the key with `prefix` before it, its value, what is wanted and an example where the key has a default."""
    key = str(error.full_key or "")
    if not key:  # a block of keys that was given as something else: OmegaConf does not say which
        key = next(k for k, kind in _kinds(cls).items() if _is_other(kind, values.get(k)))
    kind, value, default = _found(cls, values, key)
    name = f"{prefix}{key}"
    options = [each for each in _options(kind) if each is not type(None)]
    wanted = WORDS.get(options[0]) if len(options) == 1 else None
    if wanted is None:
        wanted = "a list" if typing.get_origin(options[0]) is list else "a block of keys"
    give = "one of them" if options == [bool] else "one"
    if isinstance(default, int | float | str) and default != "" and options != [bool]:
        give += f", as {name}={default}"
    if options == [int] and re.fullmatch(r"\d+-\d+", str(value)):
        first, last = map(int, str(value).split("-"))
        few = [str(each) for each in range(first, last + 1)][:3]
        give += f"; for several give -m {name}={','.join(few)}"
    null = ", or null" if type(None) in _options(kind) else ""
    return f"{name}={as_given(value)} is not {wanted}: give {give}{null}"


def too_large(values: Mapping[str, Any], prefix: str) -> str:
    """One sentence for the first whole number among `values` that no float is as large as."""
    found = next(
        key
        for key, value in values.items()
        for each in (value if isinstance(value, list) else value.values() if _is_block(value) else [value])
        if isinstance(each, int) and abs(each) > sys.float_info.max
    )
    return f"{prefix}{found} has more digits than a number can have: give at most 1e308"


def blocks(cls: type, values: Mapping[str, Any]) -> Iterator[tuple[str, type, Mapping[str, Any]]]:
    """The blocks of keys among the `values` of the dataclass `cls`: their places, as "devices[0]", their
    dataclasses and what they hold."""
    for key, given in _kinds(cls).items():
        value = values.get(key)
        kind = next(each for each in _options(given) if each is not type(None))
        if _is_block(kind) and isinstance(value, Mapping):
            yield key, kind, value
        elif typing.get_origin(kind) is list and isinstance(value, list):
            (each,) = typing.get_args(kind)
            places = enumerate(value) if _is_block(each) else ()
            yield from ((f"{key}[{at}]", each, block) for at, block in places if isinstance(block, Mapping))


def as_given(value: object) -> str:
    """A value as a command line has it: null, true, [1, 2]."""
    if isinstance(value, str):
        return value or '""'
    return str(yaml.safe_dump(value, default_flow_style=True, width=1 << 20)).removesuffix("\n...\n").strip()


def _found(cls: Any, values: Any, key: str) -> tuple[Any, Any, Any]:
    """The type, the value and the default at a key such as "devices[0].host"; no default inside a list."""
    kind, value, default = cls, values, None
    for part in re.findall(r"\w+", key):
        if typing.get_origin(kind) is list:
            kind, value, default = typing.get_args(kind)[0], value[int(part)], None
            continue
        default = {field.name: field.default for field in dataclasses.fields(kind)}[part]
        kind, value = _kinds(kind)[part], value[part]
    return kind, value, default


def _kinds(cls: type) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _is_block(value: Any) -> bool:
    """Whether this is a block of keys, or the type of one."""
    return isinstance(value, Mapping) or (isinstance(value, type) and dataclasses.is_dataclass(value))


def _is_other(kind: Any, value: Any) -> bool:
    """Whether a block of keys has something else for its value, or a list has a block."""
    options = _options(kind)
    if value is None and type(None) in options:
        return False
    return any(
        _is_block(value) if typing.get_origin(each) is list else _is_block(each) and not _is_block(value)
        for each in options
    )


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union; of any other type itself."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)
