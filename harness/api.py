"""HaloBench from Python: train runs, read their traces, compare and plot them.

    import harness.api as halobench

    runs = halobench.sweep("system=vanilla,sancus", "dataset=twin/reddit", "workers=2")
    halobench.compare(runs)
    halobench.plot(runs, "bytes")

A value that cannot be used raises InputError: one sentence that names the value and says what to give
instead.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.base.errors import InputError
from harness.results.reader import Trace

# Modules that bring in torch, statistics or matplotlib are imported where they are used: reading a trace
# needs none of the three.
if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from harness.results.report.groups import Group

__all__ = ("InputError", "Runs", "Trace", "compare", "load", "plot", "run", "sweep")

Runs = Trace | Path | str | Iterable[Trace | Path | str]
PATIENCE = 5  # seconds that a run which Ctrl-C has reached is given to end by itself


def run(
    *words: str, config_dir: Path | str | None = None, say: Callable[[str], object] | None = None
) -> Trace:
    """Train one run and return its trace. A finished run is not trained again, and a stopped one goes on from
    its last checkpoint.

    words       KEY=VALUE, as behind `halobench run`: "system=sancus", "workers=4", "model.hidden=128"
    config_dir  a folder with the yaml files of systems, datasets or models of one's own
    say         called with each line that the command prints, for instance `print`

    The run is trained in a process of its own, so the calling process may hold threads and a GPU. Relative
    paths (results=results) are relative to the working directory. Raises InputError where the words make no
    run, and where the run fails, with the run's own error message.
    """
    (trace,) = _trained(words, False, config_dir, say)
    return trace


def sweep(
    *words: str, config_dir: Path | str | None = None, say: Callable[[str], object] | None = None
) -> list[Trace]:
    """Train a run for each combination of the values that the words list ("system=vanilla,sancus",
    "seed=1,2,3"), one after another, as `halobench run -m` does. Returns the traces in the order of the runs.

    Parameters and errors are those of `run`. After an error the same call trains only what is missing.
    """
    return _trained(words, True, config_dir, say)


def load(folder: Path | str) -> Trace:
    """The trace of one run folder: the DataFrames `epochs`, `comm`, `spans` and `metrics`, whose columns
    docs/trace.md describes, and the dictionaries `summary` (None until the run has finished) and `config`.

    Of a run that has not finished the tables hold every epoch that all its workers have finished so far.
    Raises InputError where the folder is not a run folder.
    """
    _check_path(folder)
    return Trace(folder)


def compare(runs: Runs) -> pd.DataFrame:
    """The tables of `halobench report` as numbers: a row for each group of runs that differ in their seed
    alone.

    runs    traces, run folders, folders above some, or glob patterns; one of them or several

    Columns are what names a row (`dataset`, `system`, `workers`, `partition`, `epochs`, `seeds`, ...), then
    means over seeds, each with half its 95 % interval behind it (`mb_epoch`, `mb_epoch_half95`): scores in
    percent, seconds per epoch, MB (10^6 bytes) summed over workers. `mb_exact_ratio` is MB per epoch over
    that of exact training under the same setting; `best_of` names the columns in which a row is the best of
    its table; a column that no table shows is left out.

    Warns of runs that have not finished an epoch. Raises InputError where no run has finished one.
    """
    from harness.results.report import formats

    return formats.numbers(_grouped(runs)).dropna(axis="columns", how="all")


def plot(runs: Runs, over: str = "time") -> Figure:
    """One of the figures of `halobench report plot`, of runs on one graph.

    runs    as `compare` takes them
    over    "time", "bytes" or "epochs": the test score during training; "breakdown": where the time of an
            epoch goes; "pareto": the score against bytes and time of an epoch; "front": against the bytes
            of a whole run; or a key that differs between the runs, as "system.bound": score, bytes and time
            against it

    `figure.savefig("name.pdf")` writes it. Raises InputError where the runs are of several graphs, clocks or
    machines, or `over` is none of these.
    """
    import matplotlib

    from harness.results.report import curves, front, style, sweep_plots
    from harness.results.report.plot import breakdown
    from harness.results.report.table import only_section

    axes = {axis.name: axis for axis in curves.AXES}
    known = (*axes, "breakdown", "pareto", "front")
    section = only_section(_grouped(runs, None if over in known else over))
    names, told = style.names_of(section.groups), style.unsaid(section.groups)
    with matplotlib.rc_context(style.STYLE):
        if over in axes:
            strokes = sweep_plots.strokes_in(section, style.strokes_of(section.groups))
            return curves.accuracy_over(axes[over], section, names, strokes, told)
        if over == "breakdown":
            return breakdown(section, names, told)
        if over == "pareto":
            return sweep_plots.pareto(section)
        if over == "front":
            return front.draw(section.groups)
        sweep_plots.check_key(over, section.groups, "over", known)
        return sweep_plots.over_knob(over, section)


def _trained(
    words: Sequence[str], several: bool, config_dir: Path | str | None, say: Callable[[str], object] | None
) -> list[Trace]:
    """Compose and check the runs in this process, train the unfinished ones in another, and read all traces.

    several   whether the words may list several values, so that they make a sweep
    """
    from hydra.core.override_parser.types import ValueType

    from harness.run import overrides, prepare, refused, runner

    for word in words:
        if not isinstance(word, str):
            raise InputError(f'{word!r} is no text: give words KEY=VALUE, as "workers=4"')
        if word.startswith("-"):
            raise InputError(f'"{word}" is an option of the command line: give words KEY=VALUE')
    given = [*runner.searchpath(config_dir), *words]
    for override in map(refused.parsed, given):
        pattern = override.value_type == ValueType.GLOB_CHOICE_SWEEP
        if pattern or override.is_interval_sweep() or override.key_or_group == "hydra/sweeper":
            raise InputError(
                f"{override.input_line}: values that a pattern or a sweeper chooses cannot be given here;"
                " list the values of each key"
            )
    if (lists := overrides.swept(given)) and not several:
        raise InputError(f"{', '.join(lists)} has several values: sweep() trains a run for each")
    command = ["-m", *given] if several else given
    overrides.check(command)
    made = runner.composed(runner.expand(given))
    for each in made:
        if not prepare.anew(each) and (other := prepare.other_code(each)):
            warnings.warn(f"{each.directory} was {other}; stale=rerun computes it again", stacklevel=3)
    if any(prepare.anew(each) or not prepare.is_finished(each) for each in made):
        _command(["run", *command], say)
    return [Trace(each.directory.absolute()) for each in made]


def _command(words: Sequence[str], say: Callable[[str], object] | None) -> None:
    """Run `python -m harness` with these words. Where it fails, InputError with the error that it printed."""
    # A process from scratch: this one may hold threads or a GPU, which no fork survives.
    code, said = _process([sys.executable, "-m", "harness", *words], say)
    if code:
        errors = [number for number, line in enumerate(said) if line.startswith("error: ")]
        told = "\n".join(said[errors[-1] :] if errors else said[-20:]).removeprefix("error: ")
        raise InputError(told or f"{' '.join(words)}: the run ended with exit code {code}")


def _process(command: Sequence[str], say: Callable[[str], object] | None) -> tuple[int, list[str]]:
    """Run a command; returns its exit code and the lines that it printed. It never outlives this call."""
    # The command's process can import whatever this one can.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    said = []
    try:
        with process.stdout:
            for line in process.stdout:
                said.append(line.rstrip("\n"))
                if say is not None:
                    say(said[-1])
        return process.wait(), said
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            # A terminal and a notebook send it to the whole process group, so the run is ending already.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        process.terminate()
        raise
    finally:
        process.wait()


def _check_path(path: object) -> None:
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{path!r} is no path: give a run folder, or a folder above some")


def _grouped(runs: Runs, x: str | None = None) -> list[Group]:
    from harness.results.report import groups

    given = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    if not given:
        raise InputError("runs is empty: give traces, run folders, or a folder above some")
    paths = [each.run_dir if isinstance(each, Trace) else each for each in given]
    for path in paths:
        _check_path(path)
    compared, empty = groups.load(paths, x)
    for path in empty:
        warnings.warn(f"left out {path}: it has not finished an epoch", stacklevel=3)
    return compared
