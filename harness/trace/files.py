"""Files of a run folder, written so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any


def write_text_atomic(path: Path, text: str) -> None:
    """Write `text` beside `path`, and rename it into place."""
    path = Path(path)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    os.replace(part, path)


def write_json_atomic(path: Path, value: Any) -> None:
    """As `write_text_atomic`. JSON has no NaN or infinity: they are written as null."""
    write_text_atomic(path, json.dumps(_finite(value), indent=1, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> Any:
    return json.loads(Path(path).read_text())
