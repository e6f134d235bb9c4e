"""What a bench measured, as a file: every sample of both sides, the machine and the revision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.base.errors import InputError
from harness.base.machine import cache_bytes, cpu_flags
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.load import Load
from harness.results.environment import environment

SCHEMA = 1
# Of environment.json: where one of these differs, seconds cannot be compared.
MACHINE = ("system", "processor", "cores", "gpus", "threads")
READ = ("part", "name", "ours", "unit", "samples", "busy")
CACHES = (1, 2, 3)  # levels


@dataclass
class Record:
    """A file that `halobench bench` wrote: which code was measured, on what machine, and the lines."""

    path: Path
    revision: str | None
    machine: dict[str, Any]
    lines: list[BenchLine]


def write(lines: Sequence[BenchLine], path: Path, loads: Mapping[str, Load], **more: Any) -> None:
    """JSON: `environment` as in a run folder (with the revision of this checkout), `cpu` (its flags, and the
    bytes of its caches by level), `loads` (what else the machine did, by part), `more` and `lines`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "bench": SCHEMA,
        "environment": environment(),
        "cpu": {"flags": cpu_flags(), "cache_bytes": {level: cache_bytes(level) for level in CACHES}},
        "loads": {part: load.row() for part, load in loads.items()},
        **more,
        "lines": [line.row() for line in lines],
    }
    # JSON has no NaN: null stands for it.
    finite = json.loads(json.dumps(content), parse_constant=lambda nan: None)
    path.write_text(json.dumps(finite, indent=1))


def read(path: Path) -> Record:
    """InputError where the file is not there, or is none that `write` wrote."""
    try:
        content = json.loads(path.read_text())
        known = content["environment"]
        rows = [{key: row[key] for key in READ} for row in content["lines"]]
        lines = [
            BenchLine(**{**row, "samples": [x for x in row["samples"] if x is not None]}) for row in rows
        ]
        return Record(path, known["revision"], {key: known[key] for key in MACHINE}, lines)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): give a file of bench --json") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{path} is not a file that this version's bench wrote: give one of bench --json"
        ) from None
