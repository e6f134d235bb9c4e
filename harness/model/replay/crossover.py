"""Which system is fastest over bandwidth and latency of one kind of link, and where each pair crosses.

Fastest is the shortest epoch, or, with `reaches`, the least time to a score on the validation vertices. Every
run is replayed at each point of a grid. Where the faster of two systems changes between neighbouring
bandwidths, bisection finds the bandwidth at which both take the same time, to 1 %.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.base import tables
from harness.base.errors import InputError, choice
from harness.base.terminal import counted
from harness.base.words import key_of
from harness.core.cluster import Cluster, Device
from harness.model.replay.platform import devices_of
from harness.model.replay.program import Begin, Program
from harness.model.replay.settings import Replayer, refused_spans
from harness.model.replay.times import first_epoch, times_of
from harness.results.reader import Trace
from harness.results.report.groups import Group, Run
from harness.results.report.style import STYLE, row_of, save, strokes_of, title, verbatim
from harness.results.rounds import Rounds, epochs_of_run

POINTS = 1000  # most of an axis
KEYS: Mapping[str, Any] = {
    "link": None,
    "gbytes_per_s": "0.01:100:13",
    "latency_us": "1:1000:4",
    "epochs": "10",
    "reaches": None,
}
LINKS = ("between", "inside", "bridge")
NEAR = 1.01  # the ratio of bandwidths at which bisection ends


@dataclass(frozen=True)
class Grid:
    """Where systems are compared.

    link         the kind of link that is varied; None: between hosts where workers are on several
    bandwidths   10^9 bytes per second, ascending
    latencies    microseconds, ascending
    epochs       of each run that are replayed, after its first
    reaches      None: epochs are compared. Else the time until a run has this score on its validation
                 vertices, in percent: "81.5", or "99%" of the best that exact training has among the runs
    """

    link: str | None
    bandwidths: list[float]
    latencies: list[float]
    epochs: int
    reaches: str | None = None

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Grid:
        """The grid of words of KEYS. InputError for a value that cannot be used."""
        given = {**KEYS, **words}
        if given["link"] is not None:
            choice("link", given["link"], LINKS)
        if not (given["epochs"].isdecimal() and int(given["epochs"])):
            raise InputError(f"epochs={given['epochs']} is not a number of epochs: give epochs=N")
        bandwidths, latencies = (_range(key, given[key]) for key in ("gbytes_per_s", "latency_us"))
        return cls(given["link"], bandwidths, latencies, int(given["epochs"]), given["reaches"])


def _range(key: str, given: str) -> list[float]:
    """LOW:HIGH:POINTS, spaced evenly on a logarithmic axis."""
    try:
        *ends, count = given.split(":")
        (low, high), points = map(float, ends), int(count)
        if not (0 < low < high < math.inf and 2 <= points <= POINTS):
            raise ValueError
        found = [float(f"{value:.9g}") for value in np.geomspace(low, high, points)]
        if len(set(found)) < len(found):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{key}={given} is no range: give LOW:HIGH:POINTS, as {KEYS[key]}, with HIGH above LOW and 2 to"
            f" {POINTS} points that differ"
        ) from None
    return found


@dataclass
class Map:
    """The result of a search.

    epochs      the fewest and the most epochs of a run after its first that a mean is taken over; of runs
                with one epoch 0: that one is taken
    seconds     a column per system, by name: an epoch, or the time to the score `target`; a row by latency_us
                and gbytes_per_s
    crossings   where two systems take the same time: (latency in us, the faster system below, the faster one
                above, gbytes_per_s)
    target      in percent; None: epochs are compared
    never       of each system that is not compared, since some run of it does not reach the target, the best
                score of the run that is furthest from it
    """

    grid: Grid
    link: str
    cluster: str
    groups: list[Group]
    epochs: tuple[int, int]
    seconds: pd.DataFrame
    crossings: list[tuple[float, str, str, float]]
    target: float | None
    never: dict[str, float]

    @property
    def fastest(self) -> pd.Series:
        """The fastest system at each point; of equally fast ones the first by name."""
        return self.seconds.idxmin(axis=1)

    @property
    def means(self) -> str:
        """Over which epochs means are taken, in words."""
        least, most = self.epochs
        if not most:
            return "the one epoch of each run"
        return f"means over {f'{least} to ' * (least < most)}{counted(most, 'epoch')} after the first"


def search(groups: Sequence[Group], replayer: Replayer, grid: Grid) -> Map:
    """Replay all groups at all points, and find where pairs of systems cross. InputError where the groups are
    not of one graph and number of workers, are one system only, or fewer than two of them reach the score."""
    if replayer.described is None:
        raise InputError("crossover varies the links of a described cluster: name one, as cluster=NAME")
    if replayer.settings.fit != "none":
        raise InputError(
            f"crossover varies the rates of links that fit={replayer.settings.fit} gives: leave fit out"
        )
    if len(groups) < 2:
        raise InputError(f"{groups[0].label} is the only system given: give runs of two or more")
    for what, values in (
        ("graphs", {group.dataset for group in groups}),
        ("numbers of workers", {str(group.workers) for group in groups}),
    ):
        if len(values) > 1:
            raise InputError(
                f"the runs are of several {what} ({', '.join(sorted(values))}): give runs of one"
            )
    names = [group.label for group in groups]
    if len(set(names)) < len(names):
        raise InputError(
            f"two of the rows are called {max(names, key=names.count)}: give runs of one kind each"
        )
    # What is varied and what is replayed: the kind of link, the epochs until the target (systems that never
    # reach it are left out), and each run's program, cut to the epochs that are replayed.
    cluster = replayer.described
    devices = devices_of(cluster, groups[0].workers, replayer.settings.per_host)
    several = len({device.host for device in devices}) > 1
    link = grid.link or ("between" if several else "inside")
    varied = link, f"{link}.gbytes_per_s", f"{link}.latency_us"
    if given := [change for change in replayer.changes if key_of(change) in varied]:
        raise InputError(
            f"crossover varies the bandwidth and latency of links {link}: leave cluster.{given[0]} out, or"
            " vary other links by link=KIND"
        )
    target = None if grid.reaches is None else _target(grid.reaches, groups)
    needed, never = ({}, {}) if target is None else _epochs_to(target, groups, cluster.name, devices)
    programs = {
        group.label: [_program(run.trace, replayer, grid.epochs) for run in group.runs]
        for group in groups
        if group.label not in never
    }
    replayed = {len(program.epochs) - 1 for own in programs.values() for program in own}

    def seconds(name: str, latency: float, bandwidth: float) -> float:
        """An epoch of a system, or all until the score, mean over its runs."""
        changed = with_link(cluster, link, bandwidth, latency)
        made = [replayer.on(changed, program) for program in programs[name]]
        each = [times_of(timeline).epoch for timeline in made]
        if target is not None:
            first = map(first_epoch, made)
            each = [a + (epochs - 1) * epoch for a, epochs, epoch in zip(first, needed[name], each)]
        return float(np.mean(each))

    # Every system at every point of the grid.
    points = [*itertools.product(grid.latencies, grid.bandwidths)]
    found = pd.DataFrame(
        {name: [seconds(name, *point) for point in points] for name in sorted(programs)},
        index=pd.MultiIndex.from_tuples(points, names=["latency_us", "gbytes_per_s"]),
    )
    if (found == found.iloc[0]).all(axis=None):
        raise InputError(
            f"no time depends on links {link} on cluster={replayer.display_name}, so no message crosses them:"
            " give per_host=N, or vary other links by link=KIND"
        )
    # Where the faster of two systems changes between neighbouring bandwidths, bisect (on the logarithm) for
    # the bandwidth at which both take the same time.
    crossings = []
    for latency, (a, b) in itertools.product(grid.latencies, itertools.combinations(map(str, found), 2)):
        difference = (found[a] - found[b])[latency].to_numpy()
        for j in np.flatnonzero(np.sign(difference[:-1]) * np.sign(difference[1:]) < 0):
            low, high = grid.bandwidths[j], grid.bandwidths[j + 1]
            while high / low > NEAR:
                middle = math.sqrt(low * high)
                same = (seconds(a, latency, middle) - seconds(b, latency, middle)) * difference[j] > 0
                low, high = (middle, high) if same else (low, middle)
            below, above = (a, b) if difference[j] < 0 else (b, a)
            crossings.append((latency, below, above, math.sqrt(low * high)))
    epochs = min(replayed), max(replayed)
    return Map(grid, link, replayer.display_name, list(groups), epochs, found, crossings, target, never)


def _program(trace: Trace, replayer: Replayer, epochs: int) -> Program:
    """The program of a run up to the end of so many epochs after its first."""
    with refused_spans(trace):
        return first_epochs(replayer.program(trace), epochs + 1)


def _target(reaches: str, groups: Sequence[Group]) -> float:
    """The score in percent that `reaches` asks for. InputError where it is no score."""
    number, share, rest = reaches.partition("%")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (0 < value <= 100) or rest:
        raise InputError(
            f'reaches="{reaches}" is no score: give one in percent, as reaches=81.5, or reaches=99% of the'
            " best of exact training"
        )
    if not share:
        return value
    exact = [group for group in groups if group.first.role == "reference"]
    if len(exact) != 1:
        raise InputError(
            f"reaches={reaches} is a share of what exact training has, and {len(exact)} of the rows are exact"
            " training: give the runs of one, or a score, as reaches=81.5"
        )
    return value / 100 * float(np.mean([_best(run) for run in exact[0].runs]))


def _validated(run: Run) -> pd.Series:
    """A run's validation score in percent by epoch, counted from 1. InputError where it has none."""
    by_epoch = epochs_of_run(run.trace.epochs).groupby("epoch")[f"val_{run.summary['score']}"]
    found: pd.Series = 100 * by_epoch.first().dropna()
    if found.empty:
        raise InputError(f"{run.path} has no validation score, by which reaches goes: leave reaches out")
    return found.rename(index=lambda epoch: epoch + 1)


def _best(run: Run) -> float:
    return float(_validated(run).max())


def _check_scores(trace: Trace, cluster: str, devices: Sequence[Device]) -> None:
    """InputError where a run's scores would be others on a cluster: those of an asynchronous run, which
    depends on the order of its workers' updates, and of one that went by its own workers' devices
    (`Traits.devices`), unless its workers' devices there are the same."""
    instead = "leave it out, or leave out reaches"
    if Rounds.read(trace).asynchronous:
        raise InputError(
            f"{trace.run_dir} is asynchronous: where updates come in another order, losses and scores are"
            f" others, so a replay has its seconds alone; {instead}"
        )
    if not (trace.resolved or {}).get("devices"):
        return
    own = trace.config["cluster"]
    if [Device(**each) for each in own.get("devices") or []][: len(devices)] != devices:
        raise InputError(
            f"{trace.run_dir} went by the devices of cluster={own['name']}: with those of"
            f" cluster={cluster} losses and scores are others, so a replay has its seconds alone;"
            f" {instead}, or run it with that cluster"
        )


def _epochs_to(
    target: float, groups: Sequence[Group], cluster: str, devices: Sequence[Device]
) -> tuple[dict[str, list[int]], dict[str, float]]:
    """By system how many epochs each of its runs takes to the score; and of each system of which some run
    does not come to it, the best score of the run that is furthest from it."""
    needed, never = {}, {}
    for group in groups:
        found = []
        for run in group.runs:
            _check_scores(run.trace, cluster, devices)
            scores = _validated(run)
            found += scores.index[scores >= target].tolist()[:1]
        if len(found) == len(group.runs):
            needed[group.label] = found
        else:
            never[group.label] = min(_best(run) for run in group.runs)
    if len(needed) < 2:
        told = ", ".join(f"{name} {best:.2f}" for name, best in never.items())
        raise InputError(
            f"a score of {target:.2f} % on validation vertices is reached by all runs of {len(needed)} of"
            f" {len(groups)} systems (best of the others: {told}): give a lower reaches, or longer runs"
        )
    return needed, never


def with_link(cluster: Cluster, kind: str, gbytes_per_s: float, latency_us: float) -> Cluster:
    """The cluster with another bandwidth and latency of one kind of link. The rate of broadcasts changes as
    the bandwidth does."""
    link = getattr(cluster, kind)
    cast = link.broadcast_gbytes_per_s
    if cast is not None and link.gbytes_per_s is not None:
        cast *= gbytes_per_s / link.gbytes_per_s
    link = dataclasses.replace(
        link, gbytes_per_s=gbytes_per_s, broadcast_gbytes_per_s=cast, latency_us=latency_us
    )
    return dataclasses.replace(cluster, **{kind: link})


def first_epochs(program: Program, count: int) -> Program:
    """The program up to the end of its first `count` epochs. An asynchronous run keeps its workers' first
    `count` rounds, which are repeated until the server has all updates (`harness.model.replay.rounds`)."""
    kept = []
    for steps in program.steps:
        begins = [place for place, step in enumerate(steps) if isinstance(step, Begin)]
        kept.append(steps[: begins[count]] if count < len(begins) else steps)
    epochs = program.epochs[:count]
    updates = None if program.updates is None else len(epochs) * program.workers
    return replace(program, steps=kept, epochs=epochs, updates=updates)


def rows(found: Map) -> pd.DataFrame:
    """A row per system, latency and bandwidth."""
    name = "epoch_s" if found.target is None else "seconds_to_score"
    table = found.seconds.melt(var_name="label", value_name=name, ignore_index=False).reset_index()
    fastest = table["label"] == [*found.fastest] * len(found.seconds.columns)
    table = table.assign(
        dataset=found.groups[0].dataset, cluster=found.cluster, modelled=True, fastest=fastest
    )
    heads = ["label", "dataset", "cluster", "modelled", "latency_us", "gbytes_per_s", name, "fastest"]
    return table[heads]


def text(found: Map) -> str:
    """The fastest system at each point, and the bandwidths at which pairs cross."""
    whole, asked = "", "the fastest system"
    if found.target is not None:
        whole = ", the first and as many as it takes counted"
        asked = f"the first system at {found.target:.2f} % on validation vertices"
    heads = [f"{found.link} GB/s", *(f"at {latency:g} us" for latency in found.grid.latencies)]
    fastest = found.fastest.unstack("latency_us")
    parts = [
        f"{found.groups[0].dataset}, {counted(found.groups[0].workers, 'worker')}, modelled on"
        f" cluster={found.cluster} over the bandwidth and latency of its links {found.link};"
        f" {found.means} (epochs=N takes others){whole}",
        f"{asked}:\n"
        + tables.text(heads, ([f"{at:.3g}", *names] for at, *names in fastest.itertuples()), heads),
    ]
    if found.never:
        told = ", ".join(f"{name} ({best:.2f} %)" for name, best in found.never.items())
        parts.append(f"left out, since a run of theirs never gets there (that run's best): {told}")
    if found.crossings:
        heads = ["latency us", "faster below", "faster above", f"{found.link} GB/s"]
        crossed = [(f"{us:g}", below, above, f"{rate:.3g}") for us, below, above, rate in found.crossings]
        parts.append("where pairs cross:\n" + tables.text(heads, crossed, heads))
    else:
        parts.append("no pair crosses inside this range")
    return "\n\n".join(parts)


def draw(found: Map, folder: Path) -> Path:
    """Epoch time over bandwidth, a panel per latency and a line per system."""
    grid = found.grid
    folder.mkdir(parents=True, exist_ok=True)
    by_row = strokes_of(found.groups)
    strokes = {group.label: {**by_row[row_of(group)], "marker": ""} for group in found.groups}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * len(grid.latencies) + 0.8, 4.2), layout="constrained")
        axes = figure.subplots(1, len(grid.latencies), sharey=True, squeeze=False)[0]
        for latency, ax in zip(grid.latencies, axes):
            for name in map(str, found.seconds):
                values = found.seconds[name].loc[latency]
                shown = 1e3 * values if found.target is None else values
                ax.plot(grid.bandwidths, shown, label=verbatim(name), **strokes[name])
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_title(f"latency {latency:g} µs", fontsize=10)
            ax.set_xlabel(f"{found.link}: GB/s")
        axes[0].set_ylabel("epoch, ms (modelled)" if found.target is None else "seconds to it (modelled)")
        lines = axes[-1].get_legend_handles_labels()
        figure.legend(*lines, loc="outside right upper", fontsize=8.5, frameon=False)
        told = f"modelled on cluster={found.cluster}, {found.means}"
        heading = "The fastest system by network"
        if found.target is not None:
            heading = "The first at a score by network"
            told = f"{found.target:.2f} % on validation vertices, {told}"
        title(figure, heading, found.groups[0].dataset, found.groups, "", told)
        reached = "" if found.target is None else f"-{found.target:.2f}".replace(".", "_")
        return save(figure, folder / f"crossover-{found.link}{reached}.png")
