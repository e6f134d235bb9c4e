"""Performance profiles over graphs (Dolan and Moré's, by which AlgoPerf scores): the share of graphs on which
a system costs at most tau times what the cheapest of all costs there.

A cost is bytes or time until the validation score reaches a share of exact training's best, the median over
seeds; a system that does not get there on a graph has an infinite cost there.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from harness.base import tables
from harness.check import InputError, within_above
from harness.report.curves import curve
from harness.report.groups import Group, Run, among
from harness.report.style import COLOURS, STROKES, names_of, title, told_apart, unsaid
from harness.report.table import Section, competes, leading, sections

TARGET = 0.99  # share of exact training's best validation score
FACTORS = (1.0, 1.1, 1.5, 2.0, 4.0, 10.0)  # tau, in the table
COSTS = {"bytes": "megabytes", "time": "seconds"}  # and their columns of `harness.report.curves.curve`


@dataclass(frozen=True)
class Profile:
    """The profiles of the systems that are on every graph, without the control.

    groups   one of each system's, named by what tells systems apart
    graphs   their names
    ratios   by cost: shape (systems, graphs), a system's cost over the cheapest one's; infinite where the
             target is not reached
    """

    groups: list[Group]
    graphs: list[str]
    ratios: dict[str, np.ndarray]
    target: float

    def share(self, cost: str, factor: float) -> np.ndarray:
        """Of each system the share of graphs on which it is within a factor of the best."""
        return (self.ratios[cost] <= factor).mean(axis=1)


def profiles(groups: list[Group], target: float = TARGET) -> list[Profile]:
    """One for each setting at which exact training and another system are on two graphs or more; the one with
    most systems and graphs first. InputError where there is none."""
    within_above("target", target, 0, 1)
    by_setting: dict[str, dict[str, Section]] = defaultdict(dict)
    for section in sections([g for g in groups if competes(g)]):
        parts: dict[str, list[Group]] = defaultdict(list)
        for group in section.groups:
            parts[_setting(group)].append(group)
        for setting, members in parts.items():
            # A graph measured on several machines counts once: ratios are taken inside a table.
            by_setting[setting].setdefault(section.dataset, replace(section, groups=members))
    found = [_profile(graphs, target) for graphs in by_setting.values() if len(graphs) > 1]
    made = [each for each in found if each is not None]
    if not made:
        raise InputError(
            "no two graphs have runs of exact training and of another system at one setting: give a folder"
            " above several graphs"
        )
    return sorted(made, key=lambda each: -len(each.groups) * len(each.graphs))


def _setting(group: Group) -> str:
    """What systems share on all graphs: everything but the graph, the system and where it is placed."""
    left_out = ("system", "partition", "cluster", "dataset")
    keys = {k: v for k, v in group.first.keys.items() if k.partition(".")[0] not in left_out and k != "seed"}
    return json.dumps(keys, sort_keys=True, default=str)


def _system(group: Group) -> str:
    """What a system is on any graph."""
    keys = {k: v for k, v in group.first.keys.items() if not k.startswith("dataset.") and k != "seed"}
    return json.dumps(keys, sort_keys=True, default=str)


def _profile(graphs: dict[str, Section], target: float) -> Profile | None:
    exact = {name: [g for g in s.groups if g.first.role == "reference"] for name, s in graphs.items()}
    there = {name: {_system(g): g for g in graphs[name].groups} for name in graphs if exact[name]}
    if len(there) < 2:
        return None
    everywhere = [key for key in next(iter(there.values())) if all(key in each for each in there.values())]
    if len(everywhere) < 2:
        return None
    costs: dict[str, list[np.ndarray]] = {cost: [] for cost in COSTS}
    for name, systems in there.items():
        goal = target * max(_best(g, graphs[name]) for g in exact[name])
        score = leading(graphs[name].groups)
        reached = [[to_score(run, score, goal) for run in systems[key].runs] for key in everywhere]
        for cost, column in COSTS.items():
            costs[cost].append(np.array([np.median([each[column] for each in runs]) for runs in reached]))
    firsts = among(next(iter(there.values()))[key] for key in everywhere)
    ratios = {
        cost: np.stack([_over_best(graph) for graph in by_graph], 1) for cost, by_graph in costs.items()
    }
    return Profile(firsts, list(there), ratios, target)


def _best(group: Group, section: Section) -> float:
    """The best validation score of a group in percent, mean over seeds."""
    score = leading(section.groups)
    return float(np.mean([curve(run, score)["val"].max() for run in group.runs]))


def to_score(run: Run, score: str, goal: float) -> pd.Series:
    """The row of a run's curve at which the validation score first reaches `goal` percent; infinite where it
    does not."""
    rows = curve(run, score)
    reached = rows[rows["val"] >= goal]
    return reached.iloc[0] if len(reached) else pd.Series(math.inf, index=rows.columns)


def _over_best(costs: np.ndarray) -> np.ndarray:
    """Costs over the least of them; what costs nothing is 1, as is the least."""
    least = costs.min()
    if not math.isfinite(least):
        return np.full_like(costs, math.inf)
    if least == 0:
        return np.where(costs == 0, 1.0, math.inf)
    ratios: np.ndarray = costs / least
    return ratios


def table(profile: Profile, cost: str) -> pd.DataFrame:
    """A row per system: the share of graphs in percent by factor, and on how many it reaches the target; the
    best at a factor of 2 first."""
    frame = pd.DataFrame(
        {f"within {factor:g}x": 100 * profile.share(cost, factor) for factor in FACTORS},
        index=pd.Index(told_apart(profile.groups), name="system"),
    )
    frame["reaches it on"] = np.isfinite(profile.ratios[cost]).sum(axis=1)
    frame["of graphs"] = len(profile.graphs)
    return frame.sort_values([f"within {factor:g}x" for factor in (2.0, 1.0, 10.0)], ascending=False)


def text(profile: Profile) -> str:
    """The profiles as aligned text, a table per cost."""
    parts = [
        f"{', '.join(profile.graphs)}: share of graphs in % on which a system needs at most so many times the"
        f" least, until {100 * profile.target:g} % of exact training's best validation score"
    ]
    for cost in COSTS:
        frame = table(profile, cost).reset_index()
        shares = [[row[0], *(f"{value:.0f}" for value in row[1:])] for row in frame.to_numpy().tolist()]
        parts.append(tables.text([f"by {cost}", *map(str, frame.columns[1:])], shares))
    return "\n\n".join(parts)


def picture(profile: Profile) -> Figure:
    """A panel per cost: the share of graphs over the factor, a step per system; the eight best at a factor of
    2 have colours, the others are grey."""
    figure = Figure(figsize=(5.2 * len(COSTS), 4.6), layout="constrained")
    names = names_of(profile.groups)
    for cost, ax in zip(COSTS, figure.subplots(1, len(COSTS), sharey=True)):
        finite = profile.ratios[cost][np.isfinite(profile.ratios[cost])]
        end = 1.15 * max(2.0, finite.max(initial=1.0))
        order = np.argsort(-profile.share(cost, 2.0) - 0.01 * profile.share(cost, 1.0), kind="stable")
        for place, system in enumerate(order):
            at = np.sort(profile.ratios[cost][system])
            at = at[np.isfinite(at)]
            x = np.concatenate([[1.0], at, [end]])
            y = 100 * np.concatenate([[0.0], np.arange(1, len(at) + 1), [len(at)]]) / len(profile.graphs)
            shown = place < 8
            ax.step(
                x,
                y,
                where="post",
                label=names[system] if shown else None,
                color=COLOURS[place % len(COLOURS)] if shown else "#C9CDD2",
                linestyle=STROKES[place // len(COLOURS) % len(STROKES)] if shown else "-",
                linewidth=1.7 if shown else 1.0,
                zorder=2 if shown else 1,
            )
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        ax.set_xlim(1, end)
        ax.set_ylim(0, 104)
        ax.set_xlabel(f"at most so many times the least {cost} to the target")
        ax.legend(frameon=False, fontsize=8, loc="lower right")
    figure.axes[0].set_ylabel("share of graphs, %")
    told = f"target: {100 * profile.target:g} % of exact training's best validation score"
    graphs, unnamed = ", ".join(profile.graphs), unsaid(profile.groups)
    title(figure, "Performance profiles", graphs, profile.groups, "", unnamed, told)
    return figure
