"""What a figure is: an experiment at a size, and what draws it."""

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
    """An experiment that is run at a size.

    drawings  what draws its runs, and the options of each
    """

    plan: Experiment
    size: str
    drawings: list[tuple[ModuleType, Mapping[str, Any]]]

    @property
    def name(self) -> str:
        return self.plan.name

    @property
    def graphs(self) -> list[str]:
        """The graphs that it is drawn on, as overrides."""
        return self.plan.sizes[self.size].graphs

    def rows(self, graph: str) -> dict[str, str]:
        """The command line of the runs of each row on a graph, as after `python -m harness -m`."""
        return {row: self.plan.sweep(row, self.size, graph) for row in self.plan.rows_on(self.size, graph)}


def available(
    folder: Path, size: str | None, chosen: bool = False, rows: Sequence[str] = ()
) -> dict[str, Figure]:
    """Every figure of a folder by name, in alphabetical order: its experiments (NAME.yaml) that have runs of
    this size.

    size     None: of each experiment the smallest that it has
    rows     more rows of every experiment ("NAME=OVERRIDES")
    chosen   whether the folder is one's own, whose drawings (NAME.py) lie beside its experiments

    InputError where there is no such folder, or a file in it cannot be used.
    """
    if not folder.is_dir():
        raise InputError(f'from="{folder}" is not a folder: give one with experiments, a NAME.yaml each')
    own = {path.stem: _imported(path) for path in sorted(folder.glob("[!_]*.py"))} if chosen else {}
    found = {}
    for name, plan in experiment.load(folder).items():
        plan = replace(plan, rows=experiment.with_rows(plan.rows, rows))
        smallest = next(filter(plan.sizes.__contains__, experiment.SIZES), None)
        if smallest and size in (None, *plan.sizes):
            found[name] = Figure(plan, size or smallest, _drawings(plan, own))
    return found


def _drawings(plan: Experiment, own: Mapping[str, ModuleType]) -> list[tuple[ModuleType, Mapping[str, Any]]]:
    """What draws an experiment, as its file says."""
    known = [m.name for m in pkgutil.iter_modules(figures.__path__) if m.name not in TOOLS]
    drawings = []
    for name, options in plan.draw.items():
        where = f"{plan.name}.draw.{name}"
        choice(f"{plan.name}.draw", name, (*known, *own))
        shown = options.get("rows", {})
        if not isinstance(shown, Mapping):
            raise InputError(f"{where}.rows={shown}: give rows with their names in the picture, as ROW: NAME")
        for row in shown:
            choice(f"{where}.rows", row, tuple(plan.rows))
        module = own[name] if name in own else importlib.import_module(f"harness.papers.figures.{name}")
        _check_options(where, module, {key for key in options if key != "rows"})
        drawings.append((module, options))
    return drawings


def _check_options(where: str, module: ModuleType, options: set[str]) -> None:
    """InputError where a module has no function `draw`, or one that takes other options: before the runs are
    made, which may take hours."""
    if not callable(getattr(module, "draw", None)):
        raise InputError(f"{where}: {module.__file__} has no function draw(groups): write one")
    try:
        inspect.signature(module.draw).bind([], **dict.fromkeys(options))
    except (TypeError, ValueError) as error:  # the latter of what has no signature
        raise InputError(f"{where}: {error}; give the options of draw in {module.__file__}") from None


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
