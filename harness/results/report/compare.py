"""What a comparison can tell: what runs differ in, paired differences, and where the control is as good as
exact training."""

import contextlib
import functools
import math
import operator
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.base.errors import InputError
from harness.base.terminal import counted
from harness.results import resolved, track
from harness.results.identity import MEETING_KEYS, identity
from harness.results.reader import MISSHAPEN, SET_ASIDE, Trace
from harness.results.report.columns import Column
from harness.results.report.estimate import Estimate, estimate
from harness.results.report.groups import Group, Run, knob, telling, typed_value
from harness.results.schema import TABLES

# Keys and blocks of the config that do not change what exact training computes.
PLACES = ("partition", "cluster", "rows", "features_wire")


def differing(runs: Sequence[Run]) -> dict[str, list[str]]:
    """By key on which the runs do not agree, in the order of the configs: each run's value as one would type
    it, "-" where a run has no such key."""
    found = {}
    for key in dict.fromkeys(key for run in runs for key in run.keys):
        if len({repr(run.keys[key]) if key in run.keys else None for run in runs}) > 1:
            told = [typed_value(key, run.keys[key]) if key in run.keys else "-" for run in runs]
            # Classes are shown by their names; two of one name are shown with their modules.
            found[key] = told if len(set(told)) > 1 else [str(run.keys.get(key, "-")) for run in runs]
    return found


def labels(runs: Sequence[Run], unsaid: Collection[str] = ()) -> list[str]:
    """The name of each run: its system, and the keys that differ among the runs of that system.

    unsaid   keys, or whole blocks, that names leave out; they always leave out data set, seed and label
    """
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for run in runs:
        alike[run.name].append(run.keys)
    elsewhere = {"seed", "dataset", "label", *unsaid}
    found = {
        name: [key for key in telling(configs) if not {key, key.partition(".")[0]} & elsewhere]
        for name, configs in alike.items()
    }
    said = []
    for run in runs:
        told = [key for key in found[run.name] if key in run.keys]
        said.append(" ".join([run.name, *(knob(key.removeprefix("system."), run.keys[key]) for key in told)]))
    return said


Value = Callable[[dict[str, Any]], float | None]


def paired(a: Group, b: Group, value: Value, how: Callable[[float, float], float] = operator.sub) -> Estimate:
    """The mean, over the seeds that both have, of a's value less b's, or of what `how` makes of the two."""
    ours, theirs = a.by_seed(value), b.by_seed(value)
    return estimate(how(ours[seed].mean, theirs[seed].mean) for seed in ours if seed in theirs)


def change(a: Group, b: Group, column: Column) -> Estimate:
    """A column of a minus that of b, paired over seeds. A score gets no estimate where a seed of either
    diverged."""
    return estimate([]) if column.scored and (a.diverged or b.diverged) else paired(a, b, column.value)


def ratio(a: Group, b: Group, value: Value) -> Estimate:
    """The mean of a's value over b's, paired over seeds; without the seeds in which b's is 0."""
    return paired(a, b, value, lambda ours, theirs: ours / theirs if theirs else math.nan)


def reference_of(group: Group, groups: list[Group], elsewhere: bool = False) -> Group | None:
    """The group of exact training with the setting and the track of `group`; None where there is none. Of
    several, one that fetches raw features as often as `group` does is preferred.

    elsewhere   whether one with other PLACES will do where none has those of `group`. Exact training computes
                the same with all of them, and no other system shares the partition of one over a vertex-cut
    """
    exact = [g for g in groups if g.first.role == "reference" and g.finished]
    exact = [g for g in exact if g.first.track == group.first.track]
    found = [g for g in exact if setting(g) == setting(group)]
    if elsewhere and not found:
        found = [g for g in exact if setting(g, PLACES) == setting(group, PLACES)]
    fetched = group.first.keys.get("system.features")
    return min(found, key=lambda g: g.first.keys.get("system.features") != fetched, default=None)


def fixed_of(group: Group, groups: list[Group]) -> Group | None:
    """For a tuned group (`harness.results.track`), that system at its default setting; None without one."""
    found = [
        g
        for g in groups
        if (group.first.track, g.first.track) == (track.TUNED, track.FIXED)
        and g.first.system == group.first.system
        and setting(g) == setting(group)
    ]
    return min(found, key=lambda g: len(differing([g.first, group.first])), default=None)


def ahead_of_controls(groups: list[Group], score: Column) -> Iterator[tuple[Group, Group, Estimate]]:
    """(control, exact training, lead) for each finished control, a system without remote rows (`role`
    "control"), that has exact training ("reference") under its setting, where no seed of either diverged. The
    lead is the score of exact training minus the control's, paired over seeds. Where it is not told to be
    above 0, the score cannot tell whether a system uses remote rows."""
    for control in (g for g in groups if g.first.role == "control" and g.finished and not g.diverged):
        reference = reference_of(control, groups)
        if reference is not None and not reference.diverged:
            yield control, reference, paired(reference, control, score.value)


def cannot_tell(groups: list[Group], score: Column) -> list[str]:
    """One sentence for each control that exact training is not told to be ahead of."""
    said = []
    for control, reference, ahead in ahead_of_controls(groups, score):
        where = f"{control.partition}, {counted(control.workers, 'worker')}"
        if ahead.n < 2:
            said.append(
                f"{where}: {ahead.n or 'no'} seed in common says nothing of whether {reference.label} is"
                f" ahead of the control {control.label}."
            )
        elif ahead.side() <= 0:
            name = score.heading.removesuffix(" %")
            said.append(
                f"{where}: {name} cannot tell whether a system uses remote rows here: {reference.label} minus"
                f" the control {control.label} is {ahead:.2f} points over {counted(ahead.n, 'seed')}."
            )
    return said


def counts(key: str, blocks: Collection[str]) -> bool:
    """Whether two sides that differ in `key` cannot be compared. They may differ in the seed, the label, a
    key that matters to asynchronous systems alone, and the `blocks` of the config."""
    return key not in {"seed", "label", *MEETING_KEYS} and key.partition(".")[0] not in blocks


def setting(group: Group, but: tuple[str, ...] = ()) -> str:
    """A text that is equal for two groups which can be compared: the keys that `counts`, without those of the
    system, of how gradients are summed, of users' own scores, of the blocks `but`, and of what was tuned."""
    blocks = {"system", "combine", "score", *but}
    tuned = track.COMMON if group.first.track else ()
    keys = {key: value for key, value in group.first.keys.items() if counts(key, blocks) and key not in tuned}
    return repr(sorted(keys.items(), key=lambda pair: pair[0]))


def repeats(path: Path) -> list[Path]:
    """`path`, followed by the finished runs in the same folder that differ from it in their seed alone."""
    path = path.resolve()  # "." has no name, and no folder above it
    named = re.fullmatch(r"(.+-seed)\d+-\w+", path.name)  # as runs name their folders
    begin = named[1] if named else ""
    beside = sorted(each.parent for each in path.parent.glob("*/summary.json"))
    beside = [each for each in beside if not SET_ASIDE.search(each.name)]
    own = _unseeded(path)
    if own is None:  # damaged, as many of its neighbours may be
        return [path]
    alike = (each for each in beside if each != path and each.name.startswith(begin))
    return [path, *(each for each in alike if _unseeded(each) == own)]


def _unseeded(path: Path) -> dict[str, object] | None:
    try:
        found = identity(Trace(path).config, asynchronous=True)
    except (InputError, *MISSHAPEN):
        return None
    return {key: value for key, value in found.items() if key != "seed"}


def exact_beside(run: Run) -> tuple[Group, Group] | None:
    """A finished run and exact training at its setting, each with its repeats, from the folder that the run
    is in. None where no exact training has finished there, or the run is exact training itself.

    Folders are first chosen by their names and by `resolved.json`: reading a whole run takes longer, and a
    sweep may have left hundreds of them."""
    if run.role == "reference":
        return None
    alike = re.search(r"-\d+w-seed\d+-", run.path.name)  # as runs name their folders
    found: list[Group] = []
    for path in run.path.parent.glob(f"*{alike[0] if alike else ''}*/summary.json"):
        with contextlib.suppress(InputError, *MISSHAPEN):
            if SET_ASIDE.search(path.parent.name):
                continue
            if (resolved.read(path.parent) or {}).get("role") == "reference":
                found += (Group([each]) for each in _readable([path.parent]) if each.content == run.content)
    exact = reference_of(Group([run]), found, elsewhere=True)
    if exact is None:
        return None
    ours, theirs = (
        Group([each for each in _readable(repeats(one.path)) if each.key() == one.key()])
        for one in (run, exact.first)
    )
    return ours, theirs


def read_once(path: Path) -> Run:
    """The run of a folder; a finished one with its summary, and read once for as long as its summary.json
    stays as it is: at the end of each run of a sweep all its finished repeats are asked for. Errors as of
    `Run` and `summarise`."""
    summary = path / "summary.json"
    if not summary.is_file():
        return Run(path)
    return _finished(path, os.path.abspath(path), summary.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1000)
def _finished(path: Path, place: str, changed: int) -> Run:
    run = Run(path)
    run.key()
    assert run.summary
    for table in TABLES:  # which take most of the memory, and are read again where they are needed
        run.trace.forget(table)
    return run


def _readable(paths: Sequence[Path]) -> Iterator[Run]:
    """The runs of these folders, without those that are damaged."""
    for path in paths:
        with contextlib.suppress(OSError, InputError, *MISSHAPEN):
            yield read_once(path)
