"""Classes that a config block names with `_target_`, from inside the tree or outside it."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, TypeVar

from harness.check import InputError, typed

T = TypeVar("T")


def target_class(block: Mapping[str, Any], base: type[T], where: str) -> type[T]:
    """The class that `block`'s `_target_` names, a dataclass derived from `base`.

    where   the block's name in the config; it begins every message

    Raises InputError where there is no such class, or it is no such dataclass.
    """
    target = str(block.get("_target_", ""))
    module, _, name = target.rpartition(".")
    said = f'{where}._target_="{target}"'
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f"{said} cannot be imported: {error}; is its module on the Python path?") from None
    if not (isinstance(cls, type) and issubclass(cls, base)):
        article = "an" if base.__name__[0] in "AEIO" else "a"
        raise InputError(f"{said} is not {article} {base.__name__}; derive the class from {target_of(base)}")
    # A class derived from a dataclass is one, except for the keys that it adds.
    if not dataclasses.is_dataclass(cls) or (
        "__dataclass_fields__" not in vars(cls) and vars(cls).get("__annotations__")
    ):
        raise InputError(
            f"{said} is not a dataclass; write @dataclass above the class, whose fields are its knobs"
        )
    return cls


def target_of(cls: type) -> str:
    """What a block's `_target_` says where it names `cls`."""
    return f"{cls.__module__}.{cls.__qualname__}"


def make(cls: type[T], block: Mapping[str, Any], where: str) -> T:
    """An object of `cls` from the block's keys other than `_target_`."""
    return typed(cls, {key: value for key, value in block.items() if key != "_target_"}, where)
