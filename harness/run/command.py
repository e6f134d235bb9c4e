"""From the words of a command to finished runs: compose, check, prepare, train, show the result."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from hydra import version
from hydra._internal.utils import _run_hydra, get_args_parser
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
                command = f"torchrun --nproc-per-node {run.settings.gpus} -m harness.worker {run_dir}"
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


def run(arguments: Sequence[str]) -> int:
    """`python -m harness` with these words; returns the exit code.

    0; 2 where what was given cannot be used; 128 + signal where the run was stopped; else 1 or the code of
    the worker that failed. Errors are one sentence on stderr.
    """
    failures: list[tuple[str, int]] = []  # of this process's jobs: (what was asked, exit code)

    def job(composed: DictConfig) -> None:
        """What Hydra calls, once a job. A job that fails says why, and a sweep goes on with the next."""
        try:
            run_job(composed)
        except Exception as error:
            if not HydraConfig.get().launcher._target_.endswith("BasicLauncher"):
                raise  # the job runs elsewhere: its launcher is the one to report it
            if not isinstance(error, InputError | RunFailed):
                traceback.print_exc()
            print(f"error: {error}", file=sys.stderr)
            code = 2 if isinstance(error, InputError) else getattr(error, "code", 1)
            failures.append((" ".join(HydraConfig.get().overrides.task), code))

    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    warnings.simplefilter("once", UserWarning)
    words = overrides.as_of_now(arguments)
    try:
        with stoppable():
            swept = overrides.check(words, CONF)
            given = get_args_parser().parse_args(overrides.for_hydra(words, CONF))
            # What @hydra.main does, with words that need not be this process's.
            version.setbase("1.3")
            _run_hydra(given, get_args_parser(), job, CONF, "config")
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stop:
        print(f"{stop}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 128 + stop.number
    if failures and swept:
        print(
            f"{len(failures)} of the sweep's jobs failed; the same command runs only what is missing:",
            file=sys.stderr,
        )
        for asked, _ in failures:
            print(f"  {asked}", file=sys.stderr)
    return failures[0][1] if failures else 0
