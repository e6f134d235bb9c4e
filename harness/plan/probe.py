"""A probe: a few epochs of the run itself on this machine, for what only training tells."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.check import InputError
from harness.plan.words import Given
from harness.run.runner import composed
from harness.trace import files


@dataclass
class Probe:
    """epochs  that were run
    bytes   mean per epoch of all workers, without the first; memory   the largest worker's peak, as measured
    said    all this in words
    """

    epochs: int
    bytes: float
    memory: float
    said: str


def probe(words: list[str], given: Given) -> Probe:
    """Run `given.probe` epochs, of the twin at `sample` where one is given. InputError where they fail."""
    assert given.probe is not None
    changed = [*words, f"epochs={given.probe}", "progress=false", "device=cpu", "evaluate.every=0"]
    if given.sample is not None:
        changed.append(f"dataset.scale={given.sample:g}")
    told = subprocess.run(
        [sys.executable, "-m", "harness", *changed], capture_output=True, text=True, check=False
    )
    if told.returncode:
        said = (told.stderr.strip().splitlines() or ["no message"])[-1].removeprefix("error: ")
        raise InputError(f"probe={given.probe}: {said}")
    folder: Path = composed([changed])[0].directory
    summary = files.read_json(folder / "summary.json")
    sent = float(sum(summary["bytes_epoch"].values()))
    memory = float(summary["peak_rss_max"])
    said = (
        f"probed: {given.probe} epochs here sent {sent / 1e6:.3f} MB per epoch, and the largest worker took"
        f" {memory / 1e9:.3f} GB ({folder})"
    )
    if given.sample is not None:
        said += f"; of the twin at scale {given.sample:g}, and not extrapolated"
    return Probe(given.probe, sent, memory, said)
