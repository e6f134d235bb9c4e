"""Refuses words of a command line that Hydra or OmegaConf would, in sentences of this program."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, RangeSweep
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from harness.base.errors import InputError, did_you_mean
from harness.base.places import CONF
from harness.base.words import check_digits, key_value

RUNS = 100_000  # most runs of a sweep: nobody waits for more, and Hydra would list them all in memory


def parsed(word: str) -> Override:
    """What a word means to Hydra. InputError where it means nothing, and for a range of more than RUNS."""
    check_digits(word)
    try:
        made = OverridesParser.create().parse_override(word)
    except HydraException:
        made = None
    if made is None or not made.key_or_group:
        raise InputError(_unreadable(word))
    # Hydra cannot merge a block of keys with one that is null.
    if made.key_or_group == "hydra.sweeper.params" and isinstance(made.value(), dict):
        raise InputError(f"{word} is a block of keys: give each of them for itself, as KEY=A,B")
    if not _values(made) <= RUNS:
        raise InputError(f"{word} is a range of more than {RUNS} values, or without end: give a shorter one")
    return made


def check_runs(overrides: Sequence[Override]) -> None:
    """InputError where the values of several keys make more than RUNS runs."""
    if not (runs := math.prod(map(_values, overrides))) <= RUNS:
        raise InputError(f"that is a sweep of {runs:.0f} runs, and {RUNS} are the most: give fewer values")


def _values(override: Override) -> float:
    """How many values a key is given; 1 where a pattern or a sweeper decides that."""
    asked = override.value()
    if isinstance(asked, RangeSweep):
        # A range without a start begins at 0; one with step 0 never ends.
        return max(((asked.stop or 0) - (asked.start or 0)) / asked.step, 1) if asked.step else math.inf
    return len(asked.list) if isinstance(asked, ChoiceSweep) else 1


def _unreadable(word: str) -> str:
    """For a word that is no KEY=VALUE by Hydra's grammar: how to quote it."""
    try:
        key, value = key_value(word)
    except InputError as error:
        return str(error)
    if value.endswith(","):
        return f"{word} ends in a comma: write a list without spaces, as {key}=A,B"
    plain = value.replace('"', "").replace("'", "")
    return (
        f"{word} cannot be read, since its value has a character with a meaning of its own: put quotes"
        f" around the value, as '{key}=\"{plain}\"'"
    )


def unknown(group: str, value: str, options: Sequence[str]) -> str:
    """The sentence for an option that a group does not have: the nearest option, or, where a dataset is given
    as a file, how to give that file."""
    path = Path(value).expanduser()
    if group == "dataset" and path.suffix == ".npz":
        return f'dataset="{value}" names a file, not a data set: give dataset=npz dataset.path={value}'
    if group == "dataset" and path.is_file():
        return (
            f'dataset="{value}" names a file, not a data set: make an npz of it with `halobench import` and'
            " give dataset=npz dataset.path=GRAPH.npz"
        )
    near = did_you_mean(value, options)
    own = "" if near.endswith("?") else "; for one of your own add --config-dir FOLDER"
    return f'{group}="{value}" is not known{near}{own}'


# By what a paper calls a knob, in small letters: the keys that systems have for it here.
IN_PAPERS = {
    "epsilon": ("bound", "rate"), "eps": ("bound", "epsilon", "rate"), "n": ("interval",), "m": ("interval",),
    "cache": ("capacity", "policy"), "p": ("rate",),
}  # fmt: skip


def in_papers(key: str, known: Sequence[str]) -> str:
    """For a key that a system does not have, but papers use: the system's keys for it, as the end of a
    sentence; "" where it has none."""
    here = [f"system.{name}" for name in IN_PAPERS.get(key.lower(), ()) if name in known]
    return f"; what papers call {key} is {' and '.join(here)} here" if here else ""


def check_key(
    key: str, composed: DictConfig, named: Callable[[str], str] = str, beside: Sequence[str] = ()
) -> None:
    """InputError where a config has no such key; `named` gives a block's name in the sentence, which may
    suggest a key of the config or one of `beside`."""
    here: Any = composed
    walked: list[str] = []
    for part in key.split("."):
        known = [name for name in _keys(here) if name == part or not name.startswith("_")]
        if part not in known:
            # Blocks that have the key, where it was given without its block, as lr=0.1.
            inside = [
                f'"{name}.{part}"' for name in known if not walked and part in _keys(here._get_node(name))
            ]
            mend = f"; did you mean {' or '.join(inside)}?" if inside else ""
            if walked == ["system"]:
                mend = in_papers(part, known)
            mend = mend or did_you_mean(part, known if walked else [*known, *beside])
            block = named(".".join(walked)) if walked else "the config"
            raise InputError(f"{key} is not a key of {block}{mend}{_preset_with(part, block)}")
        walked.append(part)
        here = here._get_node(part)


def _keys(node: Any) -> list[str]:
    return [str(name) for name in node] if isinstance(node, DictConfig) else []


def _preset_with(key: str, block: str) -> str:
    """For a block such as "system=vanilla" that lacks a key: which of the presets in its folder have the key,
    as the end of a sentence."""
    group, _, name = block.partition("=")
    folder = Path(CONF) / group / name
    if not (name and folder.is_dir()):
        return ""
    having = [path.stem for path in sorted(folder.glob("*.yaml")) if key in (OmegaConf.load(path) or ())]
    return "".join(f"; {group}={name}/{preset} has it" for preset in having)


def unresolved(given: str) -> str:
    """The sentence for KEY=VALUE, as written, whose ${...} refers to something that is not there."""
    return (
        f"{given} refers to what is not there: give a value, ${{KEY}} of a key that is there, or"
        " ${oc.env:NAME} of an environment variable that is set"
    )


def unusable(override: Override, is_group: bool, reason: str) -> str:
    """The sentence for an override that can be read but not used. `reason` is Hydra's own sentence, which is
    given where no reason known here fits."""
    line = str(override.input_line)
    if override.package is not None:
        return f"{line} names a package after its @, which no group here takes: leave the @ out"
    if override.is_delete():
        return f"{line} deletes a key that is not there: leave it out"
    if is_group and (override.is_add() or override.is_force_add()):
        return f"{line} adds a group that is there already: give {line.lstrip('+')}"
    if override.key_or_group.startswith("hydra"):
        return f"{line} is not a setting of Hydra's: halobench run --hydra-help lists them"
    return f"{line} cannot be used: {reason}"
