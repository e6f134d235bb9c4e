"""How every package refuses bad input: in one sentence with the field, the value and what to give instead."""

import contextlib
import dataclasses
import difflib
import errno
import importlib
import re
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base import exact
from harness.base.bounds import WORDS, Bounds, out_of_bounds
from harness.base.machine import limit_reached
from harness.base.terminal import CONTROL, printable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")
TYPES: dict[Any, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
LISTED = 20  # names that an error lists at most


class InputError(ValueError):
    """Something the user gave is wrong. Its message is one sentence and is shown without a traceback, and
    without control characters, since it quotes what was given."""

    def __str__(self) -> str:
        return printable(super().__str__())


def listed(names: Iterable[object]) -> str:
    """Names that stand in a file, on one line: "a, b", "none", or the first LISTED and how many more."""
    # A name out of a damaged file may be anything: line feeds too, and any length.
    shown = [name if name.isprintable() else repr(name)[1:-1] for name in map(str, names)]
    more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
    short = [name if len(name) <= 60 else f"{name[:57]}..." for name in shown[:LISTED]]
    return ", ".join(short) + more or "none"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, without its full stop; the error's type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def machine_said(error: BaseException) -> str | None:
    """One sentence for an error of the machine: a limit that is reached, or a file or folder that cannot be
    used. None for any other error, which is a mistake in this program."""
    if limit := limit_reached(error):
        return limit
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):  # tempfile's
        return "no folder for temporary files can be written; set TMPDIR to one on a disk with room"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename} cannot be used: {error.strerror}"
    return None


# FULL: the errors of a disk that is full or broken. DISK: these, and those of a place that may not be written
# or is not there.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
DISK = {
    *FULL,
    *(errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.EISDIR),
}


@contextlib.contextmanager
def writing(what: object, mend: str) -> Iterator[None]:
    """Turn the error of a disk that cannot be written into an InputError, which names `what` was to be
    written and ends with `mend`, what the user can do."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK:
            raise
        raise InputError(f"{what} cannot be written: {error.strerror}; {mend}") from None


def check_text(config: Mapping[Any, Any], where: str = "", held: re.Pattern[str] = CONTROL) -> None:
    """Raise InputError for the first key or text of a config, at any depth, that holds a control character,
    which is what `held` finds."""
    for key, value in config.items():
        field, block = f"{where}.{key}" if where else str(key), isinstance(value, Mapping | list)
        if found := held.search(f"{key}{value}" if isinstance(value, str) else str(key)):
            said = field if block else f'{field}="{value}"'
            said += f" holds the control character {found[0]!r}; leave it out"
            raise InputError(said.replace("\n", "\\n"))
        if block:
            check_text(value if isinstance(value, Mapping) else dict(enumerate(value)), field, held)


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """The end of an error message about an unknown word: `'; did you mean "metis"?'` where a known name is
    near, in capitals or not; else `'; known: a, b, c'`, or the three nearest of more than LISTED names."""
    names = {str(name).lower(): str(name) for name in known}
    near = difflib.get_close_matches(str(word).lower(), names, n=1, cutoff=0.6)
    if near:
        return f'; did you mean "{names[near[0]]}"?'
    if not word or len(names) <= LISTED:
        return f"; known: {', '.join(sorted(names.values()))}"
    nearest = difflib.get_close_matches(str(word).lower(), sorted(names), n=3, cutoff=0.0)
    return f"; nearest of {len(names)}: {', '.join(names[name] for name in nearest)}"


def package(name: str, extra: str, what: str) -> ModuleType:
    """Import the module `name`, which `what` needs. InputError, which names the extra that brings it, where
    it is missing."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing = name.partition(".")[0]
        raise InputError(f'{what} needs {missing}: pip install "halobench[{extra}]"') from None


def check_place(field: str, path: Path) -> None:
    """InputError where no file can stand at `path`, before what goes there is made."""
    if path.is_dir() or not path.parent.is_dir():
        raise InputError(
            f"{field}={path} is no place for a file: give the name of one in a folder that is there"
        )


def choice(field: str, value: object, known: Iterable[object]) -> None:
    """InputError where the value of `field` is not one of those `known`."""
    known = list(known)
    if value in known:
        return
    if all(isinstance(each, int) for each in known):  # no number is a misspelling of another
        raise InputError(f"{field}={value} is not known: give one of {', '.join(map(str, known))}")
    raise InputError(f'{field}="{value}" is not known{did_you_mean(value, known)}')


def at_least(field: str, value: float, least: float) -> None:
    """InputError where the value of `field` is not `least` or more."""
    if not value >= least:
        raise InputError(f"{field}={value} is too small: give {least} or more")


def within(field: str, value: float, low: float, high: float, above: bool = False) -> None:
    """InputError where the value of `field` is not within `Bounds(low, high, above)`."""
    if value not in (bounds := Bounds(low, high, above)):
        raise InputError(f"{field}={value} is out of range: give {bounds}")


def _made(cls: type[D], values: Mapping[str, Any]) -> D:
    """What `typed` makes, with OmegaConf's errors."""
    with contextlib.suppress(exact.Inexact, InputError):  # whose place OmegaConf names
        return exact.made(cls, values)
    config = OmegaConf.merge(OmegaConf.structured(cls), OmegaConf.create(dict(values)))
    assert isinstance(config, DictConfig)
    for sentence in out_of_bounds(cls, config):
        raise InputError(sentence)
    for f in dataclasses.fields(cls):
        if WORDS in f.metadata and config[f.name] not in f.metadata[WORDS]:
            choice(f.name, config[f.name], filter(None, f.metadata[WORDS]))
    made = OmegaConf.to_object(config)
    assert isinstance(made, cls)
    return made


def typed(cls: type[D], values: Mapping[str, Any], where: str) -> D:
    """Make the dataclass `cls` from `values`, refusing unknown keys and wrong types by name.

    `where` is the config block the values come from ("system", "model", ...; "" for the config itself); it
    prefixes every message. The range checks of `cls.__post_init__` run too, and their messages are prefixed
    likewise. No interpolation is followed: a value that holds one is refused."""
    fields = {f.name for f in dataclasses.fields(cls) if f.init}
    prefix = f"{where}." if where else ""
    for key in values:
        if key not in fields:
            raise InputError(f"{prefix}{key} is not a key of {cls.__name__}{did_you_mean(key, fields)}")
        if "${" in str(values[key]):
            raise InputError(f"{prefix}{key}={values[key]} holds an interpolation: give what it stands for")
    for f in dataclasses.fields(cls):
        if f.init and f.default is f.default_factory is dataclasses.MISSING and f.name not in values:
            raise InputError(f"{prefix}{f.name} is missing: give it")
    try:
        return _made(cls, values)
    except (InputError, OmegaConfBaseException, OverflowError) as error:
        # Where the mistake is in a block inside, checking that block by itself names the place best.
        for place, kind, block in _blocks(cls, values):
            typed(kind, block, f"{prefix}{place}")
        if isinstance(error, InputError):
            raise InputError(f"{prefix}{error}") from None
        if isinstance(error, OverflowError):
            raise InputError(_too_large(values, prefix)) from None
        raise InputError(_mistyped(cls, values, prefix, error)) from None


def _mistyped(cls: type, values: Mapping[str, Any], prefix: str, error: OmegaConfBaseException) -> str:
    """One sentence for a value that OmegaConf refuses among `values` of the dataclass `cls`, outside of its
    blocks: the key after `prefix`, the value, what is wanted, and an example where the key has a default."""
    key = str(error.full_key or "")
    if not key:  # a block of keys that was given as something else: OmegaConf does not say which
        key = next(k for k, kind in typing.get_type_hints(cls).items() if _is_other(kind, values.get(k)))
    kind, value, default = _found(cls, values, key)
    name = f"{prefix}{key}"
    options = [each for each in _options(kind) if each is not type(None)]
    wanted = TYPES.get(options[0]) if len(options) == 1 else None
    if wanted is None:
        wanted = "a list" if typing.get_origin(options[0]) is list else "a block of keys"
    give = "one of them" if options == [bool] else "one"
    if isinstance(default, int | float | str) and default != "" and options != [bool]:
        give += f", as {name}={default}"
    if options == [int] and re.fullmatch(r"\d+-\d+", str(value)):
        first, last = sorted(map(int, str(value).split("-")))
        give += f"; for several give -m {name}={','.join(map(str, range(first, last + 1)[:3]))}"
    null = ", or null" if type(None) in _options(kind) else ""
    return f"{name}={as_given(value)} is not {wanted}: give {give}{null}"


def _too_large(values: Mapping[str, Any], prefix: str) -> str:
    """One sentence for the first whole number among `values` that is larger than any float."""
    found = next(
        key
        for key, value in values.items()
        for each in (value if isinstance(value, list) else value.values() if _is_block(value) else [value])
        if isinstance(each, int) and abs(each) > sys.float_info.max
    )
    return f"{prefix}{found} has more digits than a number can have: give at most 1e308"


def _blocks(cls: type, values: Mapping[str, Any]) -> Iterator[tuple[str, type, Mapping[str, Any]]]:
    """The blocks of keys among the `values` of the dataclass `cls`, each as (its place, as "devices[0]"; its
    dataclass; what it holds)."""
    for key, given in typing.get_type_hints(cls).items():
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
        kind, value = typing.get_type_hints(kind)[part], value[part]
    return kind, value, default


def _is_block(value: Any) -> bool:
    """Whether this is a block of keys, or the type of one."""
    return isinstance(value, Mapping) or (isinstance(value, type) and dataclasses.is_dataclass(value))


def _is_other(kind: Any, value: Any) -> bool:
    """Whether `value` is no block of keys where `kind` is one, or is one where `kind` is a list."""
    options = _options(kind)
    if value is None and type(None) in options:
        return False
    return any(
        _is_block(value) if typing.get_origin(each) is list else _is_block(each) and not _is_block(value)
        for each in options
    )


def _options(kind: Any) -> tuple[Any, ...]:
    """The types of a union; any other type alone."""
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else (kind,)
