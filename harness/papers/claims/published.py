"""What the papers print: the facts of every figure, table and claim, from `published.yaml` here."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.base import yaml_text

PATH = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True)
class Entry:
    """A published figure, table or claim.

    experiment   whether a run could show it; illustrations, notation and lists of hardware are none
    uncertain    whether the text at hand is garbled or incomplete there, or contradicts itself
    """

    id: str
    paper: str
    kind: str
    label: str
    title: str
    section: str
    experiment: bool
    uncertain: bool
    claim: str = ""
    published: Any = None


@cache
def entries() -> dict[str, Entry]:
    """Every entry by its id, in the order of the papers."""
    known = Entry.__dataclass_fields__
    stored = yaml_text.parsed(PATH.read_text())["entries"]
    made = (Entry(**{key: value for key, value in each.items() if key in known}) for each in stored)
    return {entry.id: entry for entry in made}


def entry(name: str) -> Entry:
    """The published entry of this id. For the name of an experiment, the entry of the experiment's own
    findings."""
    own = Entry(name, "", "finding", name, "findings of this project", "", True, False)
    return entries().get(name, own)


@cache
def experiments() -> dict[str, Entry]:
    """The entries that a run could show."""
    return {name: entry for name, entry in entries().items() if entry.experiment}
