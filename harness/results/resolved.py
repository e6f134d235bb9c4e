"""resolved.json: what a run really ran on, attempt by attempt, and what its system says of itself. Its keys
stand in docs/trace.md.

A config says what was asked for (`auto`); this file says what `auto` became. A run that goes on from a
checkpoint keeps the values on which the bits of its results depend (HELD)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.base.errors import InputError
from harness.results import kinds
from harness.results.files import write_json_atomic
from harness.results.schema import SCHEMA_VERSION

FILE = "resolved.json"
ANEW = "start the run anew with fresh=true"
HELD = ("device", "threads", "kernel")  # another value of these gives other bits


def read(run_dir: Path) -> dict[str, Any] | None:
    """The file's content; None where no worker has begun. InputError where it is damaged."""
    path = Path(run_dir) / FILE
    if not path.exists():
        return None
    found = kinds.read(path, ANEW)
    if not found["attempts"]:
        raise InputError(f"{path} is damaged: it lists no attempts; {ANEW}")
    return found


def role(found: Mapping[str, Any] | None, keys: Mapping[str, Any]) -> str:
    """The role of a run's system in comparisons (`harness.core.system.System.role`). Exact training whose
    sums of gradients are coded (`combine=quantised`) is no longer exact, so its role is "".

    found   what `read` gives
    keys    the run's config, flattened to one level
    """
    told = str((found or {}).get("role", ""))
    coded = not str(keys.get("combine._target_", "Exact")).endswith("Exact")
    return "" if told == "reference" and coded else told


def adds_alike(one: str, other: str) -> bool:
    """Whether a sum over workers has the same bits over two transports. NCCL adds in an order of its own, all
    other transports in the order of ranks."""
    return (one == "nccl") == (other == "nccl")


def record(run_dir: Path, first_epoch: int, attempt: dict[str, Any], system: dict[str, Any]) -> None:
    """Add an attempt that begins at `first_epoch`. Attempts that began there or later are dropped, since none
    of their epochs is kept.

    attempt   what the attempt runs on, by key
    system    `role`, `steps`, `asynchronous`, `devices`, `overlaps`, `combine`, `knobs` and `run`
    """
    before = read(run_dir) if first_epoch else None
    kept = [each for each in (before or {"attempts": []})["attempts"] if each["first_epoch"] < first_epoch]
    write_json_atomic(Path(run_dir) / FILE, {
        "schema": SCHEMA_VERSION, **system, "attempts": [*kept, {"first_epoch": first_epoch, **attempt}],
    })  # fmt: skip


def machine(environment: dict[str, Any]) -> str:
    """Processor, cores and GPUs of environment.json in a few words, with the number of hosts where there are
    several."""
    hosts = environment.get("hosts") or []
    gpus = environment.get("gpus") or []
    return (
        f"{environment['processor']}, {environment['cores']} cores"
        + (f", {len(gpus)} x {gpus[0]}" if gpus else "")
        + (f", {len(hosts)} hosts" if hosts else "")
    )
