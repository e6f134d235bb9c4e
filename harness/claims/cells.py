"""The cells of a published table: one claim of a file stands for as many as the table prints numbers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from harness.check import InputError
from harness.claims import published

C = TypeVar("C", bound=Any)  # a claim, whose module imports this one
# What `compare` makes of rows' values: of ours, of shape (graphs, seeds), and of printed numbers.
MADE: dict[str, Callable[..., Any]] = {
    "value": lambda a: a,
    "ratio": lambda a, b: a / b,
    "less_percent": lambda a, b: 100 * (1 - a / b),
    "difference": lambda a, b: a - b,
    "ratio_of_ratios": lambda a, b, c, d: (a / b) / (c / d),
}


def rows_by(rows: Mapping[str, str], by: Mapping[str, str]) -> dict[str, str]:
    """Each row with each of `by`'s words, as "ROW NAME"; the rows as they are where there is none."""
    if not by:
        return dict(rows)
    return {f"{row} {name}": f"{words} {more}" for row, words in rows.items() for name, more in by.items()}


def expanded(claim: C, each: Any, printed: Any, where: str) -> Iterator[C]:
    """A claim for each cell that prints numbers; the claim itself where neither is given.

    claim     of `harness.claims.experiment`, whose texts may hold {NAME}
    each      by name the values that {NAME} stands for, in the order in which cells come; a mapping where
              the table calls them otherwise: what we call it, what it prints
    printed   for each row the place of its number in `published.yaml`: keys and positions with "/" between
              them, in which {NAME} is what the table prints. The published value is made of these numbers as
              `compare` makes ours of the rows, and lies on the side that the paper claims. A cell without
              them ("OOM") has no claim

    Claims that differ only in the last name of `each` are a series, and its values the steps. InputError
    where a place does not exist, or no cell has a number.
    """
    if each is None and printed is None:
        yield claim
        return
    lists = isinstance(each, Mapping) and all(isinstance(values, Mapping | list) for values in each.values())
    if not (lists and each and isinstance(printed, list) and printed):
        raise InputError(f"{where}: give both, each: {{NAME: [VALUE, ...]}} and printed: [PLACE, ...]")
    if claim.compare not in MADE or len(printed) != len(claim.rows):
        raise InputError(
            f"{where}.printed={printed}: give a place for each of rows={claim.rows}, and compare as one of"
            f" {', '.join(MADE)}"
        )
    names = {
        name: dict(values) if isinstance(values, Mapping) else {str(value): str(value) for value in values}
        for name, values in each.items()
    }
    last = list(names)[-1]
    entry = published.entry(claim.entry)
    made = []
    for cell in itertools.product(*(values.items() for values in names.values())):
        ours = dict(zip(names, (mine for mine, _ in cell)))
        theirs = dict(zip(names, (printed for _, printed in cell)))
        numbers = [_number(entry, _named(str(place), theirs, where), where) for place in printed]
        if None not in numbers:
            value = float(f"{MADE[claim.compare](*numbers):.4g}")
            side = "above" if value > claim.no_difference else "below"
            texts = {f.name: _filled(getattr(claim, f.name), ours, where) for f in dataclasses.fields(claim)}
            made.append(
                dataclasses.replace(
                    claim,
                    **{
                        **texts,
                        "published": value,
                        "direction": side if value != claim.no_difference else None,
                        "series": _named(claim.says, {**ours, last: "{}"}, where),
                        "step": ours[last],
                    },
                )
            )
    if not made:
        raise InputError(f"{where}.printed={printed} prints no number in any cell")
    yield from made


def _filled(value: Any, names: Mapping[str, str], where: str) -> Any:
    """With {NAME} replaced in every text of a value."""
    if isinstance(value, str):
        return _named(value, names, where)
    if isinstance(value, list):
        return [_filled(each, names, where) for each in value]
    if isinstance(value, Mapping):
        return {key: _filled(each, names, where) for key, each in value.items()}
    return value


def _named(text: str, names: Mapping[str, str], where: str) -> str:
    """A text with {NAME} replaced. InputError where it names none of them."""
    try:
        return text.format_map(names)
    except KeyError as error:
        raise InputError(f"{where}: {{{error.args[0]}}} is none of each; it has {', '.join(names)}") from None
    except (IndexError, ValueError):
        raise InputError(
            f'{where}: "{text}" has braces without a name: give one of {", ".join(names)}'
        ) from None


def _number(entry: published.Entry, place: str, where: str) -> float | None:
    """The number at a place of what an entry prints; None where it prints a word, or nothing."""
    found: Any = (entry.published or {}).get("values", entry.published)
    for key in place.split("/"):
        if isinstance(found, str):  # a word for all of the cell's numbers
            return None
        at: Any = int(key) if isinstance(found, Sequence) else key
        try:
            found = found[at]
        except (KeyError, IndexError, TypeError, ValueError):
            raise InputError(f"{where}.printed={place}: {entry.id} prints nothing there") from None
    return float(found) if isinstance(found, int | float) else None
