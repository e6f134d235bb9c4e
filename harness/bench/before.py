"""This repository as it was before it was made faster, to be timed beside."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

from harness.bench.runs import Folders

BEFORE = "5b04fba"  # the last revision before the sparse product had tilings and start-up was cut


def written(folder: Path) -> Path | None:
    """The files of revision BEFORE, in a folder of that name in `folder`; None where git does not have
    them.
    """
    here, tree = Path(__file__).resolve().parents[2], folder / BEFORE
    if tree.exists():
        return tree
    try:
        found = subprocess.run(
            ["git", "-C", str(here), "archive", BEFORE, "harness", "systems", "conf", "pyproject.toml"],
            capture_output=True,
        )
    except OSError:
        return None  # no git on this machine
    if found.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as files:
        files.extractall(tree, filter="data")
    return tree


def folders(own: Folders) -> Folders | None:
    """Where runs of that revision go, beside those of `own`; their cache is their own. None without it."""
    tree = written(own.results)
    return None if tree is None else Folders(tree / "results", tree / "cache", tree)
