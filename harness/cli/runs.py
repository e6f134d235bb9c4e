"""`halobench runs`: the run folders there are, one of them, several beside each other, and tidying up."""

import argparse
import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from omegaconf import OmegaConf
from rich.table import Table

from harness.base import disk, tables
from harness.base.errors import InputError, did_you_mean
from harness.base.places import own_config
from harness.base.subcommand import RUN_HELP, Parser, command
from harness.base.target import trust_folder
from harness.base.terminal import unfolded
from harness.base.words import key_of, read_value
from harness.results.identity import PLACE_KEYS
from harness.results.reader import find_runs
from harness.results.report import single
from harness.results.report.columns import LEADING, leading, named, times
from harness.results.report.compare import differing, labels
from harness.results.report.groups import Group, Run, knob
from harness.results.rounds import epochs_of_run
from harness.results.schema import LOCK
from harness.results.summary import graph_name
from harness.run.process import RunFailed, until_stopped

LINES, WIDTH = 25, 110  # the most lines that `show` prints of a run, and the most characters of one
KINDS = ("graphs", "shards", "costs", "tilings")  # of entries in the cache


@command("halobench runs")
def main(words: list[str], program: str) -> int:
    """Returns 0, the exit code of a run that was extended and failed, or 128 + signal where it was
    stopped."""
    given = _parser(program).parse_args(words)
    try:
        return until_stopped(lambda: given.act(given) or 0)
    except RunFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code


def _parser(program: str) -> argparse.ArgumentParser:
    parser = Parser(prog=program, description="Look at run folders, and tidy up.")
    commands = parser.add_subparsers(required=True, metavar="list|show|compare|remove|extend|clean-cache")

    def add(name: str, act, said: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=said, description=said)
        made.set_defaults(act=act)
        return made

    some: dict[str, Any] = {"nargs": "+", "metavar": "RUN", "help": RUN_HELP}
    yes: dict[str, Any] = {
        "action": "store_true",
        "help": "remove; without it, only list what would be removed",
    }
    add("list", _list, "a line per run").add_argument(
        "runs", **{**some, "nargs": "*", "default": ["results"]}
    )
    showing = add("show", _show, f"state, results and keys of a run, in at most {LINES} lines")
    showing.add_argument("runs", **some)
    showing.add_argument("--all", action="store_true", help="the whole table, and the config as YAML")
    add("compare", _compare, "runs beside each other: keys that differ, and results").add_argument(
        "runs", **some
    )
    removing = add("remove", _remove, "remove run folders")
    removing.add_argument("runs", **some)
    removing.add_argument("--yes", **yes)
    going = add("extend", _extend, "go on with a run to more epochs, in a folder of its own")
    going.add_argument("run", metavar="RUN", type=Path, help="a run started with keep_checkpoint=true")
    going.add_argument(
        "keys",
        nargs="+",
        metavar="KEY=VALUE",
        help="epochs=N, in all; and where to keep it: results, cache, ...",
    )
    cleaning = add(
        "clean-cache",
        _clean,
        "remove cached graphs, shards and measurements, but the shards that an unfinished run trains on",
    )
    cleaning.add_argument("--cache", type=Path, default=Path("results/cache"), help="default results/cache")
    cleaning.add_argument(
        "--results", type=Path, default=Path("results"), help="where unfinished runs are looked for (results)"
    )
    cleaning.add_argument("--yes", **yes)
    return parser


def _list(given: argparse.Namespace) -> None:
    table = _table("run", "system", "dataset", "workers", "seed", "epochs", "state", "test %", "MB per epoch")
    runs: dict[Path, Run] = {}
    lines: dict[Path, list[str]] = {}
    for path in find_runs(given.runs):
        try:
            runs[path] = Run(path)
            lines[path] = _line(runs[path])
        except InputError as error:
            runs.pop(path, None)
            lines[path] = [*[""] * 4, f"damaged: {error}", "", ""]
    names = dict(zip(runs, labels(list(runs.values()), ("workers", "epochs"))))
    for path, line in lines.items():
        table.add_row(str(path), names.get(path, ""), *line)
    _print(table)


def _line(run: Run) -> list[str]:
    """The cells of a run in `list`, after those of its folder and its name."""
    keys, score, size = run.keys, "", ""
    if not run.trace.epochs.empty:
        summary = run.summary
        score = f"{value:.2f}" if (value := LEADING[summary["score"]][0].value(summary)) is not None else "-"
        size = f"{sum(summary['bytes_epoch'].values()) / 1e6:.3f}"
    epochs = Group([run]).epochs if run.finished and size else keys.get("epochs", "")
    told = [keys.get("workers", 1), keys.get("seed", ""), epochs]
    return [graph_name(run.trace), *map(str, told), state(run), score, size]


def state(run: Run) -> str:
    """The state of a run in words: finished, or how far it has come."""
    if not run.finished:
        with contextlib.suppress(OSError), _held(run.path / LOCK) as ours:  # OSError: not known
            if not ours:
                return "going on"
    if run.trace.epochs.empty:
        return "not begun"
    if run.summary["diverged"] is not None:
        return f"diverged in epoch {run.summary['diverged'] + 1}"
    return "finished" if run.finished else f"stopped after epoch {run.summary['epochs']}"


def _show(given: argparse.Namespace) -> None:
    console = unfolded()
    for path in find_runs(given.runs):
        run = Run(path)
        with console.capture() as capture:
            console.say(f"{path}: {state(run)}")
            if not run.trace.epochs.empty:
                console.print(single.run_table(path), highlight=False)
        shown = capture.get().rstrip("\n")
        if given.all:
            _print(f"{shown}\n\n{OmegaConf.to_yaml(OmegaConf.create(run.trace.config))}")
        else:
            lines = [
                *map(str.rstrip, shown.splitlines()),
                *textwrap.wrap(_keys(run), min(console.width, WIDTH)),
            ]
            if len(lines) >= LINES:
                lines = [*lines[: LINES - 1], "... (--all shows the rest)"]
            _print("\n".join(lines))


def _keys(run: Run) -> str:
    """The run's keys as one would type them, with those that most tables are about first. A key that is null
    is left out, or shown with the value that the system chose for it."""
    # Here, since it brings in torch, which takes longer than a list of runs.
    from harness.run import repeat_command

    first = ("system.", "dataset", "partition.", "workers", "epochs", "seed", "model.", "optimiser.")
    # The word `dataset=` replaces the keys that it sets.
    keys = {**_dataset(run), **{key: value for key, value in run.keys.items() if key not in _dataset(run)}}
    order = sorted(keys, key=lambda k: next((i for i, f in enumerate(first) if k.startswith(f)), len(first)))
    made = {f"system.{name}": value for name, value in (run.trace.resolved or {}).get("knobs", {}).items()}
    left = {key: f"{key}=null ({made[key]})" for key in order if key in made and keys[key] is None}
    for group in [key.removesuffix("._target_") for key in order if re.fullmatch(r"\w+\._target_", key)]:
        with contextlib.suppress(InputError):  # a class of somebody's own is shown by its name
            left[f"{group}._target_"] = f"{group}={repeat_command.option(group, run.trace.config[group])}"
    return " ".join(
        left.get(key) or knob(key, keys[key]) for key in order if key in left or keys[key] is not None
    )


def _dataset(run: Run) -> dict[str, str | None]:
    """The word `dataset=` that chooses the run's graph, and None for the keys that it sets, so that they are
    left out. Empty where the graph is a user's own dataset, whose word is not known."""
    name, source = str(run.keys.get("dataset.name")), run.keys.get("dataset.source")
    if source == "npz":
        return {"dataset": "npz", "dataset.source": None, "dataset.name": None if name == "npz" else name}
    if source not in ("twin", "real"):
        return {}
    word = name.removeprefix("twin/") if source == "real" else f"twin/{name.removeprefix('twin/')}"
    return {"dataset": word, "dataset.source": None, "dataset.name": None}


def _compare(given: argparse.Namespace) -> None:
    """Print a table with runs as columns. Its rows are the keys on which not all runs agree, then results."""
    runs = [Run(path) for path in find_runs(given.runs)]
    if len(runs) < 2:
        raise InputError(f"{given.runs[0]} is one run: give two or more to compare")
    if lacking := next((run.path for run in runs if run.trace.epochs.empty), None):
        raise InputError(f"{lacking} has not finished an epoch: let it run longer, or leave it out")
    table = _table("", *_told_apart([run.path for run in runs]))
    for key, values in differing(runs).items():
        table.add_row(key, *values)
    table.add_row("state", *map(state, runs))
    table.add_section()
    clock = "cpu" if any(run.summary["clock"] == "cpu" for run in runs) else "wall"
    for column in (*LEADING[leading([Group(runs)])], *times(clock)):
        results = [column.value(run.summary) for run in runs]
        heading = named(column, runs[0].summary["multilabel"]).heading
        table.add_row(heading, *("-" if v is None else format(v, column.digits) for v in results))
    sizes = [sum(run.summary["bytes_epoch"].values()) / 1e6 for run in runs]
    table.add_row("MB per epoch", *(f"{size:.3f}" for size in sizes))
    table.add_row("losses", *(_losses(run, runs[0]) for run in runs))
    _print(table)


def _told_apart(paths: list[Path]) -> list[str]:
    """The names of folders, each with as many of the folders above it as it takes to tell all apart."""
    deepest = max(len(path.parts) for path in paths)
    told = ([str(Path(*path.parts[-depth:])) for path in paths] for depth in range(1, deepest + 1))
    return next((names for names in told if len(set(names)) == len(paths)), [str(path) for path in paths])


def _losses(run: Run, first: Run) -> str:
    """In how many epochs from the start a run's losses equal those of the first run, bit for bit."""
    if run is first:
        return "-"
    ours, theirs = (
        [*epochs_of_run(each.trace.epochs).groupby("epoch")["loss"].first()] for each in (run, first)
    )
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"equal to the first run's in {same} of {len(ours)} epochs"


def _remove(given: argparse.Namespace) -> None:
    _discard([(path, path / LOCK) for path in find_runs(given.runs)], given.yes)


def _extend(given: argparse.Namespace) -> None:
    keys: dict[str, Any] = {}
    known = sorted({"epochs", *PLACE_KEYS} - {"fresh", "launch"})
    for word in given.keys:
        if (key := key_of(word)) not in known:
            raise InputError(f'"{word}" cannot be given here{did_you_mean(key, known)}')
        keys[key] = read_value(word)
    epochs = keys.pop("epochs", None)
    if not isinstance(epochs, int) or isinstance(epochs, bool):
        raise InputError(f"epochs={epochs} is not a number of epochs: give epochs=N, in all")
    if own := own_config():
        trust_folder(own)
    from harness.run import extend, jobs

    # The absolute path, since the run may have been started from another working directory.
    jobs.run_job(extend.longer(given.run.resolve(), epochs, **keys).composed)


def _clean(given: argparse.Namespace) -> None:
    from harness.run import config as configs

    used = set()
    for path in (config.parent for config in given.results.rglob("config.yaml")):
        with contextlib.suppress(InputError):
            if not (path / "summary.json").exists():
                used.add(configs.shard_folder(path).resolve())
    entries = [
        entry
        for kind in KINDS
        for entry in sorted((given.cache / kind).glob("*"))
        if entry.is_dir() and entry.resolve() not in used
    ]
    _discard([(entry, entry.with_suffix(".lock")) for entry in entries], given.yes)


def _discard(found: list[tuple[Path, Path]], yes: bool) -> None:
    """Remove folders, or, without `yes`, say which would be removed and how large they are.

    found   (folder, its lock) of each; a folder whose lock another process holds is kept

    OSError, after all others, where one cannot be removed."""
    total, failed = 0, None
    for folder, lock in found:
        if folder.is_symlink():
            print(f"a link, kept: {folder}")
            continue
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        try:
            with _held(lock, make=yes) as ours:
                if not ours:
                    print(f"in use, kept: {folder}")
                    continue
                if yes:
                    disk.remove_tree(folder)
        except OSError as error:
            failed = failed or error
            continue
        total += size
        print(f"{'removed' if yes else 'would remove'} {folder} ({size / 1e6:.1f} MB)")
    print(f"{total / 1e6:.1f} MB{'' if yes or not found else '; give --yes to remove'}")
    if failed:
        raise failed


@contextlib.contextmanager
def _held(lock: Path, make: bool = False) -> Iterator[bool]:
    """Take a lock and hold it while this is open; yields False where another process holds it. OSError where
    this process may not look.

    A lock that is missing is made only with `make`: listing leaves no files behind. One that is missing, a
    link or no regular file is held by nobody."""
    with contextlib.ExitStack() as stack:
        ours = True
        if make if not os.path.lexists(lock) else lock.is_file() and not lock.is_symlink():
            try:
                stack.enter_context(FileLock(lock, timeout=0))
            except Timeout:
                ours = False
        yield ours


def _table(*headings: str) -> Table:
    return tables.shown(headings, words=headings)


def _print(shown: Any) -> None:
    unfolded().print(shown, highlight=False, soft_wrap=isinstance(shown, str))
