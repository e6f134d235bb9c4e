"""Classes that a config block names by `_target_`, which may come from outside the tree.

Importing a module runs it. So a module is trusted if the user names it, on the command line or in a yaml of a
folder that the user gave. One that only the config of a run folder names must lie in the tree (`harness`,
`systems`), or be allowed by HALOBENCH_ALLOW=PACKAGE,... in the environment."""

import contextlib
import dataclasses
import importlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from harness.base import yaml_text
from harness.base.errors import InputError, typed

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
KEY = "_target_"
TREE = ("harness", "systems")
ALLOW = "HALOBENCH_ALLOW"
_named: set[str] = set()  # modules outside the tree that the user has named in this process


def targets(config: Mapping[str, Any], where: str = "") -> Iterator[tuple[str, str]]:
    """(field, "module.Class") of everything that a config names to be imported: each `_target_`, at any
    depth, and a `kernel` of the user's own."""
    for key, value in config.items():
        field = f"{where}.{key}" if where else str(key)
        if isinstance(value, Mapping):
            yield from targets(value, field)
        elif key == KEY or (field == "kernel" and "." in str(value)):
            yield field, str(value)


def trust(config: Mapping[str, Any]) -> None:
    """Trust the modules that this config names, for as long as this process runs: the user has named them."""
    _named.update(_module(target) for _, target in targets(config) if not is_trusted(target))


def trust_folder(folder: Path) -> None:
    """`trust` all yaml files of a folder of configs. InputError where one is beyond the limits of
    `harness.base.yaml_text`; one that cannot be read names nothing."""
    yaml_text.check_folder(folder)
    for path in sorted(folder.rglob("*.yaml")):
        with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
            if isinstance(config := yaml_text.parsed(yaml_text.read(path)), Mapping):
                trust(config)


def trusted_in(config: Mapping[str, Any]) -> str:
    """The value of HALOBENCH_ALLOW with which a process that reads this config from a run folder trusts what
    is trusted here; "" where all of that is in the tree."""
    named = {_module(target) for _, target in targets(config) if is_trusted(target)}
    return ",".join(sorted(module for module in named if module.partition(".")[0] not in TREE))


def is_trusted(target: str) -> bool:
    """Whether the module of "module.Class" may be imported though only a run folder names it."""
    module = _module(target)
    allowed = {*TREE, *_named, *(name.strip() for name in os.environ.get(ALLOW, "").split(","))} - {""}
    return any(module == each or module.startswith(f"{each}.") for each in allowed)


def untrusted(config: Mapping[str, Any]) -> list[str]:
    """The modules that a config names and that are not trusted (`is_trusted`)."""
    return sorted({_module(target) for _, target in targets(config) if not is_trusted(target)})


def check_trusted(config: Mapping[str, Any], source: object) -> None:
    """Raise InputError for the first target of a config that only `source`, a file of a run, names."""
    for field, target in targets(config):
        if not is_trusted(target):
            raise InputError(
                f'{field}="{target}" is named by {source} alone and is not of this program; set'
                f" {ALLOW}={_module(target)} in the environment if you trust that module, or give the"
                " --config-dir whose yaml names it"
            )


def _module(target: str) -> str:
    return target.rpartition(".")[0]


def imported(target: str, field: str, base: type[T]) -> type[T]:
    """The class derived from `base` that `target` ("module.Class") names.

    Raises InputError, naming `field`, where it cannot be imported or is not derived from `base`."""
    module, _, name = target.rpartition(".")
    if target.startswith("."):
        raise InputError(f'{field}="{target}" does not begin with a module: give MODULE.CLASS')
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f'{field}="{target}" cannot be imported: {error}; put its folder on PYTHONPATH'
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

    Raises InputError as `imported` does, and for a class that is no dataclass, or that lacks a method which
    its `_missing_method()` (where it has that) says it must define."""
    target, field = str(block.get(KEY, "")), f"{where}.{KEY}"
    cls = imported(target, field, base)
    # A class derived from a dataclass is a dataclass, but fields that it adds are none without @dataclass.
    own = [kind for kind in vars(cls).get("__annotations__", {}).values() if "ClassVar" not in str(kind)]
    if not dataclasses.is_dataclass(cls) or (own and "__dataclass_fields__" not in vars(cls)):
        raise InputError(
            f'{field}="{target}" is not a dataclass; write @dataclass above the class, whose fields'
            " are its knobs"
        )
    missing_method = getattr(cls, "_missing_method", None)
    if missing_method and (lacking := missing_method()):
        raise InputError(
            f'{field}="{target}" lacks the method {lacking}; define it as'
            f" {base.__module__.replace('.', '/')}.py says"
        )
    return cls


def made(block: Mapping[str, Any], where: str, base: type[D]) -> D:
    """The object that the config block `where` describes: its `_target_`, built from its other keys.

    Raises InputError with one sentence at the first thing wrong."""
    return typed(target_class(block, where, base), {k: v for k, v in block.items() if k != KEY}, where)


def target_of(cls: type) -> str:
    """The `_target_` of a block that names `cls`."""
    return f"{cls.__module__}.{cls.__qualname__}"
