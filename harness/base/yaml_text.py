"""Yaml that may come from somebody else, checked against limits before anything is made of it: a few lines
may stand for a billion values, or be nested deeper than a parser bears."""

from pathlib import Path
from typing import Any

import yaml

from harness.base.checksum import Damaged
from harness.base.errors import InputError
from harness.base.terminal import CONTROL
from harness.base.words import DIGITS

# The most bytes of a file, levels, and values (with every alias replaced by what it stands for). A composed
# config takes about 2 kB, 3 levels and 100 values.
BYTES, DEPTH, VALUES = 1 << 20, 50, 20_000
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is eight times as fast


def read(path: Path, as_written: bool = False) -> str:
    """The text of a yaml file. Raises OSError where it cannot be read, yaml.YAMLError where it is no yaml,
    and ValueError where it is no UTF-8 or, as Damaged, where it is beyond the limits or holds a control
    character.

    as_written   this program wrote the file: an alias or an interpolation is refused too
    """
    with open(path, "rb") as file:
        content = file.read(BYTES + 1)
    if len(content) > BYTES:
        raise Damaged(f"it is larger than {BYTES} bytes")
    text = content.decode()
    known: dict[str | None, tuple[int, int]] = {}  # by anchor: the values and levels of what it names
    # The same of what is being read, outermost first.
    opened: list[tuple[str | None, int, int]] = [(None, 0, 0)]

    def add(values: int, levels: int) -> None:
        anchor, before, deepest = opened[-1]
        opened[-1] = anchor, before + values, max(deepest, levels)
        if len(opened) + levels > DEPTH:
            raise Damaged("it is nested too deep")
        if sum(each for _, each, _ in opened) > VALUES:
            raise Damaged(f"it means more than {VALUES} values")

    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            if as_written or event.anchor not in known:
                raise Damaged(f"it has an alias, *{event.anchor}: give what it stands for")
            add(*known[event.anchor])
        elif isinstance(event, yaml.ScalarEvent):
            if event.implicit[0] and DIGITS.fullmatch(event.value.lstrip("+-")):
                raise Damaged(f"it holds a number of 400 digits or more, {event.value[:20]}...")
            if CONTROL.search(event.value):
                raise Damaged("it holds a control character: leave it out")
            if as_written and "${" in event.value:
                raise Damaged(f"it holds an interpolation, {event.value[:60]}: give what it stands for")
            known[event.anchor] = 1, 0
            add(1, 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            opened.append((event.anchor, 1, 0))
            add(0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, values, levels = opened.pop()
            known[anchor] = values, levels + 1
            add(values, levels + 1)
    return text


def parsed(text: str) -> Any:
    """The value of a yaml text, in Python's own types. Raises yaml.YAMLError where it is no yaml."""
    return yaml.load(text, Loader=LOADER)


def check_folder(folder: Path) -> None:
    """Raise InputError where a yaml file in a folder, at any depth, is beyond the limits of `read`. Any other
    mistake in a file is left to whoever uses it."""
    for path in (path for path in sorted(folder.rglob("*.yaml")) if path.is_file()):
        try:
            read(path)
        except Damaged as error:
            raise InputError(f"{path} cannot be used: {error}") from None
        except (OSError, ValueError, yaml.YAMLError):
            pass
