"""`halobench bench --only device`: what an epoch asks of a GPU, counted on the pretended one of the tests.

Counts depend on the code alone. They are made by `python -m tests.pretend --json` in a process of its own:
the tests are no part of an installed package, so that this part needs a checkout.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from harness.base.places import ROOT
from harness.dev.bench.lines import BenchLine
from harness.dev.bench.runs import RunFailed

WAITS = {"vanilla": 4}  # of the host for its device, at most; each of vanilla's three operations is one
WAITS_OF_ANY = 40


def device_lines(root: Path | None = None) -> list[BenchLine]:
    """Waits and launches per epoch of every system: 2 layers of GCN, 2 workers, evaluation and checkpoints
    apart. One line without a value where `root`, a checkout (default: this one), has no tests. RunFailed
    where they end with an error."""
    root = root or ROOT
    if not (root / "tests" / "pretend").is_dir():
        why = "counted on the pretended GPU of the tests, which only a checkout has"
        return [BenchLine.absent("device", "waits of the host", "per epoch", why)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.pretend", "--json"], cwd=root, capture_output=True, text=True
    )
    if done.returncode:
        raise RunFailed(done.stderr)
    found = []
    for name, counted in json.loads(done.stdout).items():
        most = WAITS.get(name, WAITS_OF_ANY)
        waits, launches = counted["synchronisations"], counted["launches"]
        found += [
            BenchLine("device", f"{name}: waits of the host", waits, "per epoch", target=most),
            BenchLine("device", f"{name}: launches", launches, "per epoch"),
        ]
    return found
