"""Classes that a config block names by `_target_`: how a piece from outside the tree comes in."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from harness.check import InputError, typed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
KEY = "_target_"


def imported(target: str, field: str, base: type[T]) -> type[T]:
    """The class derived from `base` that `target` ("module.Class") names.

    Raises InputError, naming `field`, where there is none, it is not derived from `base`, or it lacks a
    method that `base.lacks()` (where there is such a method) says it must have.
    """
    module, _, name = target.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f'{field}="{target}" cannot be imported: {error}; is its module on the Python path?'
        ) from None
    if not (isinstance(cls, type) and issubclass(cls, base)):
        article = "an" if base.__name__[0] in "AEIO" else "a"
        raise InputError(
            f'{field}="{target}" is not {article} {base.__name__}; derive the class from'
            f" {base.__module__}.{base.__name__}"
        )
    return cls


def target_class(block: Mapping[str, Any], where: str, base: type[D]) -> type[D]:
    """The dataclass that the `_target_` of the config block `where` names, derived from `base`.

    Raises InputError as `imported` does, and for a class that is no dataclass or is incomplete.
    """
    target, field = str(block.get(KEY, "")), f"{where}.{KEY}"
    cls = imported(target, field, base)
    # A class derived from a dataclass is one, but for the knobs that it adds.
    own = [kind for kind in vars(cls).get("__annotations__", {}).values() if "ClassVar" not in str(kind)]
    if not dataclasses.is_dataclass(cls) or (own and "__dataclass_fields__" not in vars(cls)):
        raise InputError(
            f'{field}="{target}" is not a dataclass; write @dataclass above the class, whose fields'
            " are its knobs"
        )
    lacks = getattr(cls, "lacks", None)
    if lacks and (lacking := lacks()):
        raise InputError(
            f'{field}="{target}" lacks the method {lacking}; define it as'
            f" {base.__module__.replace('.', '/')}.py says"
        )
    return cls


def made(block: Mapping[str, Any], where: str, base: type[D]) -> D:
    """The object that the config block `where` describes: its `_target_`, built from its other keys.

    Raises InputError with one sentence at the first thing wrong.
    """
    return typed(target_class(block, where, base), {k: v for k, v in block.items() if k != KEY}, where)


def target_of(cls: type) -> str:
    """What a block's `_target_` says where it names `cls`."""
    return f"{cls.__module__}.{cls.__qualname__}"
