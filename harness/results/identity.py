"""What makes two runs the same run: one definition, for run folders and for tables."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.base.errors import InputError

# Keys that say where a run is kept, how it is shown, how long it waits, and what a sweep chooses it by.
# Everything else that can be asked for changes what is measured.
PLACE_KEYS = frozenset({
    "data_dir", "results", "cache", "run_dir", "fresh", "stale", "objective", "launch", "progress", "verbose",
    "keep_checkpoint", "rendezvous", "patience",
})  # fmt: skip
# Synchronous systems compute the same whenever they are saved; the workers of an asynchronous one meet there.
MEETING_KEYS = frozenset({"checkpoint_every"})

# Of a cluster: what only a replay reads, and is fitted to printed numbers long after runs were made.
MODEL_KEY = "fits"

# The number of workers: its key, and the name it had before, which stands for it wherever a config is read.
WORKERS, ALIAS = "workers", "gpus"


def canonical(config: dict[str, Any]) -> dict[str, Any]:
    """The config with its number of workers under `workers`, the one key that the program knows it by.

    On the command line, in a stored config and in a dictionary it may be called `gpus` too.
    InputError where both are given; neither is there where neither is given (null is not)."""
    given = {key: config[key] for key in (WORKERS, ALIAS) if config.get(key) is not None}
    if len(given) > 1:
        said = [f"{key}={value}" for key, value in given.items()]
        raise InputError(f"{' and '.join(said)} are two names of one key: give {said[0]} alone")
    left = {key: value for key, value in config.items() if key not in (WORKERS, ALIAS) or key in given}
    return {WORKERS if key == ALIAS else key: value for key, value in left.items()}


def identity(config: dict[str, Any], asynchronous: bool) -> dict[str, Any]:
    """The keys of a config that say what is run: everything but its place, by what was asked for (`auto`
    stays `auto`).

    asynchronous   whether its system is (`harness.core.system.System.asynchronous`)
    """
    left_out = PLACE_KEYS if asynchronous else PLACE_KEYS | MEETING_KEYS
    found = {key: value for key, value in canonical(config).items() if key not in left_out}
    if isinstance(cluster := found.get("cluster"), dict) and MODEL_KEY in cluster:
        found["cluster"] = {key: value for key, value in cluster.items() if key != MODEL_KEY}
    return found


def fingerprint(config: dict[str, Any], asynchronous: bool) -> str:
    """A hash of `identity`, in which the workers keep their old name: so run folders keep theirs."""
    hashed = {
        ALIAS if key == WORKERS else key: value for key, value in identity(config, asynchronous).items()
    }
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()
