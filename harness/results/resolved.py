"""resolved.json: what a run really ran on, attempt by attempt, and what its system says of itself;
docs/trace.md has its keys.

A config says what was asked for (`auto`); this file says what that became. A run that goes on from a
checkpoint keeps the values that its bits depend on (HELD)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.base.errors import InputError
from harness.base.machine import check_machine
from harness.results import kinds
from harness.results.files import read_json, write_json_atomic
from harness.results.schema import SCHEMA_VERSION

FILE = "resolved.json"
AUTO = ("device", "threads", "transport", "kernel")  # the keys that may be `auto`
HELD = ("device", "threads", "kernel")  # another value of these gives other bits


def read(run_dir: Path) -> dict[str, Any] | None:
    """The file's content; None where no worker has begun. InputError where it is damaged."""
    path = Path(run_dir) / FILE
    try:
        found: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        check_machine(error, path)
        raise InputError(f"{path} cannot be read ({error}); start the run anew with fresh=true") from None
    attempts = found.get("attempts") if isinstance(found, dict) else None
    if (
        not isinstance(attempts, list)
        or not attempts
        or not all(isinstance(each, dict) and {"first_epoch", *AUTO} <= each.keys() for each in attempts)
    ):
        raise InputError(f"{path} is damaged: it lists no attempts; start the run anew with fresh=true")
    kinds.check(path, found, "start the run anew with fresh=true")
    return found


def role(found: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> str:
    """Of a run's system (`harness.core.system.System.role`); none of exact training whose sums of gradients
    are coded (`combine=quantised`), which is exact no more.

    found   what `read` gives
    keys    of its config, in one level
    """
    told = str((found or {}).get("role", ""))
    coded = not str(keys.get("combine._target_", "Exact")).endswith("Exact")
    return "" if told == "reference" and coded else told


def adds_alike(one: str, other: str) -> bool:
    """Whether a sum over workers has the same bits over two transports: NCCL's order of terms is its own, all
    others add in the order of ranks."""
    return (one == "nccl") == (other == "nccl")


def record(run_dir: Path, first_epoch: int, attempt: dict[str, Any], system: dict[str, Any]) -> None:
    """Add an attempt that begins at `first_epoch`; those that began there or later have traced nothing kept.

    attempt   what it runs on
    system    `role`, `steps`, `asynchronous`, `devices`, `overlaps`, `combine`, `knobs` and `run`
    """
    before = read(run_dir) if first_epoch else None
    kept = [each for each in (before or {"attempts": []})["attempts"] if each["first_epoch"] < first_epoch]
    write_json_atomic(Path(run_dir) / FILE, {
        "schema": SCHEMA_VERSION, **system, "attempts": [*kept, {"first_epoch": first_epoch, **attempt}],
    })  # fmt: skip


def machine(environment: dict[str, Any]) -> str:
    """Processor, cores and GPUs of environment.json in a few words; of several hosts, how many they are."""
    hosts = environment.get("hosts") or []
    gpus = environment.get("gpus") or []
    return (
        f"{environment['processor']}, {environment['cores']} cores"
        + (f", {len(gpus)} x {gpus[0]}" if gpus else "")
        + (f", {len(hosts)} hosts" if hosts else "")
    )
