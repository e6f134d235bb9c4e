"""Draw figures of the papers from runs: start those that are lacking, reuse those there are.

Every figure is a file of this folder, or of one named by `--from`; see `harness/figures/__init__.py`. The
name of an experiment (`conf/experiment/`) makes its runs, and prints what they decide.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from harness import figures
from harness.base.terminal import Terminal
from harness.check import InputError, choice
from harness.claims import experiment
from harness.claims.__main__ import FOLDER as CONF_EXPERIMENT
from harness.graph.config import name_of
from harness.run import overrides, runner
from harness.run.runner import Places

TOOLS = ("__main__", "panels")
OWN = "[!_]*.py"  # the figures of a folder of one's own


def available(folder: Path | None = None) -> dict[str, ModuleType]:
    """Every figure of this package by name, in alphabetical order; or those of a folder of one's own.

    Raises InputError where the folder is none, or a file in it is no figure.
    """
    if folder is None:
        names = [m.name for m in pkgutil.iter_modules(figures.__path__) if m.name not in TOOLS]
        return {name: importlib.import_module(f"harness.figures.{name}") for name in names}
    if not folder.is_dir():
        raise InputError(f'from="{folder}" is not a folder: give one with a file per figure')
    found = {path.stem: _loaded(path) for path in sorted(folder.glob(OWN))}
    if not found:
        raise InputError(f'from="{folder}" holds no figure: put NAME.py there (harness/figures/__init__.py)')
    return found


def has_figures(folder: Path) -> bool:
    return any(folder.glob(OWN))


def planned_in(folder: Path) -> dict[str, experiment.Experiment]:
    """The experiments of a folder; none where it has no yaml."""
    return experiment.load(folder) if any(folder.glob("*.yaml")) else {}


def _loaded(path: Path) -> ModuleType:
    """A figure's file as a module. InputError where it lacks what a figure has."""
    spec = importlib.util.spec_from_file_location(f"figure_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # of every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # its author's: whatever it is, it is told as one sentence
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    for name in ("TITLE", "GRAPHS", "sweeps", "draw"):
        if not hasattr(module, name):
            raise InputError(f"{path} lacks {name}: a figure has TITLE, GRAPHS, sweeps(graph), draw(groups)")
    return module


def main(arguments: Sequence[str] | None = None, program: str = "python -m harness.figures") -> int:
    """Exit code 0; 1 where a run failed, its figure left out; 2 with one sentence where what was given cannot
    be used.
    """
    parser = argparse.ArgumentParser(prog=program, description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures to draw (default: all; see --list)")
    parser.add_argument("--list", action="store_true", help="name every figure and what it shows")
    parser.add_argument(
        "--from",
        dest="folder",
        type=Path,
        metavar="FOLDER",
        help="a folder of one's own instead of these: figures as NAME.py, or experiments as NAME.yaml",
    )
    parser.add_argument(
        "--graph",
        metavar="OVERRIDES",
        help='another graph than the figures\' own, as "dblp dataset.split=low_label"',
    )
    parser.add_argument(
        "--size", choices=experiment.SIZES, help="of experiments (default: the smallest that each has)"
    )
    runner.add_places(
        parser, "results/figures", "where the PNG files go, each with its data as CSV beside it"
    )
    asked = parser.parse_args(arguments)
    console = Terminal(stderr=True)
    try:
        planned = planned_in(asked.folder or CONF_EXPERIMENT)
        alone = asked.folder and planned and not has_figures(asked.folder)  # experiments without figures
        known = {} if alone else available(asked.folder)
        for name in asked.names:
            choice("figure", name, (*known, *planned))
        # All of a folder of one's own; of the tree the figures alone.
        names = asked.names or [*known, *(planned if asked.folder else ())]
        sizes = {name: size_of(planned[name], asked.size) for name in names if name in planned}
        if asked.graph:
            words = [*runner.searchpath(asked.config_dir), *f"dataset={asked.graph}".split()]
            overrides.check(words, runner.CONF)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.list:
        for name, module in known.items():
            print(f"{name:<20} {module.TITLE}")
        for name, plan in planned.items():
            print(f"{name:<20} experiment: {plan.title}")
        return 0
    places, failed = Places.of(asked), False
    for name in names:
        if name in planned:
            try:
                decide(planned[name], sizes[name], places, console)
            except InputError as error:
                console.print(f"error: {name}: {error}", style="red", highlight=False, soft_wrap=True)
                failed = True
            continue
        for given in [asked.graph] if asked.graph else known[name].GRAPHS:
            choices = [given] if isinstance(given, str) else given
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


def decide(plan: experiment.Experiment, size: str, places: Places, console: Terminal) -> None:
    """Run what an experiment lacks at a size, then print the verdicts on its claims."""
    sweeps = [sweep for row in plan.rows for sweep in plan.sweeps(row, size)]
    folders = {sweep: runner.folders(sweep, places) for sweep in sweeps}
    lacking = {sweep: len(found) - len(runner.finished(found)) for sweep, found in folders.items()}
    console.print(
        f"{plan.name}, {size}: {sum(map(len, folders.values()))} runs, {sum(lacking.values())} to start;"
        f" all of them take about {plan.sizes[size].minutes:g} minutes on two cores",
        highlight=False,
    )
    for sweep, missing in lacking.items():
        if missing:
            runner.start(sweep, places)
    from harness.claims import evaluate, table

    only = replace(plan, sizes={size: plan.sizes[size]})
    made = evaluate.results({plan.name: only}, folders.__getitem__)
    print(table.plain([result for result in made if result.experiment == plan.name]))


def size_of(plan: experiment.Experiment, asked: str | None) -> str:
    """The size asked for, or the smallest there is. InputError where the experiment has no runs of it."""
    if not plan.sizes:
        raise InputError(f"{plan.name} has no runs: its parts wait for something")
    size = asked or next(size for size in experiment.SIZES if size in plan.sizes)
    if size not in plan.sizes:
        raise InputError(f"{plan.name} has no runs of size {size}: give {' or '.join(plan.sizes)}")
    return size


def make(name: str, module: ModuleType, graph: str, places: Places, out: Path, console: Terminal) -> None:
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

    from harness.report import drawn, groups, style

    compared, _ = groups.load(dict.fromkeys(folder for found in folders.values() for folder in found))
    out.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(style.STYLE):
        made = module.draw(compared)
        stem = name_on(name, graph)
        for ending, figure in (made if isinstance(made, dict) else {"": made}).items():
            path = style.save(figure, out / f"{'-'.join(filter(None, [stem, ending]))}.png")
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
    given = dict(word.split("=", 1) for word in more)
    block = {"name": given.get("dataset.name", option), "source": option, "path": given.get("dataset.path")}
    called = name_of(block)
    return "-".join([name, re.sub(r"[^\w]+", "-", called)])


if __name__ == "__main__":
    sys.exit(main())
