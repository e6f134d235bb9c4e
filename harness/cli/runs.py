"""`halobench runs`: the run folders there are, one of them, several beside each other, and tidying up."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout
from omegaconf import OmegaConf
from rich.box import SIMPLE_HEAD
from rich.table import Table

from harness.base.terminal import Terminal
from harness.check import InputError, did_you_mean
from harness.report import single
from harness.report.columns import LEADING, times
from harness.report.groups import Group, Run, knob
from harness.report.table import leading
from harness.run import config as configs
from harness.run import extend, jobs, prepare
from harness.run.process import RunFailed, Stopped, stoppable
from harness.trace.identity import PLACE_KEYS
from harness.trace.reader import find_runs

KINDS = ("graphs", "shards", "costs", "tilings")  # of entries in the cache


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0; 1 where a run that was extended failed; 2 with one sentence where what was given cannot be
    used; 128 + signal where it was stopped."""
    given = _parser().parse_args(arguments)
    try:
        with stoppable():
            given.act(given)
    except (InputError, RunFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else error.code
    except Stopped as stop:
        print(f"{stop}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 128 + stop.number
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="halobench runs", description="Look at run folders, and tidy up.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, act, said: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=said, description=said)
        made.set_defaults(act=act)
        return made

    some: dict[str, Any] = {
        "nargs": "+",
        "metavar": "RUN",
        "help": "a run folder, a folder above some, or a glob pattern",
    }
    yes: dict[str, Any] = {
        "action": "store_true",
        "help": "remove; without it, only list what would be removed",
    }
    add("list", _list, "a line per run").add_argument(
        "runs", **{**some, "nargs": "*", "default": ["results"]}
    )
    add("show", _show, "the table of a run and the keys of its config").add_argument("runs", **some)
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
    for path in find_runs(given.runs):
        try:
            table.add_row(str(path), *_line(Run(path)))
        except InputError as error:
            table.add_row(str(path), *[""] * 5, f"damaged: {error}", "", "")
    _print(table)


def _line(run: Run) -> list[str]:
    """What `list` tells of a run, after its folder."""
    keys, state = run.keys, "finished"
    score = size = ""
    if run.trace.epochs.empty:
        state = "not begun"
    else:
        summary = run.summary
        if summary["diverged"] is not None:
            state = f"diverged in epoch {summary['diverged']}"
        elif not run.finished:
            state = f"stopped after epoch {summary['epochs']}"
        score = f"{value:.2f}" if (value := LEADING[summary["score"]][0].value(summary)) is not None else "-"
        size = f"{sum(summary['bytes_epoch'].values()) / 1e6:.3f}"
    if not run.finished and _in_use(run.path):
        state = "going on"
    dataset = f"{'twin/' if keys.get('dataset.source') == 'twin' else ''}{keys['dataset.name']}"
    told = [keys.get("workers", 1), keys.get("seed", ""), keys.get("epochs", "")]
    return [run.name, dataset, *map(str, told), state, score, size]


def _in_use(path: Path) -> bool:
    """Whether a process has the run's folder."""
    if not (path / prepare.LOCK).exists():
        return False
    try:
        with FileLock(path / prepare.LOCK, timeout=0):
            return False
    except (Timeout, OSError):
        return True


def _show(given: argparse.Namespace) -> None:
    for path in find_runs(given.runs):
        _print(single.run_table(path))
        _print(OmegaConf.to_yaml(OmegaConf.create(Run(path).trace.config)))
        _print(str(path))


def _compare(given: argparse.Namespace) -> None:
    """Keys and results as rows, runs as columns; a key stands there where not all runs agree on it."""
    runs = [Run(path) for path in find_runs(given.runs)]
    if len(runs) < 2:
        raise InputError(f"{given.runs[0]} is one run: give two or more to compare")
    if lacking := next((run.path for run in runs if run.trace.epochs.empty), None):
        raise InputError(f"{lacking} has not finished an epoch: let it run longer, or leave it out")
    table = _table("", *(run.path.name for run in runs))
    keys = dict.fromkeys(key for run in runs for key in run.keys)
    shown = [{k: knob(k, v).partition("=")[2] for k, v in run.keys.items()} for run in runs]
    for key in keys:
        values = [each.get(key, "-") for each in shown]
        if len(set(values)) > 1:
            table.add_row(key, *values)
    table.add_section()
    clock = "cpu" if any(run.summary["clock"] == "cpu" for run in runs) else "wall"
    for column in (*LEADING[leading([Group(runs)])], *times(clock)):
        results = [column.value(run.summary) for run in runs]
        table.add_row(column.heading, *("-" if v is None else format(v, column.digits) for v in results))
    sizes = [sum(run.summary["bytes_epoch"].values()) / 1e6 for run in runs]
    table.add_row("MB per epoch", *(f"{size:.3f}" for size in sizes))
    table.add_row("losses", *(_losses(run, runs[0]) for run in runs))
    _print(table)


def _losses(run: Run, first: Run) -> str:
    """Up to where a run's losses are the first one's, bit for bit."""
    if run is first:
        return "-"
    ours, theirs = ([*r.trace.epochs.groupby("epoch")["loss"].first()] for r in (run, first))
    same = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"equal to the first run's in {same} of {len(ours)} epochs"


def _remove(given: argparse.Namespace) -> None:
    _discard([(path, path / prepare.LOCK) for path in find_runs(given.runs)], given.yes)


def _extend(given: argparse.Namespace) -> None:
    keys: dict[str, Any] = {}
    known = sorted({"epochs", *PLACE_KEYS} - {"fresh", "launch"})
    for word in given.keys:
        key, given_as, value = word.partition("=")
        if not given_as or key not in known:
            raise InputError(f'"{word}" cannot be given here{did_you_mean(key, known)}')
        keys[key] = yaml.safe_load(value)
    epochs = keys.pop("epochs", None)
    if not isinstance(epochs, int) or isinstance(epochs, bool):
        raise InputError(f"epochs={epochs} is no number of epochs: give epochs=N, in all")
    # A run is named by the folder that was given, whatever folder that command stood in.
    jobs.run_job(OmegaConf.create(extend.longer(given.run.resolve(), epochs, **keys).composed))


def _clean(given: argparse.Namespace) -> None:
    used = set()
    for path in find_runs([given.results]) if any(given.results.rglob("config.yaml")) else []:
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
    """Remove folders that nobody holds by the lock beside each; or say which they are and how large."""
    total = 0
    for folder, lock in found:
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        # Where nothing is removed, no lock is left where none was.
        with _held(lock) if yes or lock.exists() else contextlib.nullcontext(True) as ours:
            if not ours:
                print(f"in use, left: {folder}")
                continue
            if yes:
                shutil.rmtree(folder)
        total += size
        print(f"{'removed' if yes else 'would remove'} {folder} ({size / 1e6:.1f} MB)")
    print(f"{total / 1e6:.1f} MB{'' if yes or not found else '; give --yes to remove'}")


@contextlib.contextmanager
def _held(lock: Path) -> Iterator[bool]:
    """Whether the lock could be taken; it is held while this is open."""
    holder = FileLock(lock)
    try:
        holder.acquire(timeout=0)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        holder.release()


def _table(*headings: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _print(shown: Any) -> None:
    """As wide as it needs to be where nobody's terminal would fold it."""
    console = Terminal()
    if not console.is_terminal:
        console = Terminal(width=400)
    console.print(shown, highlight=False, soft_wrap=isinstance(shown, str))
