"""`python -m harness.bench [--only PART ...] [--json FILE]`: our figures beside their peers', in one run."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.bench.epoch import epoch_curve, epoch_lines
from harness.bench.lines import Line, exponent, table
from harness.bench.overlap import overlap_lines
from harness.bench.partition import partition_lines
from harness.bench.runs import Folders, cpu_lines, start_lines
from harness.bench.spmm import spmm_lines
from harness.bench.systems import system_lines
from harness.comm.recorder import cpu_count
from harness.core.architectures import Gcn
from harness.graph import sources
from harness.graph.config import DatasetConfig

PARTS = ("epoch", "cpu", "systems", "overlap", "partition", "spmm", "curve", "start")
GRAPH = DatasetConfig(name="reddit", source="twin", scale=0.05)
MODEL = Gcn(layers=2, hidden=128, dropout=0.0)
LINEAR = 1.15  # largest exponent of cost ~ edges^k that still counts as linear


def curve_lines() -> list[Line]:
    """Nanoseconds per edge of one worker's epoch from 10^5 to 10^7 edges, and the exponent k of seconds ~
    edges^k.
    """
    epochs = epoch_curve()
    lines = [
        Line(
            "curve",
            f"{row['edges']:>10,} edges, epoch of {row['graph']}",
            row["ns_per_edge"],
            "ns/edge",
            note=f"{row['vertices']:,} vertices",
        )
        for row in epochs
    ]
    return [
        *lines,
        Line("curve", "exponent of an epoch's cost over edges", exponent(epochs), "", target=LINEAR),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="halobench bench", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every line there too")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="of every run of parts cpu, systems and start (default 3)",
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("results/cache"), help="graphs and shards (default results/cache)"
    )
    asked = parser.parse_args(arguments)
    if asked.rounds < 1:
        parser.error(f"--rounds {asked.rounds} is too small: give 1 or more")
    console = Console(width=max(150, Console().width))
    lines: list[Line] = []
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="halobench-") as scratch:
        folders = Folders(Path(scratch), asked.cache)
        # Whole runs first: they are timed by their own processes, and this one has not yet started any
        # threads.
        parts = {
            "start": lambda: start_lines(folders, asked.rounds),
            "cpu": lambda: cpu_lines(folders, asked.rounds),
            "systems": lambda: system_lines(folders, asked.rounds),
            "overlap": lambda: overlap_lines(sources.load(GRAPH, Path("data"), seed=1), MODEL),
            "partition": partition_lines,
            "epoch": lambda: epoch_lines(sources.load(GRAPH, Path("data"), seed=1), MODEL),
            "spmm": lambda: spmm_lines(GRAPH),
            "curve": curve_lines,
        }
        for part, measure in parts.items():
            if part in asked.only:
                print(f"measuring {part} ...", file=sys.stderr, flush=True)
                found = measure()
                lines += found
                console.print(table(found))  # at once: a bench that is stopped keeps what it has measured
                if asked.json:
                    write(lines, asked.json)
    missed = [line.name for line in lines if line.met is False]
    console.print(
        f"{cpu_count()} cores; load before {before:.1f}, after {os.getloadavg()[0]:.1f} "
        "(figures of a busy machine say little)",
        highlight=False,
    )
    console.print(f"targets missed: {'; '.join(missed) if missed else 'none'}", highlight=False)
    return 0


def write(lines: list[Line], path: Path) -> None:
    rows = [
        {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in line.row().items()}
        for line in lines
    ]
    path.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.exit(main())
