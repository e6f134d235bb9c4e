"""The jobs of a command, one run each: composed, checked, prepared, trained and shown. What became of each is
collected, wherever Hydra's launcher started it."""

import contextlib
import dataclasses
import logging
import shutil
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from harness.base.errors import InputError, machine_said
from harness.base.target import ALLOW, trusted_in
from harness.base.terminal import Terminal, unfolded
from harness.base.words import key_values
from harness.results import files, objective
from harness.run import config as configs
from harness.run import launch, prepare, train
from harness.run.process import RunFailed
from harness.run.sweep import Sweep

NOTES = ".jobs"  # folder below `results` for what jobs of other processes leave, while a sweep goes on


def run_job(
    composed: DictConfig | dict[str, Any], show: bool = True, wait: bool = False
) -> tuple[Path, bool]:
    """Train one run from a composed config; returns its folder, and whether other code computed before what
    is shown. A run that has finished before is shown, not trained again.

    show    print the results at the end
    wait    wait for a run that is going on in another process, and show it when it has finished there
    """
    run = configs.check(composed)
    console = Terminal()
    finished = not prepare.anew(run) and prepare.is_finished(run)
    said = prepare.other_code(run) if not prepare.anew(run) else None
    if said and not finished:
        print(f"note: goes on with a run that was {said}; stale=rerun starts it anew", file=sys.stderr)
    if not finished:
        with prepare.claimed(run, wait):
            # Another process may have finished it while this one waited.
            finished = not prepare.anew(run) and prepare.is_finished(run)
            if not finished:
                if run.settings.launch != "prepare":  # else it may be trained on another machine
                    train.check_device(run.settings.device)
                run_dir = prepare.prepare(run)
                if run.settings.launch == "prepare":
                    allow = trusted_in(run.composed)
                    command = f"torchrun --nproc-per-node {run.settings.workers} -m harness.run.worker"
                    command = f"{ALLOW}={allow} {command}" if allow else command
                    console.print(f"{command} {run_dir}", highlight=False, soft_wrap=True)
                    return run_dir, False
                launch.launch(run, run_dir)
    older = bool(said and finished)
    if not show:
        return run.directory, older
    # Not before: it brings in statistics that nothing up to here has to wait for.
    from harness.results.report import single

    console.print(single.run_table(run.directory, run.settings.verbose))
    again = "  (finished before; fresh=true runs it again)" if finished else ""
    console.print(f"{run.directory}{again}", highlight=False, soft_wrap=True)
    if not run.settings.verbose and not wait:  # in a sweep it would be said for each run
        console.say(f"halobench runs show {run.directory} says more, as verbose=true does at once", "dim")
    if older:
        console.print(f"note: {said}; stale=rerun computes it again", highlight=False, soft_wrap=True)
    return run.directory, older


def run_all(runs: Mapping[Path, dict[str, Any]]) -> int:
    """Train every run, given as folder and composed config. A run that fails says why, and the next one
    starts; at the end all failed runs are listed. Returns the exit code of the first that failed, 0 where
    none did."""
    failed = []
    with plain_warnings():
        for folder, composed in runs.items():
            try:
                run_job(composed, show=False, wait=True)  # a table takes as long as a tenth of a short run
            except Exception as error:
                failed.append((folder, *_told(error)))
    for folder, why, _ in failed:
        print(f"{folder}: {why}", file=sys.stderr)
    return failed[0][2] if failed else 0


def _told(error: Exception, before: Mapping[str, int] | None = None) -> tuple[str, int]:
    """Say on stderr why a run failed. Returns the first line of that, and the exit code of the failure.

    before   reasons that were told already, each with the number of the run that failed for it
    """
    if said := machine_said(error):
        error = RunFailed(said)
    if not isinstance(error, InputError | RunFailed):
        traceback.print_exc()
    run = (before or {}).get(str(error))
    print(f"error: {error}" if run is None else f"error: the same as in run {run}", file=sys.stderr)
    line = next(iter(str(error).splitlines()), type(error).__name__)
    return line, 2 if isinstance(error, InputError) else getattr(error, "code", 1)


@dataclass
class Job:
    """What became of a job. Its defaults hold where a job was begun and nothing more is heard of it.

    asked    its overrides
    values   its values of the swept keys, those that it has
    folder   of its run; None where there is none
    value    what a sweeper is to optimise; None where none asked for it
    error    why it failed; "" where it did not
    code     the exit code that stands for the failure
    older    whether what is shown was computed before, by other code
    """

    asked: str
    values: dict[str, str]
    folder: str | None = None
    value: float | None = None
    error: str = "it had not ended when the sweep did"
    code: int = 1
    older: bool = False


@dataclass
class Jobs:
    """The jobs of a command: announced while a sweep goes on, with what became of each.

    sweep   None: a single run
    notes   a folder in which jobs leave what became of them; None where all jobs run in this process
    ended   what became of each job, by its number from 1
    """

    sweep: Sweep | None = None
    notes: Path | None = None
    ended: dict[int, Job] = field(default_factory=dict)

    def __call__(self, composed: DictConfig) -> float | None:
        """What Hydra calls, once per job. A job that fails says why, and a sweep goes on with the next.

        Returns the value that the sweeper optimises; None where it optimises none or the job has none."""
        hydra = HydraConfig.get()
        # Not resolved: what a word refers to may not be there, which the job then says.
        words = cast(list[str], OmegaConf.to_container(hydra.overrides.task, resolve=False))
        number = int(OmegaConf.select(cast(DictConfig, hydra), "job.num") or 0) + 1
        with plain_warnings():  # this may be another process than the command's
            return self._job(words, number, lambda: composed)

    def train(self, runs: Iterable[list[str]], compose: Callable[[list[str]], DictConfig]) -> None:
        """Run a job for each of `runs`, each a list of overrides that `compose` makes a config of."""
        for number, words in enumerate(runs, 1):
            self._job(words, number, partial(compose, words))

    def _job(self, words: list[str], number: int, compose: Callable[[], DictConfig]) -> float | None:
        asked = key_values(word for word in words if "=" in word)
        keys = self.sweep.keys if self.sweep else []
        job = Job(" ".join(words), {key: asked[key] for key in keys if key in asked})
        if self.sweep and keys:
            whole = f" of {self.sweep.total}" if self.sweep.total else ""
            told = ", ".join(f"{key.removeprefix('system.')}={value}" for key, value in job.values.items())
            print(f"run {number}{whole}: {told}", file=sys.stderr, flush=True)
        self._note(number, job)
        try:
            composed = compose()
            folder, job.older = run_job(composed, wait=bool(self.sweep and self.sweep.keys))
            job.folder = str(folder)
            if self.sweep and self.sweep.optimises:
                job.value = _value(Path(job.folder), composed.objective)
            job.error, job.code = "", 0
        except Exception as error:
            job.error, job.code = _told(error, self._reasons())
        self._note(number, job)
        if job.error and self.sweep and self.sweep.grid:
            # Optuna's sweeper ends without its results where the last point of a grid has no value. Which
            # points a grid tries depends on no value, so a failed point may have the worst one.
            return objective.worst(self.sweep.direction)
        return job.value

    def _reasons(self) -> dict[str, int]:
        """Why runs failed so far, each reason with the number of the first run that failed for it."""
        return {each.error: number for number, each in reversed(self.ended.items())}

    def _note(self, number: int, job: Job) -> None:
        if self.notes is None:
            self.ended[number] = job
        elif self.notes.is_dir():  # else the sweep was stopped, and nobody waits for it
            files.write_json_atomic(self.notes / f"{number}.json", dataclasses.asdict(job))

    @contextlib.contextmanager
    def collected(self, results: Path | None) -> Iterator[None]:
        """While this is open, jobs of other processes leave files below `results` that say what became of
        them; at its end they are read into `ended`. `results` is None where all jobs run in this process."""
        if results is None:
            yield
            return
        # Below the runs' own folder, since that is one that all hosts of a cluster see.
        self.notes = results.resolve() / NOTES / uuid.uuid4().hex
        self.notes.mkdir(parents=True)
        try:
            yield
        finally:
            for path in self.notes.glob("*.json"):
                self.ended[int(path.stem)] = Job(**files.read_json(path))
            shutil.rmtree(self.notes)
            with contextlib.suppress(OSError):  # not empty: another sweep is going on
                self.notes.parent.rmdir()

    @property
    def failed(self) -> list[Job]:
        return [self.ended[number] for number in sorted(self.ended) if self.ended[number].error]

    def show(self) -> None:
        """The table after a sweep, and which of its runs was best where it optimised something."""
        ended = (self.ended[number] for number in sorted(self.ended))
        done = [(job, Path(job.folder)) for job in ended if job.folder]
        finished = [(job, folder) for job, folder in done if (folder / "summary.json").exists()]
        if not self.sweep or not self.sweep.keys or len(finished) < 2:
            return
        from harness.results.report import single

        console = unfolded()
        table, notes = single.swept_table(self.sweep.keys, [(job.values, folder) for job, folder in finished])
        console.print(table)
        for note in notes:
            console.print(note, highlight=False)
        if older := sum(job.older for job, _ in finished):
            said = f"note: other code computed {older} of these {len(finished)} runs"
            console.print(f"{said}; stale=rerun computes such runs again", highlight=False)
        valued = [(job.value, job) for job, _ in finished if job.value is not None]
        if valued:
            order = max if self.sweep.direction == "maximize" else min
            value, best = order(valued, key=lambda pair: pair[0])
            told = ", ".join(f"{key}={chosen}" for key, chosen in best.values.items())
            said = f"best {self.sweep.objective or 'validation score'}: {value:.6g} with {told}"
            console.print(f"{said}, in {best.folder}", highlight=False, soft_wrap=True)


def _value(run_dir: Path, name: str | None) -> float:
    path = run_dir / "summary.json"
    if not path.exists():
        raise InputError("launch=prepare trains nothing that a sweep could optimise; give launch=local")
    return objective.value(files.read_json(path), name)


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """While this is open, each warning is printed once, as one line without place and source."""
    # Lines that a library's logging cannot write, as where no file can be opened, are dropped silently.
    logging.raiseExceptions = False
    with warnings.catch_warnings():
        before = warnings.formatwarning
        warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
        warnings.simplefilter("once", UserWarning)
        try:
            yield
        finally:
            warnings.formatwarning = before
