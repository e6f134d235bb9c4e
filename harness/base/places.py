"""Where this checkout or installation is, and the folder with the user's own configs."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import harness

ROOT = Path(harness.__file__).resolve().parents[1]
CONF = str(ROOT / "conf")
OWN_CONFIG = "HALOBENCH_CONFIG_DIR"


def own_config() -> Path | None:
    """The folder with the user's own `system/NAME.yaml` and the like, which `--config-dir` of a command or
    HALOBENCH_CONFIG_DIR in the environment names; None without either. InputError where it is no folder."""
    given = os.environ.get(OWN_CONFIG)
    if given and not Path(given).is_dir():
        from harness.base.errors import InputError  # which brings in omegaconf

        raise InputError(f'{OWN_CONFIG}="{given}" is not a folder: give the one that system/NAME.yaml is in')
    return Path(given) if given else None


def own_config_option() -> list[str]:
    """The options that a command needs to find the user's own configs; [] where there are none."""
    return ["--config-dir", str(own)] if (own := own_config()) else []


def command_line(words: Sequence[str], own: bool) -> str:
    """A command as one types it. `own`: it imports a module of the user's, so PYTHONPATH stands before it."""
    path = os.environ.get("PYTHONPATH", "") if own else ""
    return (f"PYTHONPATH={shlex.quote(path)} " if path else "") + shlex.join(words)
