"""One claim of a file that stands for many, as for each cell of a published table that prints a number."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from harness.base.errors import InputError, choice
from harness.base.words import key_values
from harness.papers.claims import published
from harness.papers.claims.verdict import TOLERANCE

KEYS = ("each", "printed", "without")  # of a claim in a file
C = TypeVar("C", bound=Any)  # a claim, whose module imports this one
# What `compare` makes of the rows' values: of our values [graphs, seeds], and of printed numbers.
MADE: dict[str, Callable[..., Any]] = {
    "value": lambda a: a,
    "ratio": lambda a, b: a / b,
    "less_percent": lambda a, b: 100 * (1 - a / b),
    "difference": lambda a, b: a - b,
    "ratio_of_ratios": lambda a, b, c, d: (a / b) / (c / d),
    "ratio_of_differences": lambda a, b, c, d: (a - b) / (c - d),
}


def rows_by(rows: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Each row with each of `by`'s words, as "ROW NAME"; the rows as they are where there is none. InputError
    where two have one name, or a row says something of a key that `by` has."""
    if not by:
        return dict(rows)
    made: dict[str, str] = {}
    for (row, words), (name, more) in itertools.product(rows.items(), by.items()):
        both = key_values(words.split()).keys() & key_values(more.split())
        if both:
            raise InputError(f"rows.{row} and by.{name} both give {', '.join(sorted(both))}: give it once")
        if f"{row} {name}" in made:
            raise InputError(f'rows and by make "{row} {name}" twice: give other names')
        made[f"{row} {name}"] = f"{words} {more}"
    return made


def expanded(claim: C, each: Any, printed: Any, without: Any, where: str) -> list[C]:
    """A claim for each cell, or the claim itself where none of the three is given.

    claim     of `harness.papers.claims.claim`, whose texts may hold {NAME}
    each      by name the values that {NAME} stands for, in the order in which cells come. A list gives the
              values alone. A mapping gives more of each value: what the table prints instead of it, or
              further names with their texts, as {VALUE: {NAME: TEXT}}
    printed   for each row the place of its number in `published.yaml`: keys and positions with "/" between
              them, in which {NAME} is what the table prints. `compare` makes the published value of these
              numbers as it makes ours of the rows. The direction is the side of no difference on which that
              value lies; none where it lies within the tolerance. A cell without a number ("OOM") has no
              claim. Without `printed` the claim gives `published` itself, maybe as a "{NAME}" that stands for
              a number
    without   cells that are left out, each as {NAME: value, ...}: a cell is left out where it has all of
              these

    Claims that differ only in the last name of `each` are a series, and its values the steps. InputError
    where a place does not exist, no cell has a number, or what a cell makes is given too.
    """
    if each is None and printed is None and without is None:
        return [claim]
    names = _names(each, where)
    out = _left_out(without, names, where)
    last = list(names)[-1]
    made = []
    for ours, theirs in each_of(each, where):
        if any(left.items() <= ours.items() for left in out):
            continue
        fields = dataclasses.fields(claim)
        said = {field.name: _filled(getattr(claim, field.name), ours, where) for field in fields}
        said |= {field.name: field.default for field in fields if said[field.name] == "" != field.default}
        said |= {"series": named(claim.says, {**ours, last: "{}"}, where), "step": ours[last]}
        if printed is None:
            said["published"] = _number(said["published"], where)
        else:
            value = _made(claim, said["entry"], printed, theirs, where)
            if value is None:
                continue
            said |= {"published": value, "direction": _side(value, claim)}
        made.append(dataclasses.replace(claim, **said))
    if not made:
        none = (
            "without leaves no cell" if printed is None else f"printed={printed} prints no number in any cell"
        )
        raise InputError(f"{where}.{none}")
    return made


def _made(claim: Any, entry_id: str, printed: Any, theirs: Mapping[str, str], where: str) -> float | None:
    """What a cell's printed numbers make; None where it prints none."""
    if not (isinstance(printed, list) and printed):
        raise InputError(f"{where}.printed={printed}: give the place of each row's number, as [PLACE, ...]")
    if claim.compare not in MADE or len(printed) != len(claim.rows):
        raise InputError(
            f"{where}.printed={printed}: give a place for each of rows={claim.rows}, and compare as one of"
            f" {', '.join(MADE)}"
        )
    if claim.published is not None or claim.direction is not None:
        raise InputError(
            f"{where} has published or direction beside printed, which makes both: leave them out"
        )
    entry = published.entry(entry_id)
    numbers = [number_at(entry, named(str(place), theirs, where), where) for place in printed]
    if None in numbers:
        return None
    try:
        return float(f"{MADE[claim.compare](*numbers):.4g}")
    except ZeroDivisionError:
        raise InputError(f"{where}.printed: {entry.id} prints 0 where {theirs} divides by it") from None


def _number(published: Any, where: str) -> Any:
    """What is published, of which a text that a name stood for is a number. InputError where it is none."""
    if isinstance(published, list):
        return [_number(end, where) for end in published]
    if not isinstance(published, str):
        return published
    try:
        return float(published)
    except ValueError:
        raise InputError(f"{where}.published={published} is no number: give one") from None


# What {NAME} stands for in a cell: by our names of the values, and by what the table prints.
Cell = tuple[dict[str, str], dict[str, str]]


def _names(each: Any, where: str) -> dict[str, list[Cell]]:
    """`each` by name: of each value what the name, and further names with it, stand for. InputError where it
    is misshapen."""
    if not (isinstance(each, Mapping) and each):
        raise InputError(f"{where}.each={each}: give the values of each name, as {{NAME: [VALUE, ...]}}")
    names: dict[str, list[Cell]] = {}
    taken: list[str] = []
    for name, values in each.items():
        if not (isinstance(values, Mapping | list) and values):
            raise InputError(
                f"{where}.each.{name}={values}: give [VALUE, ...], {{VALUE: what is printed}} or"
                " {VALUE: {NAME: TEXT}}"
            )
        pairs = values.items() if isinstance(values, Mapping) else zip(values, values)
        told = []  # of each value what it is here, what is printed instead, and further names
        for mine, more in pairs:
            told.append((mine, mine, more) if isinstance(more, Mapping) else (mine, more, {}))
        further = list(told[0][-1])
        if any(set(more) != set(further) for *_, more in told):
            raise InputError(f"{where}.each.{name}: give each value the same names, as {further}")
        taken += map(str, (name, *further))
        names[str(name)] = [
            (_texts({name: mine, **more}), _texts({name: printed, **more})) for mine, printed, more in told
        ]
    if len(set(taken)) < len(taken):
        raise InputError(f"{where}.each gives {max(taken, key=taken.count)} twice: give other names")
    return names


def _texts(names: Mapping[Any, Any]) -> dict[str, str]:
    return {str(name): str(text) for name, text in names.items()}


def each_of(each: Any, where: str) -> list[Cell]:
    """What {NAME} stands for in every cell of `each`."""
    cells: list[Cell] = [({}, {})]
    for values in _names(each, where).values():
        cells = [(ours | more, theirs | printed) for ours, theirs in cells for more, printed in values]
    return cells


def _left_out(without: Any, names: Mapping[str, list[Cell]], where: str) -> list[dict[str, str]]:
    """The cells that are left out. InputError where one names what no cell has."""
    if not isinstance(without, list | None) or not all(isinstance(left, Mapping) for left in without or ()):
        raise InputError(f"{where}.without={without}: give the cells that are left out, as [{{NAME: VALUE}}]")
    out = list(map(_texts, without or ()))
    for left in out:
        for name, value in left.items():
            choice(f"{where}.without", name, names)
            choice(f"{where}.without.{name}", value, [ours[name] for ours, _ in names[name]])
    return out


def _side(value: float, claim: Any) -> str | None:
    """The side of no difference on which a published value lies, if it is farther from it than what holds."""
    near = TOLERANCE * abs(value) if claim.tolerance is None else claim.tolerance
    if abs(value - claim.no_difference) <= near:
        return None
    return "above" if value > claim.no_difference else "below"


def _filled(value: Any, names: Mapping[str, str], where: str) -> Any:
    """With {NAME} replaced in every text of a value."""
    if isinstance(value, str):
        return named(value, names, where)
    if isinstance(value, list):
        return [_filled(each, names, where) for each in value]
    if isinstance(value, Mapping):
        return {key: _filled(each, names, where) for key, each in value.items()}
    return value


def named(text: str, names: Mapping[str, str], where: str) -> str:
    """A text with {NAME} replaced. InputError where it has braces with anything else."""
    if "{" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        if found[1] not in names:
            raise InputError(f'{where}: "{{{found[1]}}}" is none of each; it has {", ".join(names)}')
        return names[found[1]]

    return re.sub(r"\{([^{}]*)\}", value, text)


def number_at(entry: published.Entry, place: str, where: str) -> float | None:
    """The number at a place of an entry, or, with "ENTRY:PLACE", at a place of another entry. None where a
    word or nothing stands there; InputError where the place does not exist or holds several numbers."""
    other, colon, within = place.partition(":")
    if colon:
        choice(f"{where}.printed", other, published.entries())
        entry, place = published.entry(other), within
    found: Any = (entry.published or {}).get("values", entry.published)
    for key in place.split("/"):
        if isinstance(found, str):  # a word for all of the cell's numbers
            return None
        try:
            found = found[int(key) if isinstance(found, Sequence) else key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise InputError(f"{where}.printed={place}: {entry.id} prints nothing there") from None
    if isinstance(found, Sequence | Mapping) and not isinstance(found, str):
        raise InputError(f"{where}.printed={place}: {entry.id} prints several numbers there, give one")
    return float(found) if isinstance(found, int | float) else None
