"""The tracks of `halobench tune`, whose runs have labels of the form SYSTEM@TRACK:

trial   a setting that is tried; tables leave trials out where other runs are given too
fixed   the system's default setting, on fresh seeds
tuned   the setting with the best validation score of all trials, on the same seeds
"""

import contextlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TRIAL, FIXED, TUNED = "trial", "fixed", "tuned"
LABEL = re.compile(rf"(.+)@({TRIAL}|{FIXED}|{TUNED})")
TRIAL_LINE = re.compile(rf"^label: .+@{TRIAL}$", re.M)
# What is tuned for every system (conf/tune/common.yaml): rows of one table may differ in it.
COMMON = frozenset({"optimiser.lr", "model.dropout", "model.hidden"})


def label(system: str, track: str) -> str:
    return f"{system}@{track}"


def parted(label: str) -> tuple[str, str]:
    """(system, track) of a label SYSTEM@TRACK; (label, "") of any other label."""
    found = LABEL.fullmatch(label)
    return (found[1], found[2]) if found else (label, "")


def of(keys: Mapping[str, Any]) -> tuple[str, str]:
    """(system, track) of a run, from its config flattened to one level: by its label, else its system."""
    return parted(str(keys.get("label") or system_of(keys)))


def system_of(keys: Mapping[str, Any]) -> str:
    """The module of a run's system, which is the NAME in `system=NAME`, whatever the run's label is."""
    return str(keys.get("system._target_", "?")).rpartition(".")[0].rpartition(".")[2]


def without_trials(folders: list[Path]) -> list[Path]:
    """The run folders that are not trials; all folders where every one is a trial. Only labels are read."""
    return [folder for folder in folders if not _is_trial(folder)] or folders


def _is_trial(folder: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):  # whoever reads the run reports a damaged file
        return TRIAL_LINE.search((folder / "config.yaml").read_text()) is not None
    return False
