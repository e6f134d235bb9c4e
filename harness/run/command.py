"""From the words of a command to finished runs: compose, check, prepare, train, show the result."""

from __future__ import annotations

import itertools
import math
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from hydra import version
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from harness.check import InputError
from harness.run import config as configs
from harness.run import launch, overrides, prepare
from harness.run.process import RunFailed, Stopped, stoppable

CONF = str(Path(__file__).resolve().parents[2] / "conf")


def run_job(composed: DictConfig) -> Path:
    """One run from a composed config; returns its folder. A run that has finished before is shown, not run
    again.
    """
    run = configs.check(composed)
    console = Console()
    finished = not prepare.anew(run) and prepare.is_finished(run)
    said = prepare.other_code(run) if not prepare.anew(run) else None
    if said and not finished:
        print(f"note: goes on with a run that was {said}; stale=rerun starts it anew", file=sys.stderr)
    if not finished:
        with prepare.claimed(run):
            run_dir = prepare.prepare(run)
            if run.settings.launch == "prepare":
                command = f"torchrun --nproc-per-node {run.settings.workers} -m harness.worker {run_dir}"
                console.print(command, highlight=False, soft_wrap=True)
                return run_dir
            launch.launch(run, run_dir)
    # Not before: it brings in statistics that nothing up to here has to wait for.
    from harness.report import single

    console.print(single.run_table(run.directory))
    again = "  (finished before; fresh=true runs it again)" if finished else ""
    console.print(f"{run.directory}{again}", highlight=False, soft_wrap=True)
    if said and finished:
        console.print(f"note: {said}; stale=rerun computes it again", highlight=False, soft_wrap=True)
    return run.directory


class Jobs:
    """The runs of a command: what they are called while a sweep goes on, what became of them."""

    def __init__(self, arguments: list[str], parts: list[list[str]]):
        swept, sizes = overrides.swept(arguments), [overrides.swept(part) for part in parts]
        self.keys = list(swept or {})
        lengths = [None if each is None else math.prod(map(len, each.values())) for each in sizes]
        self.total = None if None in lengths else sum(each or 0 for each in lengths)
        self.before = list(itertools.accumulate((each or 0 for each in lengths), initial=0))
        self.part = 0  # the sweep that is going on
        self.failures: list[tuple[str, int]] = []  # of this process's jobs: (what was asked, exit code)
        self.done: list[tuple[dict[str, str], Path]] = []  # swept keys and folder

    def __call__(self, composed: DictConfig) -> None:
        """What Hydra calls, once a job. A job that fails says why, and a sweep goes on with the next."""
        hydra = HydraConfig.get()
        asked = dict(word.split("=", 1) for word in hydra.overrides.task if "=" in word)
        values = {key: asked[key] for key in self.keys if key in asked}
        if self.keys:
            number = self.before[self.part] + hydra.job.num + 1
            whole = f" of {self.total}" if self.total else ""
            told = ", ".join(f"{key.removeprefix('system.')}={value}" for key, value in values.items())
            print(f"run {number}{whole}: {told}", file=sys.stderr, flush=True)
        try:
            self.done.append((values, run_job(composed)))
        except Exception as error:
            if not hydra.launcher._target_.endswith("BasicLauncher"):
                raise  # the job runs elsewhere: its launcher is the one to report it
            if not isinstance(error, InputError | RunFailed):
                traceback.print_exc()
            print(f"error: {error}", file=sys.stderr)
            code = 2 if isinstance(error, InputError) else getattr(error, "code", 1)
            self.failures.append((" ".join(hydra.overrides.task), code))

    def show(self) -> None:
        """The table after a sweep."""
        finished = [(values, path) for values, path in self.done if (path / "summary.json").exists()]
        if self.keys and len(finished) > 1:
            from harness.report import swept

            Console().print(swept.swept_table(self.keys, finished))


def run(arguments: Sequence[str]) -> int:
    """`python -m harness` with these words; returns the exit code.

    0; 2 where what was given cannot be used; 128 + signal where the run was stopped; else 1 or the code of
    the worker that failed. Errors are one sentence on stderr.
    """
    words = overrides.as_of_now(arguments)
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    warnings.simplefilter("once", UserWarning)
    try:
        with stoppable():
            if overrides.parse(words).help:
                from harness.run import keys  # brings in the report, which no start has to wait for

                print(keys.text(words, CONF))
                return 0
            swept = overrides.check(words, CONF)
            parts = overrides.parts(words, CONF) if swept else [words]
            jobs = Jobs(words if swept else [], parts)
            for jobs.part, part in enumerate(parts):
                given = overrides.parse(overrides.for_hydra(part, CONF))
                # What @hydra.main does, with words that need not be this process's.
                version.setbase("1.3")
                GlobalHydra.instance().clear()  # of the sweep before this one
                _run_hydra(given, get_args_parser(), jobs, CONF, "config")
            jobs.show()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stop:
        print(f"{stop}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 128 + stop.number
    if jobs.failures and swept:
        print(
            f"{len(jobs.failures)} of the sweep's jobs failed; the same command runs only what is missing:",
            file=sys.stderr,
        )
        for asked, _ in jobs.failures:
            print(f"  {asked}", file=sys.stderr)
    return jobs.failures[0][1] if jobs.failures else 0
