"""Tables of results."""
from __future__ import annotations
from pathlib import Path
def run_table(run_dir: Path):
    from harness.trace.reader import Trace
    return Trace(run_dir).summary
