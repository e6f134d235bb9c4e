"""Files of a run folder. They are written so that a reader sees the old file or the new one, never a part,
and with a checksum that tells a reader whether the file is still what was written."""

import json
import math
from pathlib import Path
from typing import Any

from harness.base import checksum, disk, yaml_text
from harness.base.errors import check_text, writing

MEND = "give results=FOLDER on a disk with room"


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` beside `path`, and rename it into place. InputError where the disk is full or refuses."""
    with writing(path, MEND), disk.replacing(Path(path), "w") as file:
        file.write(text)


def write_yaml_atomic(path: Path, text: str) -> None:
    """As `write_text_atomic`, with the checksum in a comment at the end."""
    with writing(path, MEND), disk.replacing(Path(path), "w") as file:
        file.write(text if text.endswith("\n") else text + "\n")
        file.flush()
        file.write(checksum.line_of(Path(file.name)))


def write_json_atomic(path: Path, value: Any) -> None:
    """As `write_text_atomic`; an object gets its checksum. NaN and infinity, not in JSON, become null."""
    value = finite(value)
    value = checksum.sealed(value) if isinstance(value, dict) else value
    write_text_atomic(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def finite(value: Any) -> Any:
    """A value as a file of JSON has it: null in the place of NaN and infinity, a list in that of a tuple."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    """What `write_json_atomic` wrote, without its checksum. OSError where the file cannot be read, ValueError
    where it is damaged."""
    check_file(path)
    try:
        value = json.loads(Path(path).read_text())
        check_text({"it": value})
    except RecursionError:
        raise checksum.Damaged("it is nested too deep") from None
    return checksum.unsealed(value) if isinstance(value, dict) else value


def check_file(path: Path) -> None:
    """Raises Damaged, a ValueError, where a pipe or a device stands in a file's place: opening one may wait
    for ever."""
    if Path(path).exists() and not Path(path).is_file():
        raise checksum.Damaged("it is not a file")


def read_yaml_text(path: Path) -> str:
    """The text of a file that `write_yaml_atomic` wrote. OSError where it cannot be read, ValueError or
    yaml.YAMLError where it is damaged, or is what no run writes (`harness.base.yaml_text`)."""
    check_file(path)
    checksum.check_sealed(path)
    return yaml_text.read(path, as_written=True)
