"""What makes two runs the same run: one definition, for run folders and for tables."""

from __future__ import annotations

import hashlib
import json
from typing import Any

# Keys that say where a run is kept and how it is shown. Everything else that can be asked for changes what is
# measured.
PLACE_KEYS = frozenset({"data_dir", "results", "cache", "run_dir", "fresh", "stale", "launch", "progress"})
# Synchronous systems compute the same whenever they are saved; the workers of an asynchronous one meet there.
MEETING_KEYS = frozenset({"checkpoint_every"})


def identity(config: dict[str, Any], asynchronous: bool) -> dict[str, Any]:
    """The keys of a config that say what is run: everything but its place, by what was asked for (`auto`
    stays `auto`).

    asynchronous   whether its system is (`harness.core.system.System.asynchronous`)
    """
    left_out = PLACE_KEYS if asynchronous else PLACE_KEYS | MEETING_KEYS
    return {key: value for key, value in config.items() if key not in left_out}


def fingerprint(config: dict[str, Any], asynchronous: bool) -> str:
    """A hash of `identity`."""
    return hashlib.sha256(
        json.dumps(identity(config, asynchronous), sort_keys=True, default=str).encode()
    ).hexdigest()
