"""How stable the order of systems is: their ranks when the seeds are drawn again.

The mean over n seeds orders the systems. Drawing n of these seeds with replacement, the same for all systems,
gives another mean and another order (the bootstrap). How often a system is first in such orders, and between
which ranks it lies in 95 % of them, says what the order is worth. All n^n draws are taken where these are few
enough; otherwise so many are drawn at random, the same each time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.stats import rankdata

from harness.base import tables
from harness.report.against import columns_of
from harness.report.columns import Column
from harness.report.groups import Group
from harness.report.style import COLOURS, names_of, title, told_apart, unsaid
from harness.report.table import Section, competes

DRAWS = 10_000
Ranked = tuple[Group, float, float, float, float]  # a group, its mean rank, the interval's ends, share first


@dataclass(frozen=True)
class Ranks:
    """The ranks by one column; 1 is the best, and equal values share the mean of their ranks.

    rows    by mean rank
    seeds   that all of them have
    agree   mean over draws of Kendall's tau between a drawn order and that of the means: 1 where all agree, 0
            where they have nothing to do with each other
    """

    column: Column
    rows: list[Ranked]
    seeds: list[object]
    agree: float


def ranks(section: Section) -> tuple[list[Ranks], list[Group]]:
    """By score, by bytes and by time, of rows that `harness.report.advice.comparable` puts together; and the
    groups left out: the control, unfinished, diverged, without a score, or without the seeds of most others.
    No ranks where fewer than two groups share two seeds."""
    able = [g for g in section.groups if competes(g)]
    able = [g for g in able if not np.isnan(g.estimate(columns_of(section)[0].value).mean)]
    seeds = _shared(able)
    members = [g for g in able if set(seeds) <= set(g.seeds)]
    if len(members) < 2 or len(seeds) < 2:
        return [], list(section.groups)
    drawn = draws(len(seeds))
    found = [_ranked(column, members, seeds, drawn) for column in columns_of(section)]
    return found, [g for g in section.groups if not any(g is member for member in members)]


def _shared(groups: list[Group]) -> list[object]:
    """The seeds by which groups are ranked: the most frequent list of them where two groups have it, else
    those that as many groups as possible have in common; none where no two groups share two.
    """
    lists = Counter(tuple(group.seeds) for group in groups)
    candidates = [seeds for _, _, seeds in sorted(((n, len(s), s) for s, n in lists.items()), reverse=True)]
    common = [tuple(seed for seed in one if seed in two) for one, two in itertools.combinations(lists, 2)]
    having = {each: sum(set(each) <= set(group.seeds) for group in groups) for each in candidates + common}
    if having and having[candidates[0]] < 2:
        candidates = sorted(having, key=lambda each: (having[each], len(each)), reverse=True)
    usable = (each for each in candidates if len(each) >= 2 and having[each] >= 2)
    return list(next(usable, ()))


def draws(n: int, most: int = DRAWS) -> np.ndarray:
    """Which of n seeds each draw takes: shape (draws, n)."""
    if n**n <= most:
        return np.array(list(itertools.product(range(n), repeat=n)))
    return np.random.default_rng(0).integers(n, size=(most, n))


def _ranked(column: Column, groups: list[Group], seeds: list[object], drawn: np.ndarray) -> Ranks:
    sign = -1.0 if column.rising else 1.0
    values = np.array([[g.by_seed(column.value)[seed].mean for seed in seeds] for g in groups])
    order = bootstrap(sign * values, drawn)
    low, high = np.quantile(order, (0.025, 0.975), axis=0, method="nearest")
    first = order == order.min(axis=1, keepdims=True)
    shares = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)  # those that are equal share the place
    ends = zip(*(each.tolist() for each in (order.mean(axis=0), low, high, shares)))
    rows = sorted(((group, *each) for group, each in zip(groups, ends)), key=lambda row: row[1])
    return Ranks(column, rows, seeds, agreement(order, rankdata(sign * values.mean(axis=1))))


def bootstrap(values: np.ndarray, drawn: np.ndarray) -> np.ndarray:
    """Ranks of the mean over each draw of seeds, 1 the least: shape (draws, systems).

    values   shape (systems, seeds)
    """
    means = values[:, drawn].mean(axis=2)  # (systems, draws)
    return rankdata(means, axis=0).T


def agreement(order: np.ndarray, whole: np.ndarray) -> float:
    """The mean over rows of `order` of Kendall's tau to `whole`: pairs in the same order less pairs in the
    other, over all pairs that `whole` tells apart; 1 where it tells none apart."""
    one, other = np.triu_indices(len(whole), 1)
    apart = whole[one] != whole[other]
    one, other = one[apart], other[apart]
    same = np.sign(order[:, one] - order[:, other]) * np.sign(whole[one] - whole[other])
    return float(same.mean()) if apart.any() else 1.0


def picture(ranked: Ranks, section: Section) -> Figure:
    """Each row's mean rank, and the ranks between which it lies in 95 % of the draws."""
    names = dict(zip(map(id, section.groups), names_of(section.groups)))
    count = len(ranked.rows)
    figure = Figure(figsize=(7.2, 1.6 + 0.25 * count), layout="constrained")
    ax = figure.subplots()
    places = np.arange(count)[::-1]
    for place, (_, mean, low, high, _) in zip(places, ranked.rows):
        ax.plot([low, high], [place, place], color=COLOURS[0], linewidth=3, alpha=0.35)
        ax.plot(mean, place, "o", color=COLOURS[0], markersize=5)
    ax.set_yticks(places, [names[id(group)] for group, *_ in ranked.rows], fontsize=8)
    ax.set_xlim(0.5, count + 0.5)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(f"rank by {ranked.column.heading}")
    ax.grid(axis="y", visible=False)
    told = f"dots: mean rank over draws of {len(ranked.seeds)} seeds; bars: 95 % of the draws"
    unnamed = unsaid(section.groups)
    title(figure, "How stable the order is", section.dataset, section.groups, "", unnamed, told)
    return figure


def table(ranked: Ranks, section: Section) -> pd.DataFrame:
    """A row per system: mean rank, the ranks of 95 % of the draws, and how often it is first, in percent."""
    names = dict(zip(map(id, section.groups), told_apart(section.groups)))
    return pd.DataFrame(
        [
            (names[id(group)], f"{mean:.1f}", f"{low:g} to {high:g}", f"{100 * first:.0f}")
            for group, mean, low, high, first in ranked.rows
        ],
        columns=["system", "mean rank", "95 % of draws", "first in % of draws"],
    )


def text(section: Section) -> str:
    """The ranks of one part as aligned text; "" where there are none."""
    found, left_out = ranks(section)
    parts = []
    for ranked in found:
        frame = table(ranked, section)
        head = (
            f"{section.title}: rank by {ranked.column.heading} over draws of the seeds"
            f" {', '.join(map(str, ranked.seeds))}; the orders agree by {ranked.agree:.2f} (Kendall's tau)"
        )
        parts.append(f"{head}\n{tables.text(list(frame), frame.to_numpy().tolist())}")
    if found and left_out:
        names = dict(zip(map(id, section.groups), told_apart(section.groups)))
        parts.append(f"Without a rank: {', '.join(names[id(group)] for group in left_out)}.")
    return "\n\n".join(parts)
