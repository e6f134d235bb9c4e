"""A probe: a few epochs of the run itself on this machine, for what only training tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.model.plan.trial import run_all
from harness.model.plan.words import Given
from harness.results import files
from harness.results.reader import STARTED
from harness.run import runner


@dataclass
class Probe:
    """What a probe measured.

    epochs   that were run
    bytes    mean per epoch of all workers, without the first
    memory   the largest worker's peak
    said     all this in words
    """

    epochs: int
    bytes: float
    memory: float
    said: str


def probe(words: Sequence[str], given: Given) -> Probe:
    """Train `given.probe` epochs on this machine's processor, of the twin at `sample` where one is given.
    InputError where that fails."""
    assert given.probe is not None
    results = f"results={given.runs[0][1].settings.results}/{STARTED}"
    changed = [*words, results, f"epochs={given.probe}", "device=cpu", "evaluate.every=0"]
    if given.sample is not None:
        changed.append(f"dataset.scale={given.sample:g}")
    (folder,) = run_all(runner.composed([changed]), changed)
    assert folder is not None  # else it has raised
    summary = files.read_json(folder / "summary.json")
    sent, memory = float(sum(summary["bytes_epoch"].values())), float(summary["peak_rss_max"])
    said = (
        f"probed: {given.probe} epochs here sent {sent / 1e6:.3f} MB per epoch, and the largest worker took"
        f" {memory / 1e9:.3f} GB of this host's memory ({folder})"
    )
    if given.sample is not None:
        said += f"; measured on the twin at scale {given.sample:g}, and not extrapolated"
    return Probe(given.probe, sent, memory, said)
