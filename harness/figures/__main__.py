"""`python -m harness.figures [NAME ...]`: start the runs the figures need and lack, reuse those there are,
draw.

Every figure is a file of this folder; see `harness/figures/__init__.py`.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console

from harness import figures
from harness.check import InputError, choice
from harness.run import overrides, runner
from harness.run.runner import Places

TOOLS = ("__main__", "panels")


def available() -> dict[str, ModuleType]:
    """Every figure by name, in alphabetical order."""
    names = [m.name for m in pkgutil.iter_modules(figures.__path__) if m.name not in TOOLS]
    return {name: importlib.import_module(f"harness.figures.{name}") for name in names}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 where a run failed, its figure left out; 2 with one sentence where what was given cannot
    be used.
    """
    parser = argparse.ArgumentParser(prog="halobench figures", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="name every figure and what it shows")
    parser.add_argument(
        "--graph",
        metavar="OVERRIDES",
        help='another graph than the figures\' own, as "dblp dataset.split=low_label"',
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/figures"),
        help="where the PNG files go, each with its data as CSV beside it (default results/figures)",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results"), help="where runs are found and go (default results)"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("results/cache"), help="graphs and shards (default results/cache)"
    )
    parser.add_argument("--data-dir", type=Path, default=Path("data"), help="raw data sets (default data)")
    asked = parser.parse_args(arguments)
    console = Console(stderr=True)
    known = available()
    try:
        for name in asked.names:
            choice("figure", name, tuple(known))
        if asked.graph:
            overrides.check(f"dataset={asked.graph}".split(), runner.CONF)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.list:
        for name, module in known.items():
            print(f"{name:<20} {module.TITLE}")
        return 0
    places, failed = Places(asked.results, asked.cache, asked.data_dir), False
    for name in asked.names or known:
        for choices in [[asked.graph]] if asked.graph else known[name].GRAPHS:
            graph = next((graph for graph in choices if runner.is_here(graph, places.data_dir)), None)
            if graph is None:
                console.print(
                    f"{name}: {choices[0].split()[0]} is not in {places.data_dir}, left out", highlight=False
                )
                continue
            try:
                make(name, known[name], graph, places, asked.out, console)
            except InputError as error:
                console.print(f"error: {name}: {error}", style="red", highlight=False, soft_wrap=True)
                failed = True
    return int(failed)


def make(name: str, module: ModuleType, graph: str, places: Places, out: Path, console: Console) -> None:
    """One figure on one graph: run what is lacking, then draw from the traces alone."""
    started, sweeps = time.monotonic(), module.sweeps(graph)
    folders = {sweep: runner.folders(sweep, places) for sweep in sweeps}
    lacking = {sweep: len(found) - len(runner.finished(found)) for sweep, found in folders.items()}
    total = sum(map(len, folders.values()))
    console.print(
        f"{name} on {graph.split()[0]}: {total} runs, {sum(lacking.values())} to start", highlight=False
    )
    for sweep, missing in lacking.items():
        if missing:
            runner.start(sweep, places)
    # pandas and matplotlib: nothing before has to wait for them.
    import matplotlib

    from harness.report import drawn, groups, plot

    compared, _ = groups.load(dict.fromkeys(folder for found in folders.values() for folder in found))
    out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(plot.STYLE):
        made = module.draw(compared)
        stem = name_on(name, graph)
        for ending, figure in (made if isinstance(made, dict) else {"": made}).items():
            path = plot.save(figure, out / f"{'-'.join(filter(None, [stem, ending]))}.png")
            drawn.write(figure, path)
            print(path)
        if hasattr(module, "table"):
            print(module.table(compared))
    console.print(f"  {time.monotonic() - started:.0f} s", highlight=False)


def name_on(name: str, graph: str) -> str:
    """What the files of a figure are called on a graph, or on several ("a,b"), which go without their
    names.
    """
    option, *more = graph.split()
    if "," in option:
        return name
    called = dict(word.split("=", 1) for word in more).get("dataset.name", option)
    return "-".join([name, re.sub(r"[^\w]+", "-", called)])


if __name__ == "__main__":
    sys.exit(main())
