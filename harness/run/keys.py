"""The keys of a run as `halobench run --help` shows them: each with its value, and with the description from
the docstring of its dataclass, the one place where a key is described."""

import dataclasses
import inspect
import itertools
import re
import textwrap
from dataclasses import fields
from typing import Any

from omegaconf import OmegaConf

from harness.base.bounds import bounds_of
from harness.results.report.groups import knob
from harness.run import config as configs
from harness.run import overrides

WIDTH, INDENT = 110, 26
# What people change first; the other keys follow, then the other blocks.
FIRST = (
    *("system", "dataset", "workers", "epochs", "seed", "partition", "model", "optimiser", "evaluate"),
    "cluster",
)
USAGE = """usage: {program} [-m]{dry} [KEY=VALUE ...]

{does}

example: {program} -m system={systems} dataset={dataset} workers=4 seed=1,2
"""

TRAINS = (
    "Trains one run; with -m every combination of the values in KEY=VALUE,VALUE,... With --dry nothing is"
    " trained: it says how many runs that would be, what they would send and hold, and how long they would"
    " take."
)
PREPARES = (
    "Makes the shards and the folder of one run, and prints the torchrun command that trains it; with -m"
    " those of every combination of the values in KEY=VALUE,VALUE,..."
)
KEYS = (
    "Below is each key with the value that it has in this command: `{program} system=NAME --help` shows those"
    " of another system."
)


def described(cls: type) -> dict[str, str]:
    """By key, what the docstring of a class, or else of its bases, says of it, in one line; "" where they say
    nothing."""
    made = {field.name: "" for field in fields(cls)}
    for each in cls.__mro__:
        if dataclasses.is_dataclass(each):
            made = {key: text or _told(each).get(key, "") for key, text in made.items()}
    return made


def _told(cls: type) -> dict[str, str]:
    """What a class's docstring says of each key, in one line; empty where it says nothing.

    An entry begins at the margin with its key, and ends before the next one or an empty line."""
    told: dict[str, list[str]] = {field.name: [] for field in fields(cls)}
    entry = None
    for line in inspect.cleandoc(cls.__doc__ or "").splitlines():
        found = re.match(r"(\w+)(?:: *| +)(.*)", line)
        if found and found[1] in told:
            entry = told[found[1]]
            entry.append(found[2])
        elif not line.strip():
            entry = None
        elif entry is not None:
            entry.append(line.strip())
    return {key: " ".join(lines) for key, lines in told.items()}


def text(words: list[str], program: str) -> str:
    """The help of the command typed as `program` with these words. InputError where a name does not exist."""
    composed, options = overrides.composed(words)
    for key in OmegaConf.missing_keys(composed):
        OmegaConf.update(composed, key, "VALUE")
    run = configs.check(composed)
    first = {key: run.composed[key] for key in FIRST if key in run.composed}
    rest = {key: value for key, value in run.composed.items() if key not in first}
    rest = dict(sorted(rest.items(), key=lambda item: isinstance(item[1], dict)))
    dataset = run.graph_name
    systems = ",".join(options.get("system", [])[-2:])
    prepares = program.endswith(" prepare")
    does = f"{PREPARES if prepares else TRAINS} {KEYS.format(program=program)}"
    does, dry = textwrap.fill(does, WIDTH, break_on_hyphens=False), "" if prepares else " [--dry]"
    parts = [USAGE.rstrip().format(program=program, dry=dry, does=does, systems=systems, dataset=dataset)]
    for together, found in itertools.groupby(
        [*first.items(), *rest.items()], lambda item: item[0] if isinstance(item[1], dict) else ""
    ):
        if not together:
            parts.append("\n".join(_lines("", type(run.settings), dict(found))))
            continue
        ((name, block),) = found
        choices = f"{name}=NAME, of {', '.join(sorted(options[name]))}" if name in options else name
        head = textwrap.fill(choices, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        keys = {key: value for key, value in block.items() if key != "_target_"}
        # Of scores there may be several, each a block of its own; their options are all there is to say.
        lines = [] if name == "score" else _lines(f"{name}.", type(getattr(run, name)), keys)
        parts.append("\n".join([head, *lines]))
    for name in (*configs.NULL, "score"):  # blocks that a run has only where an option of theirs is chosen
        if name not in run.composed:
            choices = f"{name}=NAME, by default none, of {', '.join(overrides.options(name, []))}"
            parts.append(textwrap.fill(choices, WIDTH, subsequent_indent="    ", break_on_hyphens=False))
    return "\n\n".join(parts)


def _lines(prefix: str, cls: type, keys: dict[str, Any]) -> list[str]:
    said, bounds, lines = described(cls), bounds_of(cls), []
    for key, value in keys.items():
        shown = f"{prefix}{key}" if isinstance(value, dict | list) else knob(f"{prefix}{key}", value)
        begin = f"  {shown:<{INDENT - 2}}"
        text = said.get(key, "") + (f" ({bounds[key]})" if key in bounds else "")
        told = textwrap.wrap(text, WIDTH - INDENT, break_on_hyphens=False)
        # A key too long for its column stands on a line of its own.
        if told and begin[INDENT - 2 :].isspace():
            lines.append(f"{begin}{told.pop(0)}")
        else:
            lines.append(begin.rstrip())
        lines += [" " * INDENT + line for line in told]
    return lines
