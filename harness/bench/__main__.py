"""`halobench bench [--only PART ...]`: our values beside their peers', in one run.

`halobench bench --against CHECKOUT [KEY=VALUE ...]` runs this code beside another revision's, and `halobench
bench compare OLD.json NEW.json` compares two files of one machine. The exit code is 1 where a target was
missed, or something became slower.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from harness.base.terminal import Terminal
from harness.bench import compare, record
from harness.bench.against import against_lines, checkout, keys_of
from harness.bench.epoch import epoch_curve, epoch_lines
from harness.bench.lines import Line, exponent, table
from harness.bench.overlap import overlap_lines
from harness.bench.partition import partition_lines
from harness.bench.runs import Folders, RunFailed, cpu_lines, start_lines
from harness.bench.spmm import spmm_lines
from harness.bench.systems import system_lines
from harness.check import InputError, at_least
from harness.comm.recorder import cpu_count
from harness.core.architectures import Gcn
from harness.graph import sources
from harness.graph.config import DatasetConfig
from harness.trace.environment import revision

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
            samples=_per_edge(row),
        )
        for row in epochs
    ]
    return [
        *lines,
        Line("curve", "exponent of an epoch's cost over edges", exponent(epochs), "", target=LINEAR),
    ]


def _per_edge(row: dict) -> list[float]:
    return [1e9 * seconds / row["edges"] for seconds in row["samples"]]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="halobench bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    made.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where every sample, the machine and the revision are written (default"
        " results/bench/DATE-TIME.json)",
    )
    made.add_argument(
        "--rounds",
        type=int,
        default=4,
        metavar="N",
        help="of every run of parts cpu, systems, start and partition, and of --against (default 4: the"
        " fewest that tell a difference at p < 0.05)",
    )
    made.add_argument(
        "--cache", type=Path, default=Path("results/cache"), help="graphs and shards (default results/cache)"
    )
    made.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="a checkout of another revision to run beside this"
    )
    made.add_argument(
        "keys", nargs="*", metavar="KEY=VALUE", help="with --against: keys that the runs of both sides have"
    )
    compare.add_bounds(made)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["compare"]:
        return compare.main(words[1:])
    asked = parser().parse_intermixed_args(words)
    console = Terminal(width=max(150, Terminal().width))
    try:
        at_least("--rounds", asked.rounds, 1)
        compare.check_bounds(asked)
        keys = keys_of(asked.keys)
        other = None if asked.against is None else checkout(asked.against)
        if other is None and keys:
            raise InputError(f'"{asked.keys[0]}" is a key of --against: give --against CHECKOUT too')
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    path = asked.json or Path("results", "bench", f"{datetime.now():%Y%m%d-%H%M%S}.json")
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="halobench-") as scratch:
        if other is not None:
            code = _beside(Path(scratch), other, keys, asked, path, console)
        else:
            code = _beside_peers(Folders(Path(scratch), asked.cache), asked, path, console)
    console.print(
        f"{cpu_count()} cores; load before {before:.1f}, after {os.getloadavg()[0]:.1f} "
        f"(times of a busy machine say little); every sample: {path}",
        highlight=False,
    )
    return code


def _beside(
    scratch: Path, other: Path, keys: dict[str, str], asked: argparse.Namespace, path: Path, console: Terminal
) -> int:
    """Run this code beside the checkout `other`; returns the exit code."""
    try:
        lines = against_lines(scratch, other, keys, asked.rounds)
    except RunFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    record.write(lines, path, against={"revision": revision(other), "keys": keys})
    verdicts = [
        compare.judge(line, line.peer_samples, line.samples, asked.margin, asked.alpha) for line in lines
    ]
    console.print(f"old: {other}, revision {revision(other)}; new: this code", highlight=False)
    return compare.show(verdicts, console, asked.margin, asked.alpha)


def _beside_peers(folders: Folders, asked: argparse.Namespace, path: Path, console: Terminal) -> int:
    """Measure the parts that were asked for; returns the exit code."""
    # Whole runs first: they are timed by their own processes, and this one has not yet started any threads.
    parts = {
        "start": lambda: start_lines(folders, asked.rounds),
        "cpu": lambda: cpu_lines(folders, asked.rounds),
        "systems": lambda: system_lines(folders, asked.rounds),
        "overlap": lambda: overlap_lines(sources.load(GRAPH, Path("data"), seed=1), MODEL),
        "partition": lambda: partition_lines(rounds=asked.rounds),
        "epoch": lambda: epoch_lines(sources.load(GRAPH, Path("data"), seed=1), MODEL),
        "spmm": lambda: spmm_lines(GRAPH),
        "curve": curve_lines,
    }
    lines: list[Line] = []
    for part, measure in parts.items():
        if part in asked.only:
            print(f"measuring {part} ...", file=sys.stderr, flush=True)
            found = measure()
            lines += found
            console.print(table(found))  # at once: a bench that is stopped keeps what it has measured
            record.write(lines, path)
    missed = [f"{line.part}: {line.name.strip()}" for line in lines if line.met is False]
    console.print(f"targets missed: {'; '.join(missed) or 'none'}", highlight=False)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
