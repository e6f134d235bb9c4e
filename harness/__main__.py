"""`python -m harness system=NAME dataset=NAME gpus=N ...`: compose, check, prepare, train, show the result."""

from __future__ import annotations

import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig
from rich.console import Console

from harness import config as configs
from harness import launch, overrides, prepare
from harness.check import InputError
from harness.report import table

CONF = str(Path(__file__).resolve().parent.parent / "conf")


def run_job(composed: DictConfig) -> Path:
    """One run from a composed config; returns its folder. A run that has finished before is shown, not run again."""
    run = configs.check(composed)
    console = Console()
    if run.settings.fresh:
        kept = prepare.set_aside(run.directory)
        if kept is not None:
            console.print(f"kept the earlier run as {kept}", style="dim", highlight=False)
    finished = (run.directory / "summary.json").exists()
    if not finished:
        run_dir = prepare.prepare(run)
        if run.settings.launch == "prepare":
            console.print(f"torchrun --nproc-per-node {run.settings.gpus} -m harness.worker {run_dir}", highlight=False, soft_wrap=True)
            return run_dir
        launch.launch(run, run_dir)
    console.print(table.run_table(run.directory))
    again = "  (finished before; fresh=true runs it again)" if finished else ""
    console.print(f"{run.directory}{again}", highlight=False, soft_wrap=True)
    return run.directory


def main() -> int:
    failures: list[tuple[str, int]] = []  # of this process's jobs: (what was asked, exit code)

    @hydra.main(version_base="1.3", config_path=CONF, config_name="config")
    def job(composed: DictConfig) -> None:
        """What Hydra calls, once a job. A job that fails says why, and a sweep goes on with the next."""
        try:
            run_job(composed)
        except (InputError, launch.RunFailed) as error:
            if not HydraConfig.get().launcher._target_.endswith("BasicLauncher"):
                raise  # the job runs elsewhere: its launcher is the one to report it
            print(f"error: {error}", file=sys.stderr)
            failures.append((" ".join(HydraConfig.get().overrides.task), getattr(error, "code", 2)))

    try:
        overrides.check(sys.argv[1:], CONF)
        job()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from the last checkpoint", file=sys.stderr)
        return 130
    if failures and any(a in ("-m", "--multirun") for a in sys.argv[1:]):
        print(f"{len(failures)} jobs of the sweep failed; the same command runs only what is missing:", file=sys.stderr)
        for asked, _ in failures:
            print(f"  {asked}", file=sys.stderr)
    return failures[0][1] if failures else 0


if __name__ == "__main__":
    sys.exit(main())
