"""Checks whether a bundle can be what its runs did, and says in a sentence each what is wrong with it.

1. every file is what its digest says, tables agree with each other, and summaries follow from tables;
2. every row has the same seeds, at least three; exact training and the control are there at its setting;
3. the graph, the partition and the code are those of this checkout;
4. the bytes of the first epochs are those of a dry run (`harness.model.plan`), which trains nothing;
5. a share of the runs is drawn and trained again: bytes, losses and scores agree with those told."""

import contextlib
import json
import math
import os
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from harness.base.errors import InputError
from harness.base.scratch import scratch
from harness.base.target import ALLOW, TREE, is_trusted, untrusted
from harness.base.terminal import counted
from harness.core.cluster import Device
from harness.data.dataset import identity_of
from harness.data.partition import io
from harness.model.plan.sized import traffic
from harness.results.reader import MISSHAPEN, Trace
from harness.results.report.columns import LEADING
from harness.results.report.estimate import estimate
from harness.results.report.groups import content
from harness.results.summary import graph_name
from harness.run import config as configs
from harness.run import runner
from harness.run.prepare import shards_of
from harness.run.runner import Places
from harness.submissions.bundle import CODE, Bundle, Submitted, digest

SEEDS = 3  # fewer have no interval to speak of
# How far a run that is made again may differ:
POINTS = 2.0  # at most, in the score (%)
LOSS = 1e-3  # in the loss of the first epochs, relative: rounding errors have not grown by then
FIRST = 3  # epochs whose losses are compared
VALUES = 0.02  # in the bytes sent, relative, since bytes may depend on values

Say = Callable[[str], object]


def problems(bundle: Bundle, places: Places, share: float, draw: int, say: Say) -> Iterator[str]:
    """A sentence for each thing that is wrong with a bundle. Raises InputError where it cannot be checked
    here: a graph of its runs is missing, or nobody allowed the code that they name.

    places   where the graph is found, and where shards and the runs that are made again go
    share    of the runs that are made again, at least one where it is above 0
    draw     the seed by which they are drawn
    say      is told which run is being checked
    """
    found = list(quick(bundle))
    yield from found
    if found:
        return
    with scratch() as folder, _importable(bundle, folder):
        runs, wrong = _here(bundle, places)
        yield from wrong
        for name, run in runs.items():
            say(f"{name}: graph, partition and bytes")
            yield from _of_partition(bundle.runs[name], run)
        for name in drawn(runs, share, draw):
            say(f"{name}: made again")
            yield from _made_again(bundle, name, runs[name], places)


@contextlib.contextmanager
def _importable(bundle: Bundle, folder: Path) -> Iterator[None]:
    """Within this, modules of the bundle's own code that HALOBENCH_ALLOW names can be imported, here and in
    the processes of runs. Only they are copied to `folder`, so no other file of the bundle can be imported or
    take the place of a module of Python's."""
    for path in sorted((bundle.folder / CODE).glob("*.py")):
        if is_trusted(f"{path.stem}."):
            shutil.copyfile(path, folder / path.name)
    before = os.environ.get("PYTHONPATH")
    sys.path.append(str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [before, str(folder)]))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        os.environ["PYTHONPATH"] = before or ""


def drawn(names: Collection[str], share: float, draw: int) -> list[str]:
    """A share of the names, rounded up, at random: the same ones for the same `draw`."""
    return random.Random(draw).sample(sorted(names), math.ceil(share * len(names)))


def quick(bundle: Bundle) -> list[str]:
    """What is wrong with a bundle's files, or, where they are sound, with its rows. Nothing is run for it."""
    return list(_of_files(bundle)) or list(of_rules(bundle))


def _of_files(bundle: Bundle) -> Iterator[str]:
    for name, run in bundle.runs.items():
        if digest(run.path / "summary.json") != bundle.head.runs[name]:
            yield f"{run.path}/summary.json is not the one that the bundle was made of"
            continue
        try:
            code = bundle.folder / CODE / f"{run.module}.py"
            if run.module not in TREE and not code.is_file():
                yield f"{code}, which {name} ran, is missing: make the bundle again with --code"
                continue
            run.check()
        except InputError as error:
            yield str(error)
        except MISSHAPEN as error:
            yield f"{run.path} is damaged ({type(error).__name__}: {error})"


def of_rules(bundle: Bundle) -> Iterator[str]:
    """Where a bundle's rows break the rules: seeds, and exact training and the control beside each row."""
    every = sorted({seed for row in bundle.rows for seed in row.seeds}, key=str)
    if len(every) < SEEDS:
        yield f"the bundle has {counted(len(every), 'seed')}: give at least {SEEDS}"
    for rows in bundle.by_setting.values():
        roles = {row.first.role for row in rows}
        for row in rows:
            name = f"{row.label} on {graph_name(row.first.trace)}"
            lacking = [str(seed) for seed in every if seed not in row.seeds]
            if lacking:
                yield f"{name} lacks seed {', '.join(lacking)}, which other rows have"
            if len(row.seeds) < len(row.runs):
                yield f"{name} has a seed twice"
            for role, what in (("reference", "exact training"), ("control", "the control")):
                if role not in roles:
                    yield f"{name} has no runs of {what} at its setting beside it"


def _here(bundle: Bundle, places: Places) -> tuple[dict[str, configs.Run], list[str]]:
    """The runs as this checkout would make them, in `places`; and a sentence for each that cannot be made or
    was computed otherwise. Raises InputError where a run's code is not allowed or its graph is missing."""
    made, wrong, barred = {}, [], []
    foreign: set[str] = set()  # modules that nobody allowed, of the runs in `barred`
    absent: dict[str, list[str]] = defaultdict(list)  # runs by what to do about their graph
    older: dict[str, list[str]] = defaultdict(list)  # runs by what else computed them
    where = {"results": str(places.results), "cache": str(places.cache), "data_dir": str(places.data_dir),
             "run_dir": None, "launch": "local", "progress": False, "fresh": False}  # fmt: skip
    for name, run in bundle.runs.items():
        try:
            config = configs.stored(run.path)
            if modules := untrusted(config):
                foreign.update(modules)
                barred.append(name)
            else:
                made[name] = configs.check({**config, **where})
        except InputError as error:
            wrong.append(f"{name} cannot be made again: {error}")
        if said := _of_graph(run, made.get(name), places):
            absent[said].append(name)
        if name not in made:
            continue
        # A system's own facts must be the same here, unless other code computed the run.
        if {str(each.get("code")) for each in run.attempts} == {made[name].code}:
            told = run.trace.resolved or {}
            wrong += [
                f"{name}/resolved.json says {key}={told.get(key)!r}; its system says {key}={value!r}"
                for key, value in made[name].facts.items()
                if told.get(key) != value
            ]
        else:
            mend = f"check with revision {run.trace.environment.get('revision')}"
            if run.module not in TREE:
                mend += f", or, where {run.module}.py has changed, make them again with stale=rerun"
            older[mend].append(name)
    wrong += [f"{_some(names)}: computed by other code than is here; {mend}" for mend, names in older.items()]
    lacks = [f"the graph of {_some(names)} ({says})" for says, names in absent.items()]
    if barred:
        lacks.append(
            f"leave to import the code of {_some(barred)} (read {bundle.folder / CODE}, and where you trust"
            f" it set {ALLOW}={','.join(sorted(foreign))} in the environment)"
        )
    if lacks:
        beside = f"; what is wrong already: {'; '.join(wrong)}" if wrong else ""
        raise InputError(
            f"{bundle.folder} cannot be checked here, which lacks {', and '.join(lacks)}{beside}"
        )
    return made, wrong


def _of_graph(run: Submitted, here: configs.Run | None, places: Places) -> str:
    """What to do so that a run's graph is here; "" where it is, or where that cannot be told.

    here   the run as this checkout would make it; None where its code is not allowed, or where it cannot be
           made"""
    if not run.own_graph:
        try:
            if here is not None:
                here.dataset.fingerprint(places.data_dir, run.seed)
        except InputError as error:
            return str(error)
        return ""
    path = Path(os.path.expanduser(run.keys["dataset.path"]))
    if not path.is_file():
        return f"copy its file to {path.absolute()}"
    known = run.trace.graph.get("files", {}).get(path.name, {})
    same = "sha256" not in known or known["sha256"] == identity_of(path).get("sha256")
    return "" if same else f"another file is at {path.absolute()}: put that of the runs there"


def _some(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} runs ({names[0]}, ...)"


def _of_partition(run: Submitted, here: configs.Run) -> Iterator[str]:
    """What differs from the graph and the partition that are made here, and from the bytes of a dry run."""
    name, workers = run.path.name, here.settings.workers
    try:
        folder, graph = shards_of(here)
    except InputError as error:
        yield f"{name} cannot be made here: {error}"
        return
    if run.content != content(graph):
        yield f"{name} was trained on a graph of other files, or another generator, than are here"
        return
    stats = json.loads((folder / "stats.json").read_text())
    differing = [key for key, value in stats.items() if run.trace.shards.get(key) != value]
    if differing:
        yield f"{name}/shards.json differs from the partition that is made here in {', '.join(differing)}"
        return
    described = here.cluster.with_devices(here.cluster.devices[:workers] or [Device()] * workers)
    shards = [io.load(folder, rank) for rank in range(workers)]
    place = "cpu" if here.settings.transport == "sockets" else "memory"
    sent = run.trace.comm.groupby("epoch")["bytes"].sum()
    # A run that stopped early, or diverged, has fewer epochs than were asked for.
    made = range(run.summary["epochs"])
    if len(made) < here.settings.epochs and not here.evaluate.patience and run.summary["diverged"] is None:
        yield f"{name} has {len(made)} of {here.settings.epochs} epochs and nothing that ended it"
        return
    for epoch, (least, most) in zip(made, traffic(here, shards, place, described)):
        told = int(sent.get(epoch, 0))
        if not least <= told <= most:
            bounds = f"{least}" if least == most else f"{least} to {most}"
            yield f"{name} says that epoch {epoch + 1} sent {told} bytes; a dry run sends {bounds}"
            return


def _made_again(bundle: Bundle, name: str, run: configs.Run, places: Places) -> Iterator[str]:
    try:
        runner.start(name, places, [run])
        again = Trace(run.directory)
    except InputError as error:
        yield f"{name} cannot be made again: {error}"
        return
    yield from _of_another(bundle, bundle.runs[name], again)


def _of_another(bundle: Bundle, run: Submitted, again: Trace) -> Iterator[str]:
    """What differs between a run and `again`, the same run made again."""
    name, told, found = run.path.name, run.summary, again.summary or {}
    if abs(told["bytes_total"] - found["bytes_total"]) > VALUES * found["bytes_total"]:
        yield f"{name} says that it sent {told['bytes_total']} bytes; made again {found['bytes_total']}"
    ours, theirs = (each.epochs.groupby("epoch")["loss"].first()[:FIRST] for each in (again, run.trace))
    if len(ours) != len(theirs) or not np.allclose(ours, theirs, rtol=LOSS, equal_nan=True):
        yield f"{name} has another loss in the first epochs than made again"
    row = next(each.runs for each in bundle.rows if run in each.runs)
    for at, column in zip(("best", "final"), LEADING[told["score"]]):
        value, other = column.value(told), column.value(found)
        if value is None or other is None:  # not evaluated, no test vertices, or diverged
            if value is not other:
                whose = "made again" if value is None else "as told"
                yield f"{name} has a {at} test score {whose} alone"
            continue
        others = [column.value(each.summary) for each in row if each is not run]
        reach = min(estimate([*others, other]).half or POINTS, POINTS)
        if not abs(value - other) <= reach:
            yield (
                f"{name} says {value:.2f} ({at} test score); made again {other:.2f}, and at most {reach:.2f}"
                " may lie between"
            )
