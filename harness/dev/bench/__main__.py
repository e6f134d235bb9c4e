"""`halobench bench [--only PART ...]`: our values beside their peers', in one run.

`halobench bench --against CHECKOUT [KEY=VALUE ...]` runs this code beside another revision's. The exit code
is 1 where a target was missed or, with --against, something became slower or sent other bytes; 3 where no
target was missed, but other processes kept the machine too busy to judge one.
"""

import argparse
import math
import sys
from datetime import datetime
from pathlib import Path

import torch

from harness.base.errors import InputError, at_least, check_place, within
from harness.base.scratch import scratch
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.terminal import Terminal, unfolded
from harness.comm.recorder import cpu_count
from harness.dev.bench.against import MARGIN, against_lines, checkout, judge, keys_of, show
from harness.dev.bench.lines import BenchLine, table, write
from harness.dev.bench.load import Load, Watch
from harness.dev.bench.parts import PARTS
from harness.dev.bench.runs import FULL, QUICK, Folders, Setting
from harness.results.environment import revision

MISSED, UNJUDGED = 1, 3  # exit codes; 2 is that of bad input


def parser(program: str) -> argparse.ArgumentParser:
    made = Parser(
        prog=program,
        description=__doc__,
        epilog="parts:\n" + "\n".join(f"  {name:10} {part.says}" for name, part in PARTS.items()),
        formatter_class=AS_WRITTEN,
    )
    made.add_argument(
        "--only", nargs="+", choices=PARTS, default=tuple(PARTS), metavar="PART", help="of those below"
    )
    made.add_argument(
        "--quick",
        action="store_true",
        help="every part on small graphs, to see that it runs: held to no target",
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
        help="of what is whole runs, of part partition, and of --against (default 4: the fewest that tell a"
        " difference at p < 0.05)",
    )
    made.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="FOLDER",
        help="where parts bags and lean find their graphs; nothing is downloaded (default data)",
    )
    made.add_argument(
        "--cache", type=Path, default=Path("results/cache"), help="graphs and shards (default results/cache)"
    )
    made.add_argument(
        "--device",
        choices=("cuda", "cpu"),
        default="cuda",
        help="of part gpu (default cuda; cpu: to see that it runs)",
    )
    made.add_argument(
        "--against", type=Path, metavar="CHECKOUT", help="a checkout of another revision to run beside this"
    )
    made.add_argument(
        "keys", nargs="*", metavar="KEY=VALUE", help="with --against: keys that the runs of both sides have"
    )
    made.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        metavar="SHARE",
        help=f"with --against: how much slower a line may be, relative (default {MARGIN})",
    )
    return made


@command("halobench bench")
def main(words: list[str], program: str) -> int:
    asked = parser(program).parse_intermixed_args(words)
    console = unfolded()
    at_least("--rounds", asked.rounds, 1)
    within("--margin", asked.margin, 0, math.inf)
    keys = keys_of(asked.keys)
    other = None if asked.against is None else checkout(asked.against)
    if other is None and keys:
        raise InputError(f'"{asked.keys[0]}" is a key of --against: give --against CHECKOUT too')
    path = asked.json or Path("results", "bench", f"{datetime.now():%Y%m%d-%H%M%S}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    check_place("json", path)
    with scratch() as folder:
        if other is not None:
            code = _beside(folder, other, keys, asked, path, console)
        else:
            code = _beside_peers(Folders(folder, asked.cache.resolve()), asked, path, console)
    console.say(f"{cpu_count()} cores; every sample: {path}")
    return code


def _beside(
    scratch: Path, other: Path, keys: dict[str, str], asked: argparse.Namespace, path: Path, console: Terminal
) -> int:
    """Run this code beside the checkout `other`; returns the exit code."""
    watch = Watch()
    lines = against_lines(scratch, other, keys, asked.rounds)
    load = watch.load()
    for line in lines:
        line.part, line.busy = "against", load.busy
        judge(line, asked.margin)
    write(lines, path, {"against": load}, against={"revision": revision(other), "keys": keys})
    console.say(str(load))
    console.say(f"ours: this code; peer: {other}, revision {revision(other)}")
    return show(lines, console, asked.margin) or (UNJUDGED if load.busy else 0)


def _beside_peers(folders: Folders, asked: argparse.Namespace, path: Path, console: Terminal) -> int:
    """Measure the parts that were asked for; returns the exit code."""
    extent = QUICK if asked.quick else FULL
    device = torch.device("cpu") if asked.device == "cpu" else None
    setting = Setting(folders, asked.data_dir, asked.rounds, extent, device)
    lines: list[BenchLine] = []
    loads: dict[str, Load] = {}
    for name, part in PARTS.items():
        if name not in asked.only:
            continue
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        watch = Watch()
        found = part.measure(setting)
        loads[name] = watch.load()
        for line in found:
            line.part, line.busy = name, loads[name].busy
            if not extent.targets:
                line.target = None
        lines += found
        console.print(table(found))  # at once: a bench that is stopped keeps what it has measured
        console.say(f"{name}: {loads[name]}")
        write(lines, path, loads)
    unjudged, missed = (
        [f"{line.part}: {line.name.strip()}" for line in lines if of(line)]
        for of in (lambda line: line.target is not None and line.busy, lambda line: line.met is False)
    )
    if unjudged:
        console.say(f"not judged, the machine was busy: {'; '.join(unjudged)}")
    console.say(f"targets missed: {'; '.join(missed) or 'none'}")
    if missed:
        return MISSED
    return UNJUDGED if unjudged else 0
