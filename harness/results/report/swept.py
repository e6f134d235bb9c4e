"""The table after a sweep: a row per combination of swept keys, with the keys and the results as columns."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from harness.base import tables
from harness.results.report import groups
from harness.results.report.compare import exact_beside, read_once
from harness.results.report.table import compared_by, diverged, estimate_of, less_exact

SEED = "seed"  # runs that differ in the seed alone are one row, with their means


def swept_table(keys: Sequence[str], runs: Sequence[tuple[dict[str, str], Path]]) -> tuple[Table, list[str]]:
    """The table, its rows in the order in which the runs were made; and a sentence for each row of which runs
    diverged.

    keys   the swept keys, as given on the command line
    runs   (values, folder) of each run: its values of those keys that it has, and its folder; at least one
           epoch of it has finished
    """
    compared, _ = groups.load(dict.fromkeys(path for _, path in runs), read=read_once)
    of_run = {run.path: group for group in compared for run in group.runs}
    shown = {id(of_run[path]): (of_run[path], values) for values, path in runs}
    clock = "cpu" if any(group.clock == "cpu" for group in compared) else "wall"
    score, size, time = compared_by(compared, clock)
    beside = {key: _less_exact(group, compared) for key, (group, _) in shown.items()}
    exact = ["minus exact"] if any(beside.values()) else []
    named = [key for key in keys if key != SEED]
    asked = [key.removeprefix("system.") for key in [*named, *(["seeds"] if SEED in keys else [])]]
    table = tables.shown([*asked, score.heading, *exact, time.heading, size.heading], words=asked)
    said = []
    for key, (group, values) in shown.items():
        if group.diverged:
            row = " ".join(f"{key.removeprefix('system.')}={values[key]}" for key in named if key in values)
            ended = "; its time and MB are of the epochs until then"
            said.append(diverged(group, row or group.label).removesuffix(".") + ended + ".")
        cells = [values.get(name, "") for name in named]
        cells += [str(len(group.seeds))] if SEED in keys else []
        first, *others = (format(estimate_of(group, each), each.digits) for each in (score, time, size))
        table.add_row(*cells, first, *([beside[key]] if exact else []), *others)
    return table, said


def _less_exact(group: groups.Group, compared: list[groups.Group]) -> str:
    """As `less_exact`; where the sweep has no exact training, against that in the folder of its runs."""
    said = less_exact(group, compared)
    if not said and (sides := exact_beside(group.first)):
        said = less_exact(group, [group, sides[1]])
    return said
