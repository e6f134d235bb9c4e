"""What a bench measured, as a file: every sample of both sides, the machine and the revision."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.base.machine import cache_bytes, cpu_flags
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.load import Load
from harness.results.environment import environment

SCHEMA = 1
CACHES = (1, 2, 3)  # levels


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
