"""Runs of one config that different code computed, in the order of their age, and what changed from each code
to the next.

What a config asks for is compared with the keys that it lacks at their defaults, so that runs find those that
were made since these keys are there. Times are compared on one machine only.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.base.errors import InputError
from harness.results.reader import find_runs
from harness.results.report.columns import ALL, LEADING, TIMES
from harness.results.report.compare import change, ratio
from harness.results.report.estimate import Estimate, estimate
from harness.results.report.groups import MISSHAPEN, Group, Run, among
from harness.results.report.table import leading
from harness.run import config as configs

MARGIN = 0.05  # of time, relative, below which a change is called none
BUSY = "other programs"  # what the note says of a run beside which others took the cores


@dataclass(frozen=True)
class Step:
    """From one code to the next.

    name             of the row, with its graph
    before, after    the code, and the revision it was
    size, time       the new value over the old one, paired over seeds
    score            the new score less the old one, in points
    words            what changed: "sends more", "sends less", "slower", "faster", "scores higher", "scores
                     lower"; empty where nothing did
    untold           why times, or more, could not be compared; "" where they could
    """

    name: str
    graph: str
    seeds: int
    before: str
    after: str
    size: Estimate
    time: Estimate
    score: Estimate
    words: list[str]
    untold: str

    @property
    def worse(self) -> bool:
        return bool({"sends more", "slower", "scores lower"} & set(self.words))


def steps(paths: Iterable[str | Path]) -> list[Step]:
    """The steps of all configs that more than one code has computed, what became worse first.

    paths   as the report takes them, the oldest first: runs of one path are ordered by when they finished.
            Folders that `fresh=true` and `stale=rerun` set aside (`NAME.old1`) count too

    InputError where no run is there. A damaged folder is named on stderr and left out.
    """
    by_config: dict[str, list[tuple[tuple[int, float], Run]]] = defaultdict(list)
    for number, path in enumerate(paths):
        for folder in _with_old(find_runs([path])):
            try:
                run = Run(folder)
                if run.finished:
                    age = (number, (folder / "summary.json").stat().st_mtime)
                    by_config[_config(run)].append((age, run))
            except (InputError, *MISSHAPEN) as error:
                print(f"left out {folder}: {error}", file=sys.stderr)
    found = [step for runs in by_config.values() for step in _of_config(runs)]
    return sorted(found, key=lambda step: (not step.worse, not step.words, step.graph, step.name))


def _with_old(folders: list[Path]) -> list[Path]:
    beside = [old for each in folders for old in sorted(each.parent.glob(f"{each.name}.old*"))]
    return list(dict.fromkeys([*folders, *(old for old in beside if (old / "config.yaml").is_file())]))


def _config(run: Run) -> str:
    """What a run was asked for, but for its seed, and its machine."""
    asked = {key: value for key, value in configs.completed(run.trace.config).items() if key != "seed"}
    return json.dumps([asked, run.machine], sort_keys=True, default=str)


def _of_config(runs: list[tuple[tuple[int, float], Run]]) -> list[Step]:
    by_code: dict[str, list[tuple[tuple[int, float], Run]]] = defaultdict(list)
    for age, run in sorted(runs, key=lambda each: each[0]):
        by_code[run.code].append((age, run))
    if len(by_code) < 2:
        return []
    sides = [Group([run for _, run in members]) for members in by_code.values()]
    return [_step(before, after) for before, after in zip(sides, sides[1:])]


def _step(before: Group, after: Group) -> Step:
    (named,) = among([Group([after.first])])
    score = LEADING[leading([before, after])][0]
    points = change(after, before, score)
    size = ratio(after, before, ALL["mb_epoch"].value)
    same_clock = before.clock == after.clock
    time = ratio(after, before, TIMES[after.clock][0].value) if same_clock else estimate([])
    untold = _untold(before, after, time)
    # Bytes of a synchronous system do not vary by chance.
    counted = not (after.first.trace.resolved or {}).get("asynchronous", True)
    words = _said(size.side(1.0, counted=counted), "sends more", "sends less")
    if not untold and abs(time.mean - 1) > MARGIN:
        words += _said(time.side(1.0), "slower", "faster")
    words += _said(points.side(), "scores higher", "scores lower")
    return Step(
        f"{named.label}, {after.partition}, {after.workers} workers",
        named.dataset,
        time.n or size.n,
        _version(before.first),
        _version(after.first),
        size,
        time,
        points,
        words,
        untold,
    )


def _untold(before: Group, after: Group, time: Estimate) -> str:
    if before.clock != after.clock:
        return "times are by different clocks"
    if not time.n:
        return "no seed in common"
    if time.n < 2:
        return "one seed in common has no interval for its time"
    if any(BUSY in note for group in (before, after) for run in group.runs for note in run.summary["notes"]):
        return "other programs ran beside: times are not judged"
    return ""


def _said(way: int, more: str, less: str) -> list[str]:
    return [] if not way else [more if way > 0 else less]


def _version(run: Run) -> str:
    revision = run.trace.environment.get("revision")
    return f"{run.code} ({revision})" if revision and not run.code.startswith("revision") else run.code
