"""Runs put side by side: which of them are repeats of one another, and what to call each."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.base.errors import InputError, choice
from harness.base.tables import natural
from harness.data.config import LABELS_PER_CLASS
from harness.results import consistency, resolved, track
from harness.results.identity import identity
from harness.results.reader import MISSHAPEN, Trace, find_runs
from harness.results.report.estimate import Estimate, estimate
from harness.results.schema import AGAIN, AUTO
from harness.results.summary import summarise

if TYPE_CHECKING:
    import pandas as pd

# Keys that have a column of their own or make the name itself. All other keys go into the name where they
# differ.
COLUMN_KEYS = {"seed", "workers", "epochs", "label", "system._target_"}
# Blocks of which most runs have none, so that having one tells runs apart.
OPTIONAL = {"straggler", "combine", "score", "labels"}
# A model of the tree goes by the one, a model of one's own by the other: here, too, lacking it tells.
MODEL = {"model.name", "model._target_"}
# A key that the name of a partition leaves out at this value: METIS cuts for one host unless told otherwise.
ONE_CUT = ("harness.data.partition.assign.Metis", "partition.hosts", 1)
# By track, the end of the graph's name: runs of `halobench tune` have tables of their own.
BESIDE = {"": "", track.TRIAL: " (trials)", **dict.fromkeys((track.FIXED, track.TUNED), " (fixed and tuned)")}
# Keys that a graph's name says where they have another value than this.
USUAL = {"dataset.scale": 1.0, "dataset.split": "own", "dataset.labels_per_class": LABELS_PER_CLASS}


class Run:
    """One run as the report sees it: finished, or as far as it has come. InputError where it is damaged."""

    def __init__(self, path: Path):
        self.trace, self.path = Trace(path), Path(path)
        consistency.check(self.trace)

    @cached_property
    def keys(self) -> dict[str, Any]:
        """The keys of its config that say what was run (`harness.results.identity`), in one level."""
        # Where no worker has begun nothing says whether the system is asynchronous: all its keys count.
        return flatten(identity(self.trace.config, (self.trace.resolved or {}).get("asynchronous", True)))

    @property
    def finished(self) -> bool:
        return self.trace.finished

    @property
    def seed(self) -> Any:
        return self.keys.get("seed")

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The run's summary, derived from the tables and not read from summary.json: what is shown follows
        from what was measured."""
        return summarise(self.trace)

    @property
    def name(self) -> str:
        """The run's label, or the NAME in `system=NAME` where it has none. A run of `halobench tune` has its
        track after the name."""
        return f"{self.system} {self.track}".rstrip()

    @property
    def system(self) -> str:
        """Its name without the track."""
        return track.of(self.keys)[0]

    @property
    def track(self) -> str:
        """The track of a run of `halobench tune` (`harness.results.track`); "" for any other run."""
        return track.of(self.keys)[1]

    @cached_property
    def attempts(self) -> list[dict[str, Any]]:
        """What the run ran on, attempt by attempt; none of a run that no worker has begun."""
        return self.trace.resolved["attempts"] if self.trace.resolved else []

    @cached_property
    def resolved(self) -> dict[str, str]:
        """What the keys that may be `auto` became; "A+B" where attempts differ."""
        if not self.attempts:
            return {}
        return {name: "+".join(dict.fromkeys(str(each[name]) for each in self.attempts)) for name in AUTO}

    @cached_property
    def machine(self) -> str:
        """The machine that the run ran on; "A, then B" where the run went on on another."""
        machines = dict.fromkeys(each["machine"] for each in self.attempts if "machine" in each)
        return ", then ".join(machines) or resolved.machine(self.trace.environment)

    @cached_property
    def content(self) -> str:
        return content(self.trace.graph)

    @property
    def code(self) -> str:
        """A hash of the code that computed the run (`harness.base.code.code_of`); the revision of the
        repository where the trace has no hash."""
        codes = dict.fromkeys(str(each["code"]) for each in self.attempts if each.get("code"))
        return "+".join(codes) or f"revision {self.trace.environment.get('revision')}"

    @property
    def role(self) -> str:
        return resolved.role(self.trace.resolved, self.keys)

    @property
    def combine(self) -> str:
        """How gradients became a step, with its knobs, whether the config or the system chose it; "" where
        the trace does not say."""
        return str((self.trace.resolved or {}).get("combine", ""))

    def key(self) -> str:
        """A text that is equal for repeats of a run: the config without seed and places, what `auto` became,
        what the graph was made of, the machine, and whether the run has finished."""
        same = {k: v for k, v in self.keys.items() if k != "seed"}
        found = [same, self.resolved, self.content, self.machine, self.finished]
        return json.dumps(found, sort_keys=True, default=str)


def content(graph: dict[str, Any]) -> str:
    """A hash of what a graph (`Trace.graph`) was made of: the contents of its raw files, and the generator of
    a twin. A file of the same name with other contents changes it. "" where the trace does not say."""
    files = {
        name: {key: value for key, value in known.items() if key != "changed_ns"}
        for name, known in graph.get("files", {}).items()
    }
    made = files, graph.get("generator")
    said = json.dumps(made, sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()[:8] if any(made) else ""


@dataclass
class Group:
    """Runs that differ in nothing but their seed.

    runs       at least one
    dataset    the graph's name and what is unusual about it; for a twin it begins with "twin/"
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
    def more_steps(self) -> str:
        """The end of the label: how many optimiser steps an epoch has, "" where it has one."""
        steps = self.first.trace.steps
        return f" ({steps} steps per epoch)" if steps > 1 else ""

    @property
    def clock(self) -> str:
        return str(self.first.summary["clock"])

    @property
    def workers(self) -> int:
        return int(self.first.keys.get("workers", self.first.summary["workers"]))

    @property
    def partition(self) -> str:
        """The partitioner's class in small letters, and its keys that are not null."""
        target = str(self.first.keys.get("partition._target_", "-"))
        rest = [
            knob(k.removeprefix("partition."), v)
            for k, v in sorted(self.first.keys.items())
            if k.startswith("partition.") and k != "partition._target_" and v is not None
            if (target, k, v) != ONE_CUT
        ]
        name = target.rpartition(".")[2].lower()
        return " ".join([name, *rest])

    @property
    def epochs(self) -> str:
        """The planned number of epochs; "DONE of PLANNED" where runs are unfinished or ended at another."""
        planned = self.first.keys.get("epochs", self.first.summary["epochs"])
        done = sorted({run.summary["epochs"] for run in self.runs})
        whole = self.finished and done == [planned]
        return str(planned) if whole else f"{'/'.join(map(str, done))} of {planned}"

    @property
    def diverged(self) -> dict[Any, int]:
        """By seed of the runs that diverged, the first epoch (0-based) with a loss or logits not finite."""
        return {run.seed: run.summary["diverged"] for run in self.runs if run.summary["diverged"] is not None}

    def by_seed(self, value: Callable[[dict[str, Any]], float | None]) -> dict[Any, Estimate]:
        """A value of the summary by seed, ascending; repeats of one seed are averaged: one sample."""
        together: dict[Any, list[float | None]] = defaultdict(list)
        for run in self.runs:
            together[run.seed].append(value(run.summary))
        return {seed: estimate(together[seed]) for seed in self.seeds}

    @property
    def seeds(self) -> list[Any]:
        """The seeds of the runs, each once, ascending."""
        return sorted(
            {run.seed for run in self.runs},
            key=lambda seed: (isinstance(seed, str), seed if seed is not None else -1),
        )

    def estimate(self, value: Callable[[dict[str, Any]], float | None]) -> Estimate:
        """Mean over seeds of a value of the summary."""
        return estimate(each.mean for each in self.by_seed(value).values())


def means(table: pd.DataFrame, names: Sequence[str]) -> dict[str, float | None]:
    """By name, the mean of a metric over layers, workers and all epochs but the first; None where the run has
    no metric of this name.

    table   the run's metrics
    """
    warm = table[table["epoch"] >= min(1, table["epoch"].max())]
    known = warm.groupby("name")["value"].mean().to_dict()
    return {name: known.get(name) for name in names}


def load(
    paths: Iterable[str | Path],
    x: str | None = None,
    metrics: Sequence[str] = (),
    read: Callable[[Path], Run] | None = None,
) -> tuple[list[Group], list[Path]]:
    """The runs at or below `paths`, grouped and named, in order of dataset, workers and label; and the
    folders of runs that have not finished an epoch. A damaged folder is left out and named on stderr. Trials
    of `halobench tune` are left out where there are other runs. InputError where nothing is left to compare.

    x         a key on the axis of a picture, which names therefore leave out
    metrics   names of metrics whose `means` are put into the summaries; InputError for one that no run has
    read      what reads the run of a folder; None: `Run`
    """
    together: dict[str, list[Run]] = defaultdict(list)
    empty, damaged = [], []
    recorded: set[str] = set()
    for path in track.without_trials(find_runs(paths)):
        try:
            run = (read or Run)(path)
            if not run.finished and run.trace.epochs.empty:
                empty.append(path)
            elif run.summary:
                # Spans take most of a run's memory, and only the summary reads them.
                run.trace.forget("spans")
                if metrics:
                    run.summary["metrics"] = means(run.trace.metrics, metrics)
                    recorded |= set(run.trace.metrics["name"])
                together[run.key()].append(run)
        except InputError as error:
            damaged.append(str(error))
        except MISSHAPEN as error:
            damaged.append(f"{path} is damaged ({type(error).__name__}: {error}); {AGAIN}")
    if damaged and not together and not empty:
        raise InputError(damaged[0])
    for said in damaged:
        print(f"left out: {said}", file=sys.stderr)
    if not together:
        raise InputError(f"no run has finished an epoch in {', '.join(map(str, empty))}; let one run longer")
    for name in metrics:
        choice("--metric", name, sorted(recorded) or ["nothing: no run here records any"])
    groups = [Group(sorted(runs, key=lambda run: natural(run.seed))) for runs in together.values()]
    _name(groups, x)
    order = attrgetter("dataset", "workers", "label", "partition")
    return sorted(groups, key=lambda g: (*map(natural, order(g)), not g.finished)), empty


def among(groups: Iterable[Group]) -> list[Group]:
    """Copies of the groups, with names that say only what tells these groups apart."""
    copies = [replace(group) for group in groups]
    _name(copies, None)
    return copies


def _name(groups: list[Group], x: str | None) -> None:
    """Give every group its dataset and label, so that a table tells apart any two groups on one graph that
    differ in the config or in what they ran on. `x` is left out, as in `load`."""
    by_graph: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in groups:
        by_graph[group.first.summary["dataset"], BESIDE[group.first.track]].append(group)
    for (graph, beside), members in by_graph.items():
        common = _differing(
            members,
            lambda key: key != x and not key.startswith(("system.", "dataset.", "partition.", "cluster.")),
        )
        telling = set(_differing(members, lambda key: key.startswith("dataset.")))
        for group in members:
            alike = [g for g in members if g.first.system == group.first.system]
            # The numbers of a cluster go by the cluster's name, and matter only to systems that read them.
            own = _differing(
                alike, lambda key: key != x and (key.startswith("system.") or key == "cluster.name")
            )
            keys = group.first.keys
            knobs = [knob("cluster" if key == "cluster.name" else key.removeprefix("system."), keys[key])
                     for key in own + common if key in keys and key != x]  # fmt: skip
            name = group.first.name
            if len({g.first.keys.get("system._target_") for g in alike}) > 1:
                name += "." + str(keys.get("system._target_")).rpartition(".")[2]
            group.label = " ".join([name, *knobs, *_ran_on(group, members)])
            group.label += group.more_steps
            unusual = {key for key, usual in USUAL.items() if keys.get(key, usual) != usual}
            unsaid = {"dataset.name", "dataset.source", "dataset._target_", x} | (
                set() if graph.startswith("twin/") else {"dataset.scale"}
            )
            said = sorted((telling | unusual) - unsaid)
            group.dataset = " ".join(
                [graph, *(knob(k.removeprefix("dataset."), keys[k]) for k in said if k in keys)]
            )
            group.dataset += beside
    contents: dict[str, set[str]] = defaultdict(set)
    for group in groups:
        contents[group.dataset].add(group.first.content)
    for group in groups:
        if len(contents[group.dataset]) > 1:
            group.dataset += f" (content {group.first.content or 'unknown'})"
    # Groups that still have one name were run by versions of this program that do not have the same keys.
    told = [(*_shown(group), repr(group.first.keys.get(x) if x else None)) for group in groups]
    shown = Counter(told)
    for group, words in zip(groups, told):
        if shown[words] == 1:
            continue
        group.label += f" (code {group.first.code})"


# What a table says of a group beside what was measured.
_shown = attrgetter("dataset", "label", "workers", "partition", "epochs", "finished", "first.machine")


def _ran_on(group: Group, members: list[Group]) -> list[str]:
    """What a key that may be `auto` became, where groups with one value of it ran on different things."""
    told = []
    for name, value in group.first.resolved.items():
        asked = [
            g
            for g in members
            if g.first.keys.get(name) == group.first.keys.get(name) and g.workers == group.workers
        ]
        if len({g.first.resolved.get(name) for g in asked if g.first.resolved}) > 1:
            told.append(f"({name} {value})")
    return told


def _differing(groups: list[Group], wanted: Callable[[str], bool]) -> list[str]:
    """The `wanted` keys in which groups differ, without those that have a column of their own."""
    found = telling([group.first.keys for group in groups])
    return [key for key in found if wanted(key) and key not in COLUMN_KEYS]


def telling(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose value is not the same in all configs that have them, in the order of the configs. A key of
    an OPTIONAL block, or of MODEL, differs also where some configs lack it."""
    found = []
    for key in dict.fromkeys(key for config in configs for key in config):
        values = [config[key] for config in configs if key in config]
        lacking = len(values) < len(configs) and (key.partition(".")[0] in OPTIONAL or key in MODEL)
        if lacking or len({repr(value) for value in values}) > 1:
            found.append(key)
    return found


def flatten(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"system": {"bound": 1}} as {"system.bound": 1}."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        flat |= flatten(value, name + ".") if isinstance(value, dict) else {name: value}
    return flat


def knob(key: str, value: Any) -> str:
    """`key=value` as one would type it; a class by its name, as `optimiser=sgd`."""
    return f"{key.removesuffix('._target_')}={typed_value(key, value)}"


def typed_value(key: str, value: Any) -> str:
    """The value of a key as one would type it."""
    if key.endswith("._target_"):
        return str(value).rpartition(".")[2].lower()
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else f"{value}"
