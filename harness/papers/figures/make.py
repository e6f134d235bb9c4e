"""A figure, which is an experiment at a size and what draws it, and how it is made: the runs that are lacking
are started, pictures and verdicts follow from the traces alone."""

import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.base.errors import InputError, choice
from harness.base.terminal import Terminal, counted
from harness.base.words import key_values
from harness.data.config import name_of
from harness.papers import figures
from harness.papers.claims import experiment
from harness.papers.claims.experiment import Experiment
from harness.run import runner
from harness.run.runner import Places

TOOLS = ("__main__", "make", "panels")


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


def make(
    figure: Figure, graphs: list[str], places: Places, out: Path, console: Terminal, keep: Path | None = None
) -> None:
    """Run what a figure lacks on these graphs; draw it on each; print what its experiment decides.

    out    the folder that gets a PNG, a PDF and a CSV per picture
    keep   the folder that keeps what the runs say (`harness.papers.claims.reference`)
    """
    rows = {graph: figure.rows(graph) for graph in graphs}
    sweeps = [sweep for by_row in rows.values() for sweep in by_row.values()]
    runs = {sweep: runner.composed(runner.expand(sweep), places) for sweep in sweeps}
    folders = {sweep: [run.directory for run in made] for sweep, made in runs.items()}
    total = len({folder for found in folders.values() for folder in found})
    # A run that several rows share is started by the first of them.
    first = {run.directory: sweep for sweep, made in reversed(runs.items()) for run in made}
    lacking = {
        sweep: runner.lacking([run for run in made if first[run.directory] == sweep])
        for sweep, made in runs.items()
    }
    minutes = f"{figure.plan.sizes[figure.size].minutes:g}"
    console.say(
        f"{figure.name}: {total} runs on {', '.join(graph.split()[0] for graph in graphs)},"
        f" {sum(map(len, lacking.values()))} to start; size {figure.size} takes about"
        f" {counted(minutes, 'minute')} on two cores"
    )
    started = time.monotonic()
    for sweep, missing in lacking.items():
        if missing:
            runner.start(sweep, places, missing)
    pictures = [
        picture
        for graph in graphs
        for picture in _draw(figure, graph, {row: folders[s] for row, s in rows[graph].items()}, out)
    ]
    _decide(figure, graphs, folders, out, pictures, keep)
    console.say(f"  {time.monotonic() - started:.0f} s")


def _draw(figure: Figure, graph: str, folders: dict[str, list[Path]], out: Path) -> list[Path]:
    """The pictures of a graph, as PNG."""
    # pandas and matplotlib: nothing before has to wait for them.
    import matplotlib

    from harness.results.report import groups, style

    pictures: list[Path] = []
    if not figure.drawings:
        return pictures
    compared, _ = groups.load(dict.fromkeys(folder for found in folders.values() for folder in found))
    whose = {folder: row for row, found in folders.items() for folder in found}
    by_row = [whose[group.first.path] for group in compared]
    out.mkdir(parents=True, exist_ok=True)
    for module, options in figure.drawings:
        drawing = module.__name__.rpartition(".")[2].removeprefix("figure_")
        # A row that is one group goes by its name in the experiment.
        shown = options.get("rows", {row: row for row in by_row})
        named = [
            replace(group, label=shown[row]) if by_row.count(row) == 1 else group
            for group, row in zip(compared, by_row)
            if row in shown
        ]
        options = {key: value for key, value in options.items() if key != "rows"}
        with matplotlib.rc_context(style.STYLE):
            made = module.draw(named, **options)
            stem = name_on(figure.name, graph)
            more = drawing if len(figure.drawings) > 1 and drawing != figure.name else ""
            for ending, picture in (made if isinstance(made, dict) else {"": made}).items():
                pictures.append(_save(picture, out / "-".join(filter(None, [stem, more, ending]))))
    return pictures


def _decide(
    figure: Figure,
    graphs: list[str],
    folders: dict[str, list[Path]],
    out: Path,
    pictures: list[Path],
    keep: Path | None,
) -> None:
    """Print the verdicts on an experiment's claims on these graphs, draw ours beside what is published, and
    keep all of it where that is asked, with the pictures that there are."""
    import matplotlib

    from harness.papers.claims import evaluate, picture, reference, table
    from harness.results.report import style

    plan, size = figure.plan, figure.plan.sizes[figure.size]
    plan = replace(plan, sizes={figure.size: replace(size, graphs=graphs)})
    claims = tuple(claim for claim in plan.claims if plan.on(figure.size, claim.graph))
    results = evaluate.results({plan.name: replace(plan, claims=claims)}, folders.__getitem__)
    own = [result for result in results if result.experiment == plan.name]
    if claims:
        print(table.plain(own))
    with matplotlib.rc_context(style.STYLE):
        if (drawing := picture.draw(plan.title, own, graphs)) is not None:
            out.mkdir(parents=True, exist_ok=True)
            pictures.append(_save(drawing, out / f"{plan.name}-claims", picture.described(own)))
    if keep is not None:
        reference.keep(keep, plan, own, folders.__getitem__, pictures)


def _save(picture, stem: Path, described: str = "") -> Path:
    """Save a picture as PDF and PNG, with what is drawn as CSV. Prints and returns the path of the PNG."""
    from harness.results.report import plot_data, style

    for ending in (".pdf", ".png"):
        path = style.save(picture, stem.with_name(stem.name + ending), described=described)
    plot_data.write(picture, path)
    print(path)
    return path


def name_on(name: str, graph: str) -> str:
    """The stem of a figure's files on a graph; of a sweep over several graphs ("a,b") the figure's name
    alone."""
    option, *more = graph.split()
    if "," in option:
        return name
    given = key_values(more)
    block = {"name": given.get("dataset.name", option), "source": option, "path": given.get("dataset.path")}
    called = name_of(block)
    return "-".join([name, re.sub(r"[^\w]+", "-", called)])


def here(figure: Figure, places: Places, console: Terminal) -> list[str]:
    """The graphs of a figure whose raw files are here; says what is not."""
    found = []
    for graph in figure.graphs:
        if runner.is_here(graph, places.data_dir):
            found.append(graph)
        else:
            console.say(f"{figure.name}: {graph.split()[0]} is not in {places.data_dir}, left out")
    return found
