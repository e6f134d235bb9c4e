"""From command lines to run folders: what a sweep expands to, what has finished, starting the rest."""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

import yaml
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from harness.base import yaml_text
from harness.base.errors import InputError
from harness.base.places import CONF, own_config
from harness.base.scratch import scratch
from harness.base.terminal import counted
from harness.base.words import written
from harness.data import real
from harness.results import kinds
from harness.results.reader import MISSHAPEN
from harness.results.schema import AGAIN
from harness.run import composing, overrides, process
from harness.run import config as configs
from harness.run.settings import RunConfig


@dataclass(frozen=True)
class Places:
    """The folders for runs, for the cache of graphs and shards, and for raw data."""

    results: Path
    cache: Path
    data_dir: Path

    @classmethod
    def of(cls, asked: argparse.Namespace | RunConfig) -> Places:
        """From the options of `add_places`, or the settings of a run."""
        return cls(Path(asked.results), Path(asked.cache), Path(asked.data_dir))

    @property
    def overrides(self) -> list[str]:
        """What a run in these places is given beside its own overrides."""
        return [
            *searchpath(),
            f"results={written(str(self.results))}",
            f"cache={written(str(self.cache))}",
            f"data_dir={written(str(self.data_dir))}",
            "progress=false",
        ]


def add_places(parser: argparse.ArgumentParser, out: str, what: str) -> None:
    """Add the options of a command that starts the runs it lacks: the `Places` of those runs, and `--out`.

    out    the default of `--out`
    what   what is written there, for the help
    """
    for name, place, says in (
        ("out", out, what),
        ("results", "results", "where runs are found and go"),
        ("cache", "results/cache", "graphs and shards"),
        ("data-dir", "data", "raw data sets"),
    ):
        parser.add_argument(f"--{name}", type=Path, default=Path(place), help=f"{says} (default {place})")


def searchpath(config_dir: Path | str | None = None) -> list[str]:
    """The override that adds a folder of users' own options to Hydra's search path, by default that of
    `own_config`; empty without such a folder. InputError where it is no folder, or a yaml in it is beyond
    limits."""
    return overrides.searchpath([f"--config-dir={config_dir}"] if config_dir else [])


def is_here(graph: str, data_dir: Path) -> bool:
    """Whether the raw files of a graph are in `data_dir`, or it needs none. `graph` holds its overrides, the
    names of datasets first: "dblp dataset.split=low_label"."""
    names = graph.split()[0].split(",")
    return all(name not in real.SETS or real.present(name, data_dir) for name in names)


def expand(sweep: str | Sequence[str]) -> list[list[str]]:
    """The runs of a sweep (one line, or its words) in the command's order, each as its list of overrides."""
    return overrides.expand(sweep.split() if isinstance(sweep, str) else list(sweep))


def folders(sweep: str, places: Places) -> list[Path]:
    """The folder of every run of a sweep, finished or not."""
    return [run.directory for run in composed(expand(sweep), places)]


def composed(runs: list[list[str]], places: Places | None = None) -> list[configs.Run]:
    """Compose and check runs, each given as overrides, with those of `places` added. InputError where one of
    them cannot be composed."""
    compose = composer(places.overrides if places else searchpath())
    return [configs.check(compose(run)) for run in runs]


def composer(common: Sequence[str]) -> Callable[[list[str]], DictConfig]:
    """A function that composes a run's overrides, with the `common` ones after them. It raises InputError, as
    on the command line, where there is none."""

    def composed(run: list[str]) -> DictConfig:
        words = [*run, *common]
        try:
            return composing.compose(words)
        except (HydraException, OmegaConfBaseException, yaml.YAMLError):
            overrides.check(words)
            raise

    return composed


@functools.cache
def brings_partition(system: str) -> bool:
    """Whether the system that these words ask for is over a vertex-cut, whose partitions are its own."""
    return composed(expand(system)[:1])[0].system.cut == "vertex"


def configured() -> dict[str, dict[str, Any]]:
    """The block of every system in `conf/system/` and in the user's own folder, by name, without the key
    `defaults`, which is Hydra's."""
    folders = [Path(CONF), *filter(None, [own_config()])]
    found = [path for folder in folders for path in sorted((folder / "system").glob("*.yaml"))]
    blocks = {path.stem: yaml_text.parsed(path.read_text()) for path in found}
    return {name: {k: v for k, v in block.items() if k != "defaults"} for name, block in blocks.items()}


def finished(run_dirs: list[Path]) -> list[Path]:
    """The run folders whose runs have finished."""
    return [run_dir for run_dir in run_dirs if (run_dir / "summary.json").exists()]


def lacking(made: Sequence[configs.Run]) -> list[configs.Run]:
    """Those of these runs that have not finished."""
    return [run for run in made if not finished([run.directory])]


def start(sweep: str, places: Places, made: Sequence[configs.Run] | None = None) -> None:
    """Train the runs of a sweep, those that `python -m harness -m` would make, in another process. Raises
    InputError before any is started where one cannot be composed; and InputError with the end of the output
    where some failed.

    made   the runs to start, where they are composed already; None: all runs of the sweep

    Runs are composed here and not by Hydra's sweeper, which composes each run several times and so takes a
    second more for each. Words for a launcher or a sweeper of Hydra's therefore have no effect. Each sweep is
    a process of its own, forked from one that has imported what runs need: importing takes longer than many
    a run."""
    if made is None:
        made = composed(expand(sweep), places)
    runs = {run.directory: run.composed for run in made}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.run.jobs", "harness.run.preload"])
    with scratch() as folder:
        said = folder / "said"
        said.touch()
        child = context.Process(target=_run_all, args=(runs, said))
        child.start()
        try:
            child.join()
        except BaseException:  # this process was told to stop
            child.terminate()
            child.join()
            raise
        if child.exitcode:
            raise InputError(f"{sweep}: a run failed: {said.read_text(errors='replace').strip()[-2000:]}")


def _run_all(runs: dict[Path, dict[str, Any]], said: Path) -> None:
    """Train runs, given as folder and composed config, in a process of their own; all that they print goes to
    the file `said`."""
    with said.open("wb") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    # Ctrl-C reaches every process of the terminal: the parent acts on it, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "runs are started as another process"
    threading.Thread(target=_stop_with, args=(parent.sentinel,), daemon=True).start()
    from harness.run import jobs

    sys.exit(process.until_stopped(lambda: jobs.run_all(runs)))


def _stop_with(parent: int) -> None:
    """Wait until the process with this sentinel has ended, then stop this one by a signal: nobody waits for
    its runs any more."""
    connection.wait([parent])
    os.kill(os.getpid(), signal.SIGTERM)


def seconds_of(run: configs.Run) -> float | None:
    """About how many seconds the whole run will take, by the latest finished run of the same label or system,
    graph and number of workers: its start and evaluations as they were, its training scaled to the number of
    epochs. None where no such run has finished, and where the summary of the latest is damaged.

    What a run took is the time between its first file and its last; a copy of the folder may not keep these.
    """
    alike = run.directory.parent.glob(f"{run.directory.name.rpartition('-seed')[0]}-seed*/summary.json")
    ended = max(((path.stat().st_mtime, path) for path in alike), default=None)
    if ended is None:
        return None
    whole = ended[0] - ended[1].with_name("config.yaml").stat().st_mtime
    try:
        summary = kinds.read(ended[1], AGAIN)
        trained = float(summary["train_total_s"])
        return max(whole - trained, 0.0) + trained * run.settings.epochs / summary["epochs"]
    except (InputError, *MISSHAPEN):
        return None


def duration(seconds: float) -> str:
    """A length of time in words, "about 5 min"."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def how_long(runs: Sequence[configs.Run]) -> str:
    """How many runs there are, how many of them have finished, and about how long the others will take."""
    left = lacking(runs)
    done = len(runs) - len(left)
    has = counted(len(runs), "run") + f", {done} of them finished before" * bool(done)
    known = [each for each in map(seconds_of, left) if each is not None]
    if not left:
        return has
    if not known:
        return f"{has}; how long they take is known when one of their system, graph and workers has finished"
    new, one = len(left) - len(known), len(known) == 1
    which = "the others" if done else "it" if one else "they"
    if new:
        which = f"{len(known)} of {'the others' if done else 'them'}"
    takes = "takes" if one and (new or not done) else "take"
    told = (
        f"{has}; {which} {takes} {duration(sum(known))} by the latest finished runs of the same system, graph"
    )
    unknown = f"; how long the other {new} take is not known, since no run like them has finished"
    return f"{told} and workers" + unknown * bool(new)
