"""From the words of a command to finished runs: `halobench run`, one run or a sweep."""

import contextlib
import sys
from collections.abc import Sequence

from hydra import version
from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from harness.base.errors import InputError
from harness.base.places import CONF
from harness.run import overrides, sweep
from harness.run.jobs import Jobs, plain_warnings
from harness.run.process import until_stopped


def run(arguments: Sequence[str], program: str = "python -m harness") -> int:
    """`python -m harness` with these words; returns the exit code.

    0; 2 where what was given cannot be used; 128 + signal where the run was stopped; else 1 or the code of
    the worker that failed. Errors are one sentence on stderr."""
    return until_stopped(lambda: _run(list(arguments), program))


def _run(words: list[str], program: str) -> int:
    try:
        with plain_warnings():
            given = overrides.parse(words)
            if given.help:
                from harness.run import keys  # brings in the report, which no start has to wait for

                print(keys.text(words, CONF, program))
                return 0
            single = overrides.check(words, CONF)
            swept = sweep.read(words, CONF) if given.multirun else None
            if swept and swept.total and not swept.optimises and not swept.elsewhere:
                _say_how_long(words, swept.total)
            jobs = Jobs(swept)
            with jobs.collected(swept.elsewhere if swept else None):
                code = 0
                if single is not None:
                    jobs.train([given.overrides], lambda _: single)
                elif swept and swept.plain:  # Hydra would compose each of its runs twice
                    _train(jobs, swept.parts, given.config_dir)
                else:
                    code = _started(jobs, swept.parts if swept else [words])
            jobs.show()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if jobs.failed and swept:
        print(
            f"{len(jobs.failed)} of the sweep's jobs failed; the same command runs only what is missing:",
            file=sys.stderr,
        )
        before = None
        for job in jobs.failed:
            print(f"  {job.asked}: {'the same' if job.error == before else job.error}", file=sys.stderr)
            before = job.error
    return jobs.failed[0].code if jobs.failed else code


def _say_how_long(words: list[str], total: int) -> None:
    """Say before a sweep starts how many runs it has and how long they take. Says nothing of a sweep of more
    than 50 runs, since composing them takes seconds, nor where a run cannot be composed: that error is told
    when the run's turn comes. InputError where the file of a graph is not there."""
    if 1 < total <= 50:
        from harness.run import runner

        given, runs = overrides.parse(words), []
        with contextlib.suppress(InputError, HydraException, OmegaConfBaseException):
            own = runner.searchpath(given.config_dir)
            runs = runner.composed([[*own, *run] for run in runner.expand(given.overrides)])
        for run in runs:
            run.dataset.check_there()
        if runs:
            print(runner.how_long(runs), file=sys.stderr, flush=True)


def _train(jobs: Jobs, parts: list[list[str]], config_dir: str | None) -> None:
    """Train the jobs of every part of a sweep in this process, without Hydra's launcher."""
    from harness.run import runner

    runs = [run for part in parts for run in runner.expand(overrides.parse(part).overrides)]
    jobs.train(runs, runner.composer(runner.searchpath(config_dir)))


def _started(jobs: Jobs, parts: list[list[str]]) -> int:
    """Let Hydra start the jobs of every part; returns its exit code."""
    for jobs.part, part in enumerate(parts):
        given = overrides.parse(overrides.for_hydra(part, CONF))
        # What @hydra.main does, with words that need not be this process's.
        version.setbase("1.3")
        GlobalHydra.instance().clear()  # of the sweep before this one
        try:
            _run_hydra(given, get_args_parser(), jobs, CONF, "config")
        except SystemExit as end:
            # Hydra, a launcher or a sweeper has said why it gave up; how its jobs ended is still told.
            if end.code:
                return end.code if isinstance(end.code, int) else 1
    return 0
