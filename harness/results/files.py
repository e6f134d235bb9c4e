"""Files of a run folder, written so that a reader sees the old one or the new one, never a part; and with a
checksum, by which a reader sees whether they are still what was written.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import yaml

from harness.base import checksum
from harness.base.errors import writing
from harness.base.terminal import CONTROL

MEND = "give results=FOLDER on a disk with room"
# Bounds on a config.yaml: a composed config takes about 2 kB and 3 levels.
YAML_BYTES, YAML_DEPTH = 1 << 20, 50


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` beside `path`, and rename it into place. InputError where the disk is full or cannot be
    written.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    with writing(path, MEND):
        part.write_text(text)
        os.replace(part, path)


def write_yaml_atomic(path: Path, text: str) -> None:
    """As `write_text_atomic`, with the checksum in a comment at the end."""
    part = Path(path).with_name(Path(path).name + ".part")
    write_text_atomic(part, text if text.endswith("\n") else text + "\n")
    write_text_atomic(path, part.read_text() + checksum.line_of(part))
    part.unlink(missing_ok=True)


def write_json_atomic(path: Path, value: Any) -> None:
    """As `write_text_atomic`; an object gets its checksum. JSON has no NaN or infinity: they are written as
    null.
    """
    value = _finite(value)
    value = checksum.sealed(value) if isinstance(value, dict) else value
    write_text_atomic(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """What `write_json_atomic` wrote, without its checksum. OSError where it cannot be read, ValueError where
    it is damaged.
    """
    try:
        value = json.loads(Path(path).read_text())
    except RecursionError:
        raise checksum.Damaged("it is nested too deep") from None
    return checksum.unsealed(value) if isinstance(value, dict) else value


def read_yaml_text(path: Path) -> str:
    """The text of a file that `write_yaml_atomic` wrote. OSError where it cannot be read, ValueError or
    yaml.YAMLError where it is damaged, or is what no run writes: large, deep, or with an alias, of which ten
    lines may mean a billion values.
    """
    checksum.check_sealed(path)
    with open(path, "rb") as file:
        text = file.read(YAML_BYTES + 1).decode()
    if len(text) > YAML_BYTES:
        raise checksum.Damaged(f"it is larger than {YAML_BYTES} bytes")
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.AliasEvent):
            raise checksum.Damaged(f"it has an alias, *{event.anchor}, which no run writes")
        if isinstance(event, yaml.ScalarEvent) and CONTROL.search(event.value):
            raise checksum.Damaged("it holds a control character, which no run writes")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > YAML_DEPTH:
            raise checksum.Damaged("it is nested too deep")
    return text
