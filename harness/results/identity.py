"""What makes two runs the same run: one definition, for run folders and for tables."""

import hashlib
import json
from typing import Any

from harness.base.errors import InputError

# Keys that say where a run is kept, how it is shown, how long it waits, and by which value a sweep judges it.
# Every other key changes what is measured.
PLACE_KEYS = frozenset({
    "data_dir", "results", "cache", "run_dir", "fresh", "stale", "objective", "launch", "progress", "verbose",
    "keep_checkpoint", "rendezvous", "patience",
})  # fmt: skip
# How often checkpoints are saved changes nothing that a synchronous system computes. The workers of an
# asynchronous system meet at checkpoints, so there it changes the run.
MEETING_KEYS = frozenset({"checkpoint_every"})

# The key of a cluster that only a replay reads: it is fitted to printed numbers long after runs were made.
MODEL_KEY = "fits"

# The key of the number of workers, and its former name, which is taken for the key wherever a config is read.
WORKERS, ALIAS = "workers", "gpus"


def canonical(config: dict[str, Any]) -> dict[str, Any]:
    """The config with its number of workers under `workers`, the one key that the program knows it by.

    On the command line, in a stored config and in a dictionary the number may be called `gpus` too.
    InputError where both keys are given. Where neither is, the result has neither; null counts as not given.
    """
    given = {key: config[key] for key in (WORKERS, ALIAS) if config.get(key) is not None}
    if len(given) > 1:
        said = [f"{key}={value}" for key, value in given.items()]
        raise InputError(f"{' and '.join(said)} are two names of one key: give {said[0]} alone")
    left = {key: value for key, value in config.items() if key not in (WORKERS, ALIAS) or key in given}
    return {WORKERS if key == ALIAS else key: value for key, value in left.items()}


def identity(config: dict[str, Any], asynchronous: bool) -> dict[str, Any]:
    """The keys of a config that say what is run: all but those that say where it is kept and shown
    (PLACE_KEYS). Values are those that were asked for: `auto` stays `auto`.

    asynchronous   whether the run's system is a `harness.core.mixins.AsynchronousSystem`
    """
    left_out = PLACE_KEYS if asynchronous else PLACE_KEYS | MEETING_KEYS
    found = {key: value for key, value in canonical(config).items() if key not in left_out}
    if isinstance(cluster := found.get("cluster"), dict) and MODEL_KEY in cluster:
        found["cluster"] = {key: value for key, value in cluster.items() if key != MODEL_KEY}
    return found


def fingerprint(config: dict[str, Any], asynchronous: bool) -> str:
    """A hash of `identity`. The number of workers is hashed under its former name, so that run folders keep
    their names."""
    hashed = {
        ALIAS if key == WORKERS else key: value for key, value in identity(config, asynchronous).items()
    }
    return hashlib.sha256(json.dumps(hashed, sort_keys=True, default=str).encode()).hexdigest()
