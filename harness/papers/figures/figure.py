"""What a figure is: the runs it needs on each graph, and what draws them; from an experiment's file, or from
a file of one's own that says both."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.base.errors import InputError, choice
from harness.papers import figures
from harness.papers.claims import experiment
from harness.papers.claims.experiment import Experiment

TOOLS = ("__main__", "figure", "make", "panels")


@dataclass(frozen=True)
class Figure:
    """A figure by its name.

    title     what is seen, in a line
    graphs    graphs to draw it on, as overrides; for each, what to take instead where its raw files are not
              here
    rows      the command line of the runs of each row on a graph, as after `python -m harness -m`
    drawings  what draws them, and the options of each
    plan      the experiment that it belongs to, of this `size`; None of a file that says its own runs
    """

    name: str
    title: str
    graphs: list[list[str]]
    rows: Callable[[str], dict[str, str]]
    drawings: list[tuple[ModuleType, Mapping[str, Any]]] = field(default_factory=list)
    plan: Experiment | None = None
    size: str = ""


def available(
    folder: Path, size: str | None, chosen: bool = False, rows: Sequence[str] = ()
) -> dict[str, Figure]:
    """Every figure of a folder by name, in alphabetical order: its experiments (NAME.yaml) that have runs of
    this size, and the files that say their own runs (NAME.py).

    size     null: of each experiment the smallest that it has
    rows     more rows of every experiment ("NAME=OVERRIDES")
    chosen   whether the folder is one's own, whose drawings lie beside its experiments
    Raises InputError where the folder is none, or a file in it is no figure.
    """
    if not folder.is_dir():
        raise InputError(f'from="{folder}" is not a folder: give one with a file per figure')
    own = {path.stem: _imported(path) for path in sorted(folder.glob("[!_]*.py"))} if chosen else {}
    plans = experiment.load(folder) if any(folder.glob("*.yaml")) else {}
    plans = {name: replace(plan, rows=experiment.with_rows(plan.rows, rows)) for name, plan in plans.items()}
    found = {
        name: of_experiment(plan, size or smallest, own)
        for name, plan in plans.items()
        if (smallest := next(filter(plan.sizes.__contains__, experiment.SIZES), None))
        and size in (None, *plan.sizes)
    }
    alone = own.keys() - {drawing for plan in plans.values() for drawing in plan.draw}
    found |= {name: _of_module(folder / f"{name}.py", own[name]) for name in alone}
    if not found and not plans:
        raise InputError(
            f'from="{folder}" holds no figure: put NAME.py there (harness/papers/figures/__init__.py)'
        )
    return dict(sorted(found.items()))


def of_experiment(plan: Experiment, size: str, own: Mapping[str, ModuleType]) -> Figure:
    """An experiment's figure: its rows on each graph of a size, drawn as its file says."""
    known = [m.name for m in pkgutil.iter_modules(figures.__path__) if m.name not in TOOLS]
    drawings = []
    for name, options in plan.draw.items():
        choice(f"{plan.name}.draw", name, (*known, *own))
        for row in options.get("rows", ()):
            choice(f"{plan.name}.draw.{name}.rows", row, tuple(plan.rows))
        module = own[name] if name in own else importlib.import_module(f"harness.papers.figures.{name}")
        drawings.append((module, options))
    return Figure(
        plan.name,
        plan.title,
        [[graph] for graph in plan.sizes[size].graphs],
        lambda graph: {row: plan.sweep(row, size, graph) for row in plan.rows_on(size, graph)},
        drawings,
        plan,
        size,
    )


def _of_module(path: Path, module: ModuleType) -> Figure:
    """A file that says its own runs. InputError where it lacks what it needs."""
    for name in ("TITLE", "GRAPHS", "sweeps", "draw"):
        if not hasattr(module, name):
            raise InputError(f"{path} lacks {name}: a figure has TITLE, GRAPHS, sweeps(graph), draw(groups)")
    return Figure(
        path.stem,
        module.TITLE,
        [[graph] if isinstance(graph, str) else graph for graph in module.GRAPHS],
        lambda graph: {str(i): sweep for i, sweep in enumerate(module.sweeps(graph))},
        [(module, {})],
    )


def _imported(path: Path) -> ModuleType:
    """A file as a module; InputError where it cannot be imported."""
    spec = importlib.util.spec_from_file_location(f"figure_{path.stem}", path)
    assert spec is not None and spec.loader is not None  # of every file that ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # its author's: whatever it is, it is told as one sentence
        raise InputError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
