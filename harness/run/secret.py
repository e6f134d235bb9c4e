"""The secret of a run, with which its workers sign what they tell each other over torchrun's store.

It stands in the run folder, in a file that only its user can read, from when the run is prepared for torchrun
until it has finished. A host that does not see the folder takes it from the environment variable
HALOBENCH_SECRET. It is part of no config, trace or page."""

import os
import secrets
from pathlib import Path

from harness.base import disk
from harness.base.errors import InputError, writing
from harness.results.files import MEND

FILE, VARIABLE = "secret", "HALOBENCH_SECRET"
PART = f"{FILE}.part"
LEAST = 16  # characters; fewer could be guessed from one signed message


def make(run_dir: Path) -> None:
    """Leave a secret in a run folder that has none. InputError where it cannot be written."""
    if _in_folder(run_dir):
        return
    with writing(run_dir / FILE, MEND), disk.replacing(run_dir / FILE, "w", access=0o600) as file:
        file.write(secrets.token_hex(32) + "\n")


def read(run_dir: Path) -> bytes | None:
    """The run's secret as this host has it; None where it has none. InputError where it is too short."""
    given = os.environ.get(VARIABLE, "").strip()
    if given and len(given) < LEAST:
        raise InputError(
            f"{VARIABLE} has {len(given)} characters and could be guessed; give {LEAST} or more, as {FILE} in"
            " RUN_DIR has"
        )
    return (given or _in_folder(run_dir)).encode(errors="surrogateescape") or None


def _in_folder(run_dir: Path) -> str:
    """The secret in the run folder; "" where it has none."""
    try:
        with open(os.open(run_dir / FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(1024).decode().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def forget(run_dir: Path) -> None:
    """Remove the secret of a run that needs none any more."""
    (run_dir / FILE).unlink(missing_ok=True)
