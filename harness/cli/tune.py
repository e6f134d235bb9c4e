"""`halobench tune`: every system at its best setting, found by the same number of trials for each, on the
validation score alone.

A trial is a run like any other, and only its folder is kept. Optuna's sampler is seeded, so the same command
asks for the same trials in the same order, and reads those that have finished from their folders."""

import math
import time
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.base.bounds import KEY, SEED, Bounds, number
from harness.base.errors import InputError, package, typed
from harness.base.subcommand import AS_WRITTEN, Parser, command
from harness.base.terminal import Terminal, counted, unfolded
from harness.base.words import key_of, key_value, key_values, read_value
from harness.results import kinds, objective, track
from harness.results.report import formats, groups
from harness.results.report.groups import knob
from harness.results.schema import AGAIN
from harness.run import overrides, prepare, runner, space
from harness.run.config import Run
from harness.run.process import until_stopped
from harness.run.runner import Places

SEEDS = 3  # how many fresh seeds the tracks use where none are given
# Keys that this command sets for each run.
OWN = ("label", "run_dir", "launch", "objective", "fresh")
DESCRIPTION = """\
Each system at its best: as many trials for every one, on the validation score alone. Then the best setting
(track tuned) and the default one (track fixed) run on fresh seeds, and stand side by side in tables and
pages. The same command goes on where it was stopped. docs/howto/tune.md is the protocol, conf/tune/ says what
is tuned; a key that is given is not.

words:
  system=NAME,NAME,... dataset=NAME and any key of halobench run; seed=N of the trials
  trials=N of each system (default 20)
  seeds=N,N,... of the two tracks (default: the three after the trials' seed)
"""


@dataclass
class Budget:
    """How much is run.

    trials  of each system
    seeds   of the two tracks; none: the three after the trials' seed
    """

    trials: int = number(20, 1, 10_000)
    seeds: list[int] = field(default_factory=list, metadata={KEY: Bounds(0, SEED)})


@dataclass
class Trial:
    """What came of a trial.

    values  of the keys that are tuned
    score   the best validation score; minus infinity where the run diverged, None where it has none
    why     the reason where the run diverged or has no score; else ""
    """

    values: dict[str, Any]
    score: float | None
    why: str = ""


class Study:
    """The trials of a system, in the order in which they are asked for.

    base     the run whose keys the trials change
    space    the keys that they choose, and from which values
    pending  the run of the first trial that has not finished; None: none is left
    trials   those that have ended
    """

    def __init__(self, base: Run, chosen: space.Space, trials: int):
        optuna = package("optuna", "optuna", "halobench tune")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.base, self.space, self.budget = base, chosen, trials
        self.states = optuna.trial.TrialState
        sampler = optuna.samplers.TPESampler(seed=base.settings.seed)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)
        defaults = {key: space.value_of(base, key) for key in chosen}
        with warnings.catch_warnings():  # Optuna calls this experimental
            warnings.simplefilter("ignore")
            self.study.enqueue_trial({key: value for key, value in defaults.items() if value in chosen[key]})
        self.trials: list[Trial] = []
        self._lacking = self._tried()
        self.pending = next(self._lacking, None)

    @property
    def name(self) -> str:
        return self.base.system_name

    def tell(self, why: str = "") -> None:
        """Go on to the next trial that has not finished.

        why   the reason where the run of the pending one failed; "" where it has finished
        """
        try:
            self.pending = self._lacking.send(why)
        except StopIteration:
            self.pending = None

    def _tried(self) -> Generator[Run, str, None]:
        """Ask for trials and note what came of each. Yields the runs that have not finished, and is sent why
        they failed, or "" once they have finished."""
        while len(self.trials) < self.budget:
            asked = self.study.ask()
            values = {key: each.draw(asked, key) for key, each in self.space.items()}
            score, why = None, ""
            try:
                run = space.changed(self.base, values, label=track.label(self.name, track.TRIAL))
                if runner.lacking([run]):
                    why = yield run
                if not why:
                    summary = kinds.read(run.directory / "summary.json", AGAIN)
                    score, diverged = objective.value(summary, None), summary["diverged"]
                    why = "" if diverged is None else f"diverged in epoch {diverged + 1}"
            except InputError as error:
                why = str(error)
            self.trials.append(Trial(values, score, why))
            self.study.tell(asked, score, self.states.FAIL if score is None else self.states.COMPLETE)

    @property
    def best(self) -> Trial | None:
        """The first trial with the highest validation score; None where no trial has a score."""
        scored = [trial for trial in self.trials if not trial.why]
        return max(scored, key=lambda trial: trial.score or 0.0, default=None)

    def runs(self, which: str, seeds: Sequence[int]) -> list[Run]:
        """The runs of a track (`track.FIXED` or `track.TUNED`), one per seed. InputError for the tuned track
        where no trial has a score."""
        if which == track.TUNED and self.best is None:
            raise InputError(f"{self.name}: no trial has a validation score: {self.trials[-1].why}")
        values = self.best.values if which == track.TUNED and self.best else {}
        label = track.label(self.name, which)
        return [space.changed(self.base, values, label=label, seed=seed) for seed in seeds]


@command("halobench tune")
def main(words: list[str], program: str) -> int:
    """Exit code 1 where a run of a track failed or no setting of a system works; 128 + signal if stopped."""
    parser = Parser(prog=program, description=DESCRIPTION, formatter_class=AS_WRITTEN)
    parser.add_argument("words", nargs="+", metavar="KEY=VALUE")
    parser.add_argument(
        "--config-dir", type=Path, metavar="FOLDER", help="where systems of one's own have their yaml"
    )
    given = parser.parse_intermixed_args(words)
    return until_stopped(lambda: tune(given.words, given.config_dir))


def tune(words: Sequence[str], config_dir: Path | None = None) -> int:
    """Run what is lacking, and print the table of the two tracks; returns the exit code."""
    budget, bases = _asked(words, config_dir)
    keys = {key_of(word) for word in words}
    studies = []
    for base in bases:
        chosen = space.fitted(space.read(base.system_name, config_dir), base, keys)
        studies.append(Study(base, chosen, budget.trials))
    console, code = Terminal(stderr=True), 0
    _announce(studies, budget, console)
    for study in studies:
        _search(study, console)
        for which in (track.FIXED, track.TUNED):
            try:
                _start(runner.lacking(study.runs(which, budget.seeds)))
            except InputError as error:
                console.say(f"error: {_last(error)}", style="red")
                code = 1
    compared = [run for study in studies if study.best for which in (track.FIXED, track.TUNED)
                for run in study.runs(which, budget.seeds)]  # fmt: skip
    if there := runner.finished([run.directory for run in compared]):
        unfolded().print(formats.plain(groups.load(there)[0]), highlight=False, soft_wrap=True)
    return code


def _asked(words: Sequence[str], config_dir: Path | None) -> tuple[Budget, list[Run]]:
    """The budget, and the default run of each system, with the system's name as label. InputError where the
    words are not those of a tuning."""
    own = key_values(word for word in words if key_of(word) in Budget.__dataclass_fields__)
    rest = [*runner.searchpath(config_dir), *(word for word in words if key_of(word) not in own)]
    for key in OWN:
        if key in map(key_of, rest):
            raise InputError(f"{key} is set for each run here: leave it out")
    overrides.check(["-m", *rest])
    swept = overrides.swept(rest)
    if several := sorted({*swept} - {"system"}):
        raise InputError(f"{several[0]} has several values: tune each in a command of its own")
    if "system" not in map(key_of, rest):
        raise InputError("system is not given by name: give system=NAME,NAME,...")
    if "seeds" in own:
        own["seeds"] = f"[{own['seeds']}]"
    budget = typed(Budget, {key: read_value(f"{key}={value}") for key, value in own.items()}, "")
    runs = runner.expand([*rest, "progress=false"])
    names = [key_value(next(word for word in run if key_of(word) == "system"))[1] for run in runs]
    bases = [space.changed(run, {}, label=name) for name, run in zip(names, runner.composed(runs))]
    prepare.fingerprint(bases[0])  # a graph that cannot be had would fail every trial
    seed = bases[0].settings.seed
    budget.seeds = budget.seeds or [seed + 1 + more for more in range(SEEDS)]
    if twice := [each for each in budget.seeds if budget.seeds.count(each) > 1]:
        raise InputError(f"seeds names {twice[0]} more than once: give each seed once")
    if seed in budget.seeds:
        raise InputError(f"seeds={seed} is the seed of the trials: give others, or another seed=N")
    return budget, bases


def _announce(studies: Sequence[Study], budget: Budget, console: Terminal) -> None:
    """Say how many runs there are, and about how long the lacking ones take."""
    seconds, lacking = 0.0, 0
    for study in studies:
        left = budget.trials - len(study.trials) + len(runner.lacking(study.runs(track.FIXED, budget.seeds)))
        if study.pending or not study.best:  # what the tuned runs will be is not known yet
            left += len(budget.seeds)
        else:
            left += len(runner.lacking(study.runs(track.TUNED, budget.seeds)))
        lacking += left
        seconds += left * _seconds(study) if left else 0.0
    takes = f", {runner.duration(seconds)}"
    if math.isnan(seconds):
        takes = "; how long they take is known when one of each system has finished"
    runs = len(studies) * (budget.trials + 2 * len(budget.seeds))
    console.say(
        f"{counted(len(studies), 'system')}, {counted(budget.trials, 'trial')} of each and"
        f" {counted(len(budget.seeds), 'seed')} of two tracks: {counted(runs, 'run')}, {lacking} to start"
        + (takes if lacking else "")
    )


def _seconds(study: Study) -> float:
    """About how many seconds a run of the study takes, by the latest trial that has finished, else by the
    latest run of the same system, graph and workers; NaN where there is none."""
    alike = filter(None, [study.pending, study.base])
    return next(filter(None, map(runner.seconds_of, alike)), math.nan)


def _search(study: Study, console: Terminal) -> None:
    """Run the trials that are lacking, and say what came of each and which is best."""
    while study.pending is not None:
        began, run, why, number = time.monotonic(), study.pending, "", len(study.trials)
        try:
            _start([run])
        except InputError as error:
            why = _last(error).removeprefix(f"{run.directory}: ")
        study.tell(why)
        which = f"{study.name}, trial {number + 1} of {study.budget}"
        console.say(f"{which}: {_told(study.trials[number])}, {time.monotonic() - began:.0f} s")
    console.say(
        f"{study.name}: " + (f"best is {_told(study.best)}" if study.best else "no trial has a score")
    )
    reasons = [trial.why for trial in study.trials if trial.why]
    for why in dict.fromkeys(reasons):
        console.say(f"  {counted(reasons.count(why), 'trial')} without a score: {why}")


def _told(trial: Trial) -> str:
    said = " ".join(knob(key, value) for key, value in trial.values.items())
    return f"{said}: {trial.why or f'validation {100 * (trial.score or 0.0):.2f} %'}"


def _start(runs: Sequence[Run]) -> None:
    """Train these runs. InputError with the output of those that failed."""
    if runs:
        runner.start(str(runs[0].settings.label), Places.of(runs[0].settings), runs)


def _last(error: InputError) -> str:
    """The last line of what a run said."""
    return str(error).strip().splitlines()[-1]
