"""A block's dataclass made without OmegaConf, of values that have the very types of its fields: a hundred
times as fast. Whatever would have to be read, converted or refused is left to OmegaConf."""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from harness.base.bounds import KEY, WORDS

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
SCALARS = (bool, int, float, str)
WHOLE = 2**53  # below it every whole number is a float
MISSING = "???"  # OmegaConf's word for a value that is still to be given


class Inexact(Exception):
    """A value has another type than its field, or is not one that the field may have."""


def made(cls: type[D], values: Mapping[str, Any]) -> D:
    """The dataclass `cls` of these values, with copies of their lists and blocks. Raises Inexact where one
    does not fit, and whatever `cls.__post_init__` raises."""
    given = {}
    for field, kind in _fields(cls):
        value = default = field.default
        if field.default_factory is not dataclasses.MISSING:
            value = default = field.default_factory()
        if field.name in values:
            value = values[field.name]
            if type(value) in (dict, list) and not _replaced(default):
                raise Inexact
        given[field.name] = value = _exact(kind, value)
        bounds, words = field.metadata.get(KEY), field.metadata.get(WORDS)
        numbers = value if isinstance(value, list) else [value]
        if bounds is not None and not all(each is None or each in bounds for each in numbers):
            raise Inexact
        if words is not None and value not in words:
            raise Inexact
    if not values.keys() <= given.keys():
        raise Inexact
    return cls(**given)


@functools.cache
def _fields(cls: type) -> list[tuple[dataclasses.Field[Any], Any]]:
    """Each field with its type. Raises Inexact where one is no argument of the constructor."""
    hints, fields = typing.get_type_hints(cls), dataclasses.fields(cls)
    if not all(field.init for field in fields):
        raise Inexact
    return [(field, hints[field.name]) for field in fields]


def _replaced(default: Any) -> bool:
    """Whether a block or list that is given replaces this default: OmegaConf merges blocks into others."""
    if dataclasses.is_dataclass(default) and not isinstance(default, type):
        return repr(_exact(type(default), default)) == repr(made(type(default), {}))
    return type(default) is not dict or not default


def _exact(kind: Any, value: Any) -> Any:
    """The value as a `kind`. Raises Inexact where it is none."""
    own, origin, inside = type(value), typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, types.UnionType) or origin is typing.Union:
        if value is None and type(None) in inside:
            return None
        others = [each for each in inside if each is not type(None)]
        if len(others) == 1 or own in others:
            return _exact(others[0] if len(others) == 1 else own, value)
    if kind is float and own is int:
        return float(_scalar(value))
    if own in SCALARS and kind in (own, Any):
        return _scalar(value)
    if value is None and kind is Any:
        return None
    if own is list and (kind is Any or origin is list):
        return [_exact(inside[0] if inside else Any, each) for each in value]
    if own is dict and (kind is Any or (origin is dict and inside[0] is str)):
        if not all(type(key) is str for key in value):
            raise Inexact
        return {key: _exact(inside[1] if inside else Any, each) for key, each in value.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        if own is kind:  # a default
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
        if type(value) is dict:
            return made(kind, value)
    raise Inexact


def _scalar(value: Any) -> Any:
    """The number or the text. Raises Inexact where OmegaConf takes it for something else, or where it is too
    large."""
    if value == MISSING or (type(value) is int and abs(value) > WHOLE):
        raise Inexact
    return value
