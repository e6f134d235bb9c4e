"""Which system is fastest over bandwidth and latency of one kind of link, and where each pair crosses.

Every run is replayed at each point of a grid. Where the faster of two systems changes between neighbouring
bandwidths, bisection finds the bandwidth at which both take the same time, to 1 %.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from tabulate import tabulate

from harness.base.terminal import counted
from harness.check import InputError, at_least, choice, more_than
from harness.cluster.config import Cluster
from harness.replay.program import Begin, Program
from harness.replay.settings import Replayer
from harness.replay.times import times_of
from harness.report.groups import Group
from harness.report.style import STYLE, save, strokes_of, title, verbatim

KEYS: Mapping[str, Any] = {
    "link": None,
    "gbytes_per_s": "0.01:100:13",
    "latency_us": "1:1000:4",
    "epochs": "10",
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
    """

    link: str | None
    bandwidths: list[float]
    latencies: list[float]
    epochs: int

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Grid:
        if given["link"] is not None:
            choice("link", given["link"], LINKS)
        if not str(given["epochs"]).isdecimal():
            raise InputError(f"epochs={given['epochs']} is not a number of epochs: give epochs=N")
        epochs = int(given["epochs"])
        at_least("epochs", epochs, 1)
        bandwidths, latencies = (_range(key, given[key]) for key in ("gbytes_per_s", "latency_us"))
        return cls(given["link"], bandwidths, latencies, epochs)


def _range(key: str, given: object) -> list[float]:
    """LOW:HIGH:POINTS, spaced evenly on a logarithmic axis, or one number."""
    parts = str(given).split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 3) or not all(map(math.isfinite, numbers)):
        raise InputError(f"{key}={given} is no range: give LOW:HIGH:POINTS, as {KEYS[key]}, or a number")
    more_than(key, numbers[0], 0)
    if len(numbers) == 1:
        return numbers
    low, high, points = numbers[0], numbers[1], int(numbers[2])
    more_than(key, high, low)
    at_least(f"{key}'s points", points, 2)
    return [float(f"{value:.9g}") for value in np.geomspace(low, high, points)]


@dataclass(frozen=True)
class Crossing:
    """Below `gbytes_per_s` the one is faster, above it the other."""

    latency_us: float
    below: str
    above: str
    gbytes_per_s: float


@dataclass
class Map:
    """What came of it. seconds[name][i, j]: an epoch at latency i and bandwidth j."""

    grid: Grid
    link: str
    cluster: str
    dataset: str
    groups: list[Group]
    seconds: dict[str, np.ndarray]
    crossings: list[Crossing]

    @property
    def averaged(self) -> str:
        """Over what the seconds are means, for a text."""
        return f"means over {counted(self.grid.epochs, 'epoch')} after the first (epochs=N takes others)"

    def fastest(self, i: int, j: int) -> str:
        return min(self.seconds, key=lambda name: (self.seconds[name][i, j], name))


def search(groups: Sequence[Group], replayer: Replayer, grid: Grid) -> Map:
    """Replay all groups at all points. InputError where they are not of one graph and number of workers, or
    are one system only."""
    if replayer.described is None:
        raise InputError("crossover varies the links of a described cluster: name one, as cluster=NAME")
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
    workers = groups[0].workers
    several = len(set(_hosts(replayer, workers))) > 1
    link = grid.link or ("between" if several else "inside")
    programs = {
        group.label: [first_epochs(replayer.program(run.trace), grid.epochs + 1) for run in group.runs]
        for group in groups
    }

    def seconds(name: str, latency: float, bandwidth: float) -> float:
        """An epoch of a system, mean over its runs."""
        assert replayer.described is not None
        changed = with_link(replayer.described, link, bandwidth, latency)
        return float(np.mean([
            times_of(replayer.simulated(program, replayer.platform(workers, changed))).epoch
            for program in programs[name]
        ]))  # fmt: skip

    found = {
        name: np.array([[seconds(name, lat, band) for band in grid.bandwidths] for lat in grid.latencies])
        for name in names
    }
    crossings = []
    for (i, latency), (a, b) in itertools.product(
        enumerate(grid.latencies), itertools.combinations(sorted(names), 2)
    ):
        difference = found[a][i] - found[b][i]
        for j in np.flatnonzero(np.sign(difference[:-1]) * np.sign(difference[1:]) < 0):
            low, high = grid.bandwidths[j], grid.bandwidths[j + 1]
            while high / low > NEAR:
                middle = math.sqrt(low * high)
                same = (seconds(a, latency, middle) - seconds(b, latency, middle)) * difference[j] > 0
                low, high = (middle, high) if same else (low, middle)
            below, above = (a, b) if difference[j] < 0 else (b, a)
            crossings.append(Crossing(latency, below, above, math.sqrt(low * high)))
    return Map(grid, link, replayer.settings.cluster, groups[0].dataset, list(groups), found, crossings)


def _hosts(replayer: Replayer, workers: int) -> list[int]:
    assert replayer.described is not None
    # The varied link need not be described: any number will do to see where workers are.
    whole = replayer.described
    for kind in ("inside", "between"):
        if getattr(whole, kind).gbytes_per_s is None:
            whole = with_link(whole, kind, 1.0, 0.0)
    return replayer.platform(workers, whole).hosts


def with_link(cluster: Cluster, kind: str, gbytes_per_s: float, latency_us: float) -> Cluster:
    """The cluster with another bandwidth and latency of one kind of link."""
    link = dataclasses.replace(getattr(cluster, kind), gbytes_per_s=gbytes_per_s, latency_us=latency_us)
    return dataclasses.replace(cluster, **{kind: link})


def first_epochs(program: Program, count: int) -> Program:
    """The program up to the end of its first `count` epochs."""
    kept = []
    for steps in program.steps:
        begins = [place for place, step in enumerate(steps) if isinstance(step, Begin)]
        kept.append(steps[: begins[count]] if count < len(begins) else steps)
    return Program(kept, program.operations, program.epochs[:count])


def rows(found: Map) -> list[dict[str, Any]]:
    """A row per system, latency and bandwidth."""
    return [
        {
            "label": name,
            "dataset": found.dataset,
            "cluster": found.cluster,
            "modelled": True,
            "link": found.link,
            "latency_us": latency,
            "gbytes_per_s": bandwidth,
            "epoch_s": float(values[i, j]),
            "fastest": found.fastest(i, j) == name,
        }
        for name, values in found.seconds.items()
        for i, latency in enumerate(found.grid.latencies)
        for j, bandwidth in enumerate(found.grid.bandwidths)
    ]


def text(found: Map) -> str:
    """The fastest system at each point, and the bandwidths at which pairs cross."""
    grid = found.grid
    fastest = [
        [f"{bandwidth:.3g}", *(found.fastest(i, j) for i in range(len(grid.latencies)))]
        for j, bandwidth in enumerate(grid.bandwidths)
    ]
    heads = [f"{found.link} GB/s", *(f"at {latency:g} us" for latency in grid.latencies)]
    parts = [
        f"{found.dataset}, {counted(found.groups[0].workers, 'worker')}, modelled on cluster={found.cluster}"
        f" over the bandwidth and latency of its links {found.link}; {found.averaged}",
        "the fastest system:\n" + tabulate(fastest, heads, disable_numparse=True),
    ]
    if found.crossings:
        crossed = [[f"{c.latency_us:g}", c.below, c.above, f"{c.gbytes_per_s:.3g}"] for c in found.crossings]
        crossed_heads = ["latency us", "faster below", "faster above", f"{found.link} GB/s"]
        parts.append("where pairs cross:\n" + tabulate(crossed, crossed_heads, disable_numparse=True))
    else:
        parts.append("no pair crosses inside this range")
    return "\n\n".join(parts)


def draw(found: Map, folder: Path) -> Path:
    """Epoch time over bandwidth, a panel per latency and a line per system; below the lines a strip whose
    colours name the fastest."""
    grid = found.grid
    folder.mkdir(parents=True, exist_ok=True)
    strokes = strokes_of(found.seconds)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.1 * len(grid.latencies) + 0.8, 4.2), layout="constrained")
        axes = figure.subplots(1, len(grid.latencies), sharey=True, squeeze=False)[0]
        for i, (latency, ax) in enumerate(zip(grid.latencies, axes)):
            for name, values in found.seconds.items():
                ax.plot(grid.bandwidths, 1e3 * values[i], label=verbatim(name), **strokes[name])
            for j, bandwidth in enumerate(grid.bandwidths):
                colour = strokes[found.fastest(i, j)]["color"]
                ax.plot(
                    bandwidth, 0.025, "s", color=colour, transform=ax.get_xaxis_transform(), clip_on=False
                )
            best = {c for c in found.crossings if c.latency_us == latency and _leads(found, i, c)}
            for crossing in best:
                ax.axvline(crossing.gbytes_per_s, color="#888888", linewidth=0.8, linestyle=":")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_title(f"latency {latency:g} µs", fontsize=10)
            ax.set_xlabel(f"{found.link}: GB/s")
        axes[0].set_ylabel("epoch, ms (modelled)")
        axes[-1].legend(fontsize=8.5, frameon=False)
        told = (
            f"modelled on cluster={found.cluster}, means over {counted(found.grid.epochs, 'epoch')};"
            " squares: the fastest there"
        )
        title(figure, "The fastest system by network", found.dataset, found.groups, "", told)
        return save(figure, folder / "crossover.png")


def _leads(found: Map, i: int, crossing: Crossing) -> bool:
    """Whether the fastest system of all changes at a crossing."""
    j = int(np.searchsorted(found.grid.bandwidths, crossing.gbytes_per_s))
    j = min(max(j, 1), len(found.grid.bandwidths) - 1)
    return {found.fastest(i, j - 1), found.fastest(i, j)} == {crossing.below, crossing.above}
