"""Where this checkout or installation is, and a folder with configs of one's own."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import harness

ROOT = Path(harness.__file__).resolve().parents[1]
CONF = str(ROOT / "conf")
OWN_CONFIG = "HALOBENCH_CONFIG_DIR"


def own_config() -> Path | None:
    """The folder with `system/NAME.yaml` and the like of one's own, which `--config-dir` of a command or
    HALOBENCH_CONFIG_DIR in the environment names; None without. InputError where there is no such folder."""
    given = os.environ.get(OWN_CONFIG)
    if given and not Path(given).is_dir():
        from harness.base.errors import InputError  # which brings in omegaconf

        raise InputError(f'{OWN_CONFIG}="{given}" is not a folder: give the one that system/NAME.yaml is in')
    return Path(given) if given else None


def own_config_option() -> list[str]:
    """What a command needs beside its words to find configs of one's own; nothing where there are none."""
    return ["--config-dir", str(own)] if (own := own_config()) else []


def command_line(words: Sequence[str], own: bool) -> str:
    """A command as one types it; with PYTHONPATH, as it is here, where it imports a piece of one's `own`."""
    path = os.environ.get("PYTHONPATH", "") if own else ""
    return (f"PYTHONPATH={shlex.quote(path)} " if path else "") + shlex.join(words)
