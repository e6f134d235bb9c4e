"""`python -m harness system=NAME dataset=NAME gpus=N ...`: compose, check, prepare, train, show the result."""

from __future__ import annotations

import sys
import traceback
import warnings
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from harness import config as configs
from harness import launch, overrides, prepare
from harness.check import InputError
from harness.process import RunFailed, Stopped, stoppable

CONF = str(Path(__file__).resolve().parent.parent / "conf")


def run_job(composed: DictConfig) -> Path:
    """One run from a composed config; returns its folder. A run that has finished before is shown, not run again."""
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


def main() -> int:
    failures: list[tuple[str, int]] = []  # of this process's jobs: (what was asked, exit code)

    @hydra.main(version_base="1.3", config_path=CONF, config_name="config")
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
    try:
        with stoppable():
            swept = overrides.check(sys.argv[1:], CONF)
            sys.argv[1:] = overrides.for_hydra(sys.argv[1:], CONF)
            job()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except Stopped as stop:
        print(f"{stop}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 128 + stop.number
    if failures and swept:
        print(f"{len(failures)} of the sweep's jobs failed; the same command runs only what is missing:", file=sys.stderr)
        for asked, _ in failures:
            print(f"  {asked}", file=sys.stderr)
    return failures[0][1] if failures else 0


if __name__ == "__main__":
    sys.exit(main())
