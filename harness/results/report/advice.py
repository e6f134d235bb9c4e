"""Which system to take on a graph, and why: the cheapest that keeps the score of exact training.

A system keeps the score of exact training where it is not told to be below: the 95 % interval of their
difference, paired over seeds, is not wholly below 0, and its mean is at most TOLERATED points below 0. Of
the systems that keep the score, the cheapest is the one with the least mean bytes per epoch, or time. Others
whose difference in cost to the cheapest has an interval that reaches 0 are not told apart from it. Where
exact training is not told to be ahead of the control, which has no remote rows, the score cannot tell what
remote rows are worth."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from harness.results import track
from harness.results.report.columns import Column, score_name
from harness.results.report.compare import (
    PLACES,
    ahead_of_controls,
    cannot_tell,
    paired,
    ratio,
    reference_of,
    setting,
)
from harness.results.report.estimate import Estimate
from harness.results.report.groups import Group, among
from harness.results.report.style import told_apart
from harness.results.report.table import Section, competes, estimate_of

TOLERATED = 1.0  # points that the mean may lie below exact training's
SEVERAL = 3  # rivals that are named; of the others only the number is given


@dataclass(frozen=True)
class Choice:
    """The cheapest of the groups that keep the score.

    cost     bytes or time of an epoch
    best     the cheapest group
    share    its cost over that of the cheapest exact training
    rivals   groups that are not told apart from it in cost
    next     the cheapest of the other groups; None where there is none
    """

    cost: Column
    best: Group
    share: Estimate
    rivals: list[Group]
    next: Group | None


@dataclass(frozen=True)
class Advice:
    """One sentence for a graph, and what it rests on.

    decided   whether a system can be named. False where a run that the advice needs is missing, where exact
              training is not told to be ahead of the control, and where the best of every cost has rivals
    """

    decided: bool
    sentence: str
    reasons: list[str]
    choices: list[Choice]


def comparable(section: Section) -> list[Section]:
    """The parts of a table whose rows can be compared: they differ only in the system and in PLACES (such as
    partition and cluster). The part with most rows comes first."""
    parts: dict[str, list[Group]] = defaultdict(list)
    for group in section.groups:
        parts[setting(group, PLACES)].append(group)
    return [
        Section(section.dataset, section.clock, section.machine, among(groups))
        for groups in sorted(parts.values(), key=len, reverse=True)
    ]


def advise(section: Section) -> Advice:
    """The advice on the rows of one part from `comparable`; on its tuned rows alone if there are any."""
    if tuned := [group for group in section.groups if group.first.track == track.TUNED]:
        section = replace(section, groups=tuned)
    score, *costs = section.compared
    finished = [g for g in section.groups if g.finished and not g.diverged]
    exact = [g for g in finished if g.first.role == "reference"]
    if not exact:
        if any(g.first.role == "reference" and g.diverged for g in section.groups):
            return _unknown("exact training diverged; give another setting, such as a lower optimiser.lr")
        return _unknown("no finished run of exact training is among these; add one at the same setting")
    # Which rows keep the score of exact training, and which of those is cheapest by each cost.
    ahead = {id(g): _ahead(g, exact, score) for g in finished if competes(g)}
    scored = [g for g in finished if competes(g) and ahead[id(g)].n]
    if all(ahead[id(g)].n < 2 for g in scored if g not in exact):
        lacking = "no other system has finished" if len(scored) <= len(exact) else "one seed has no interval"
        return _unknown(f"{lacking}; give more seeds, as seed=1,2,3, or more systems")
    kept = [g for g in scored if g in exact or keeps(ahead[id(g)])]
    names = dict(zip(map(id, section.groups), told_apart(section.groups)))
    choices = [_cheapest(cost, kept, exact) for cost in costs]
    # The sentences: what to take, and what that rests on.
    controls = ahead_of_controls(section.groups, score)
    blind = {control.partition for control, _, lead in controls if lead.n and lead.side() <= 0}
    said = [_said(choice, exact, names, ahead[id(choice.best)], score) for choice in choices]
    if len(kept) == 1:  # exact training is always among them
        alone = f"take {names[id(kept[0])]}, exact training itself: no other row keeps its"
        said = [f"{alone} test {score_name(section.groups)}"]
    lost = [g for g in scored if g not in kept]
    reasons = [
        f"{len(scored)} rows are compared. The score is kept by {len(kept)}: not told to be below exact"
        f" training, and in the mean at most {TOLERATED:g} point below it.",
        *([_lost(lost, names, ahead)] if lost else []),
        *cannot_tell(section.groups, score),
    ]
    text = "; ".join(said)
    taken = f"{text[0].upper()}{text[1:]}."
    # What leaves the advice undecided stands before the sentence.
    without = [choice.best.partition for choice in choices if choice.best.partition in blind]
    if without:
        more = " or fewer training vertices"
        if "random" not in blind:
            more = ", fewer training vertices or partition=random"
        untold = (
            f"What remote rows are worth on {' and '.join(dict.fromkeys(without))} cannot be told by"
            f" test {score_name(section.groups)}: exact training is not told to be ahead of"
            f" the control, which has none of them. More seeds{more} may show it."
        )
        return Advice(False, f"{untold} {taken}", reasons, choices)
    controlled = {group.partition for group in finished if group.first.role == "control"}
    if missing := sorted({choice.best.partition for choice in choices} - controlled):
        lacks = (
            f"What remote rows are worth on {' and '.join(missing)} is not known: no finished run of the"
            " control, which has none of them, is among these; add one at the same setting."
        )
        return Advice(False, f"{lacks} {taken}", reasons, choices)
    if all(choice.rivals for choice in choices):
        return Advice(False, f"Cannot tell one system from the others: {text}.", reasons, choices)
    return Advice(True, taken, reasons, choices)


def _unknown(why: str) -> Advice:
    return Advice(False, f"Cannot tell which system to take: {why}.", [], [])


def _ahead(group: Group, exact: list[Group], score: Column) -> Estimate:
    """The score minus that of exact training, paired over seeds; 0 for exact training itself."""
    reference = reference_of(group, exact, elsewhere=True)
    assert reference is not None  # all of a part share the setting but for the places
    return paired(group, group if group in exact else reference, score.value)


def keeps(ahead: Estimate) -> bool:
    """Whether a score that is `ahead` points above exact training's is kept; never by a single seed."""
    return ahead.side() >= 0 and ahead.n >= 2 and ahead.mean >= -TOLERATED


def _cheapest(cost: Column, kept: list[Group], exact: list[Group]) -> Choice:
    order = sorted(kept, key=lambda g: estimate_of(g, cost).mean)
    best, *others = order
    cheapest = min(exact, key=lambda g: estimate_of(g, cost).mean)
    rivals = [g for g in others if paired(g, best, cost.value).side() <= 0]
    following = next((g for g in others if g not in rivals), None)
    return Choice(cost, best, ratio(best, cheapest, cost.value), rivals, following)


def _said(choice: Choice, exact: list[Group], names: dict[int, str], ahead: Estimate, score: Column) -> str:
    """One half of the sentence: by bytes, or by time."""
    cost, best = choice.cost, choice.best
    aim, aims, unit, digits = (
        ("send the fewest bytes", "sends the fewest bytes", "MB", ".3f")
        if cost.key == "mb_epoch"
        else ("need the least time", "needs the least time", cost.heading[6:], ".4f")
    )
    name = names[id(best)]
    value = f"{estimate_of(best, cost):{digits}} {unit} per epoch"
    if choice.rivals:
        several = [
            f"{names[id(g)]} ({paired(g, best, cost.value):+{digits}})" for g in choice.rivals[:SEVERAL]
        ]
        if len(choice.rivals) > SEVERAL:
            several.append(f"{len(choice.rivals) - SEVERAL} more")
        return f"cannot tell what {aims}, {name} ({value}) or {', '.join(several)}"
    told = f"take {name} to {aim}: {value}"
    if best in exact:
        told += ", which is exact training itself"
    else:
        told += f", {100 * choice.share.mean:.3g} % of exact training's"
        told += f", at {ahead:+.2f} points of {score.heading.removesuffix(' %')}"
    if choice.next is not None:
        less = ratio(best, choice.next, cost.value)
        if not math.isnan(less.mean):
            told += f"; {100 * (1 - less.mean):.3g} % less than the next, {names[id(choice.next)]}"
    return told


def _lost(lost: list[Group], names: dict[int, str], ahead: dict[int, Estimate]) -> str:
    worst = sorted(lost, key=lambda g: ahead[id(g)].mean)
    kinds = {
        "These do not keep it, in points": [g for g in worst if ahead[id(g)].n > 1],
        "One seed cannot tell of these, in points": [g for g in worst if ahead[id(g)].n < 2],
    }
    told = (
        f"{said}: {', '.join(f'{names[id(g)]} ({ahead[id(g)]:+.2f})' for g in groups)}."
        for said, groups in kinds.items()
        if groups
    )
    return " ".join(told)
