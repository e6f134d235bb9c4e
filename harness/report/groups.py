"""Runs put side by side: which of them are repeats of one another, what to call each, and means with intervals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from harness.check import InputError
from harness.trace.reader import Trace, find_runs
from harness.trace.summary import summarise

# Where and how a run was started: runs that differ only here, or in the seed, are repeats.
PLACE_KEYS = {"seed", "data_dir", "results", "cache", "checkpoint_every", "fresh", "launch", "progress", "run_dir"}
# What has a column of its own, or is the name itself; all other keys go into the name where they differ.
COLUMN_KEYS = {"gpus", "epochs", "label", "system._target_"}


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds. `half` is half the width of its 95 % interval (Student's t): None with fewer than two seeds,
    0 for what does not vary (counts). Formatted, an interval is shown only where there is one."""

    mean: float
    half: float | None
    n: int

    def __format__(self, spec: str) -> str:
        if np.isnan(self.mean):
            return "-"
        return format(self.mean, spec) + (f" ± {self.half:{spec}}" if self.half else "")


def estimate(values: Iterable[float]) -> Estimate:
    x = np.array([v for v in values if v is not None and not np.isnan(v)], dtype=np.float64)
    if not len(x):
        return Estimate(float("nan"), None, 0)
    if len(x) == 1:
        return Estimate(float(x[0]), None, 1)
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x)) if np.ptp(x) else 0.0
    return Estimate(float(x.mean()), float(half), len(x))


class Run:
    """One run as the report sees it: finished, or as far as it has come."""

    def __init__(self, path: Path):
        self.trace = Trace(path)
        self.path = Path(path)
        self.keys = flatten(self.trace.config)
        self.finished = self.trace.finished
        self.seed = self.keys.get("seed")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Derived from the tables, not read from summary.json: what is shown follows from what was measured."""
        return summarise(self.trace)

    @property
    def name(self) -> str:
        """What the config calls the run, else its system's module: the name in `system=NAME`."""
        target = str(self.keys.get("system._target_", "?"))
        return str(self.keys.get("label") or target.rpartition(".")[0].rpartition(".")[2])

    @property
    def machine(self) -> str:
        e = self.trace.environment
        gpus = e.get("gpus") or []
        return f"{e['processor']}, {e['cores']} cores" + (f", {len(gpus)} x {gpus[0]}" if gpus else "")

    def key(self) -> str:
        """Equal for repeats: the config but for seed and place, the machine, and whether the run has finished."""
        same = {k: v for k, v in self.keys.items() if k not in PLACE_KEYS}
        return json.dumps([same, self.machine, self.finished], sort_keys=True, default=str)


@dataclass
class Group:
    """Runs that differ in nothing but their seed.

    dataset    the graph's name and what is not usual about it; a twin's begins with "twin/"
    label      the system's name, and its knobs that differ among the groups compared
    """

    runs: list[Run]
    dataset: str = ""
    label: str = ""

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def finished(self) -> bool:
        return self.first.finished

    @property
    def clock(self) -> str:
        return self.first.summary["clock"]

    @property
    def workers(self) -> int:
        return int(self.first.keys.get("gpus", self.first.summary["workers"]))

    @property
    def partition(self) -> str:
        rest = [
            knob(k.removeprefix("partition."), v)
            for k, v in sorted(self.first.keys.items())
            if k.startswith("partition.") and k != "partition.method" and v is not None
        ]
        return " ".join([str(self.first.keys.get("partition.method", "-")), *rest])

    @property
    def epochs(self) -> str:
        planned = self.first.keys.get("epochs", self.first.summary["epochs"])
        done = sorted({run.summary["epochs"] for run in self.runs})
        return str(planned) if self.finished else f"{'/'.join(map(str, done))} of {planned}"

    @property
    def seeds(self) -> list[Any]:
        return sorted({run.seed for run in self.runs}, key=str)

    def estimate(self, figure: Callable[[dict[str, Any]], float | None]) -> Estimate:
        """Mean over seeds of a figure of the summary. Repeats of one seed are averaged first: they are one sample."""
        by_seed = defaultdict(list)
        for run in self.runs:
            by_seed[run.seed].append(figure(run.summary))
        return estimate(estimate(values).mean for values in by_seed.values())


def load(paths: Iterable[str | Path]) -> tuple[list[Group], list[Path]]:
    """The runs at or below `paths`, grouped and named, in order of dataset, workers and label; and the folders of runs
    that have not finished an epoch. InputError where nothing is left to compare."""
    together: dict[str, list[Run]] = defaultdict(list)
    empty = []
    for path in find_runs(paths):
        run = Run(path)
        if run.trace.epochs.empty:
            empty.append(path)
        else:
            together[run.key()].append(run)
    if not together:
        raise InputError(f"no run has finished an epoch in {', '.join(map(str, empty))}; let one run longer")
    groups = [Group(sorted(runs, key=lambda run: str(run.seed))) for runs in together.values()]
    _name(groups)
    return sorted(groups, key=lambda g: (g.dataset, g.workers, g.label, g.partition, not g.finished)), empty


def _name(groups: list[Group]) -> None:
    """Give every group its dataset and label: two groups that differ in the config differ in what the table says."""
    common = _differing(groups, lambda key: not key.startswith(("system.", "dataset.", "partition.", "cluster.")))
    for group in groups:
        alike = [g for g in groups if g.first.name == group.first.name]
        # A cluster's figures go by its name, and concern the systems that read them.
        own = _differing(alike, lambda key: key.startswith("system.") or key == "cluster.name")
        knobs = [
            knob("cluster" if key == "cluster.name" else key.removeprefix("system."), group.first.keys[key])
            for key in own + common
            if key in group.first.keys
        ]
        group.label = " ".join([group.first.name, *knobs])
        graph = group.first.summary["dataset"]
        same_graph = [g for g in groups if g.first.summary["dataset"] == graph]
        telling = set(_differing(same_graph, lambda key: key.startswith("dataset.")))
        keys = group.first.keys
        telling |= {
            key for key, usual in (("dataset.scale", 1.0), ("dataset.split", "own")) if keys.get(key, usual) != usual
        }
        unsaid = {"dataset.name", "dataset.source"} | (set() if graph.startswith("twin/") else {"dataset.scale"})
        group.dataset = " ".join(
            [graph, *(knob(k.removeprefix("dataset."), keys[k]) for k in sorted(telling - unsaid) if k in keys)]
        )


def _differing(groups: list[Group], wanted: Callable[[str], bool]) -> list[str]:
    """Keys on whose value the groups do not agree, in the configs' order."""
    keys = dict.fromkeys(k for g in groups for k in g.first.keys if wanted(k) and k not in PLACE_KEYS | COLUMN_KEYS)
    absent = object()
    return [key for key in keys if len({repr(g.first.keys.get(key, absent)) for g in groups}) > 1]


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"system": {"bound": 1}} as {"system.bound": 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, name + ".") if isinstance(value, dict) else {name: value}
    return flat


def knob(key: str, value: Any) -> str:
    """`key=value` as one would type it."""
    if value is None or isinstance(value, bool):
        value = {None: "null", True: "true", False: "false"}[value]
    return f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
