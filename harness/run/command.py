"""From the words of a command to finished runs: `halobench run`, one run or a sweep."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.utils import _run_hydra, get_args_parser, run_and_report
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.types import HydraContext
from omegaconf.errors import OmegaConfBaseException

from harness.base.errors import InputError
from harness.base.places import CONF
from harness.run import overrides, sweep
from harness.run.composing import hydra_initialised
from harness.run.jobs import Jobs, plain_warnings
from harness.run.process import until_stopped

SHOWS = ("cfg", "resolve", "info", "hydra_help", "shell_completion")  # Hydra's options that train nothing


def run(arguments: Sequence[str], program: str = "python -m harness") -> int:
    """`python -m harness` with these words; returns the exit code.

    0; 2 where what was given cannot be used; 128 + signal where the run was stopped; else 1 or the code of
    the worker that failed. Errors are one sentence on stderr."""
    return until_stopped(lambda: _run(list(arguments), program))


def _run(words: list[str], program: str) -> int:
    code = 0
    try:
        with plain_warnings():
            given = overrides.parse(words)
            if given.help:
                from harness.run import keys  # brings in the report, which no start has to wait for

                print(keys.text(words, program))
                return 0
            single = overrides.check(words)
            shows = any(getattr(given, option) for option in SHOWS)
            swept = sweep.read(words) if given.multirun and not shows else None
            jobs = Jobs(swept)
            with jobs.collected(swept.elsewhere if swept else None):
                if single is not None:
                    jobs.train([given.overrides], lambda _: single)
                elif swept is None or swept.words:
                    code = _by_hydra(swept.words if swept else words, jobs)
                elif swept.elsewhere:
                    code = _launched(words, swept, jobs)
                else:
                    _train(words, swept.runs, jobs)
            jobs.show()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if jobs.failed and swept:
        print(
            f"{len(jobs.failed)} of the sweep's jobs failed; the same command runs only what is missing:",
            file=sys.stderr,
        )
        before, reasons = None, [job.error for job in jobs.failed]
        for job in sorted(jobs.failed, key=lambda job: reasons.index(job.error)):
            print(f"  {job.asked}: {'the same' if job.error == before else job.error}", file=sys.stderr)
            before = job.error
    return jobs.failed[0].code if jobs.failed else code


def _train(words: list[str], runs: list[list[str]], jobs: Jobs) -> None:
    """Train the runs of a sweep in this process. Up to 50 are composed before the first is trained, and it is
    said how long they take. InputError where one of these cannot be composed, or has not finished and a file
    of its graph is not there (what can be downloaded is downloaded now); an error that only preparing finds
    is told when the run's turn comes."""
    from harness.run import config, runner

    compose = runner.composer(overrides.searchpath(words))
    if 1 < len(runs) <= 50:
        made = []
        with contextlib.suppress(HydraException, OmegaConfBaseException):
            made = [config.check(compose(run)) for run in runs]
        for each in runner.lacking(made):
            each.dataset.check_there(Path(each.settings.data_dir))
        if made:
            print(runner.how_long(made), file=sys.stderr, flush=True)
    jobs.train(runs, compose)


def _launched(words: list[str], swept: sweep.Sweep, jobs: Jobs) -> int:
    """Let Hydra's launcher start the runs of a sweep in other processes; returns the exit code. InputError,
    before any is started, where one cannot be composed."""
    from harness.run import runner

    compose = runner.composer(overrides.searchpath(words))
    for run in swept.runs:
        compose(run)
    with hydra_initialised():
        context = HydraContext(GlobalHydra.instance().config_loader(), Callbacks())
        launcher = Plugins.instance().instantiate_launcher(context, jobs, swept.composed)

        def launch() -> None:
            for first in range(0, len(swept.runs), swept.at_once):
                batch = swept.runs[first : first + swept.at_once]
                for done in launcher.launch(batch, initial_job_idx=first):
                    _ = done.return_value  # raises what a job could not tell

        return _code(launch)


def _by_hydra(words: list[str], jobs: Jobs) -> int:
    """Do what Hydra's own main does with these words, which need not be this process's; returns the exit
    code."""
    version.setbase("1.3")
    GlobalHydra.instance().clear()
    return _code(lambda: _run_hydra(overrides.parse(words), get_args_parser(), jobs, CONF, "config"))


def _code(work: Callable[[], object]) -> int:
    """Let Hydra work; returns the exit code. What it gives up at it has said."""
    try:
        run_and_report(work)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0
