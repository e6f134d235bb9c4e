"""Checks overrides before Hydra does, and refuses a mistyped one with the nearest key or name instead of a
parser's message. Also lets a sweep over a group set keys of the group's options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import ChoiceSweep, Override, ValueType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base import yaml_text
from harness.base.errors import InputError, did_you_mean
from harness.base.places import CONF, own_config
from harness.base.subcommand import check_options
from harness.base.words import key_value
from harness.run import refused

SEARCHPATH = "hydra.searchpath"
# Hydra's own groups, and for some of their options the extra of this project that brings them.
PLUGINS = {
    "hydra/launcher": {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"},
    "hydra/sweeper": {"optuna": "optuna"},
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The words as Hydra's own parser reads them, options and overrides in any order. Where they name no
    --config-dir, it is the folder that the environment names (`own_config`)."""
    parser = get_args_parser()
    check_options(arguments, parser, keys=True)
    args = parser.parse_intermixed_args(arguments)
    if not args.config_dir and (own := own_config()):
        args.config_dir = str(own)
    return args


def check(arguments: list[str], conf: str) -> DictConfig | None:
    """The config of the single run that the arguments ask for. None for a sweep, and where they hold an
    option or a key of Hydra's own, which only Hydra can follow. InputError at the first override that cannot
    be read, or whose group option or key does not exist.

    Keys behind a `+` are left to `harness.run.config.check`, which knows every block's schema."""
    args = parse(arguments)
    if (
        args.help
        or args.hydra_help
        or args.shell_completion
        or args.info
        or args.config_name
        or args.config_path
    ):
        return None
    parsed = [refused.parsed(word) for word in args.overrides]
    ours = [o for o in parsed if not o.key_or_group.startswith("hydra") and not o.is_delete()]
    for override in ours:
        if override.is_sweep_override() and not args.multirun:
            raise InputError(f"{override.input_line} lists several values: add -m to run them all")
    refused.check_runs(ours)
    searched = _searched(args, parsed)
    for place in searched:
        if place.startswith("file://") and not Path(place.removeprefix("file://")).is_dir():
            raise InputError(f'{SEARCHPATH}="{place}" is not a folder: give file://FOLDER')
    known = _Known(conf, searched)
    for override in parsed:
        if override.key_or_group in PLUGINS:
            _check_plugin(override.key_or_group, str(override.value()), known)
    for override in ours:
        if known.is_group(override.key_or_group) and override.value() is None and not override.is_delete():
            group = override.key_or_group
            raise InputError(f"{_line(override)} names no option{did_you_mean('', known.options(group))}")
    if args.multirun:  # a sweep is composed job by job
        _explain(ours, known)
        return None
    made = known.made([o for o in parsed if o.key_or_group != SEARCHPATH])
    if isinstance(made, str):
        _explain(ours, known)
        raise InputError(made)  # _explain found nothing better to say
    return made if is_plain(arguments) else None


def is_plain(arguments: list[str]) -> bool:
    """Whether the only options and keys of Hydra's own among the arguments are -m and --config-dir."""
    given = vars(parse(arguments))
    words = given.pop("overrides")
    others = {option for option, value in given.items() if value} - {"run", "multirun", "config_dir"}
    return not others and not any(word.lstrip("+~").startswith("hydra") for word in words)


def _check_plugin(group: str, name: str, known: _Known) -> None:
    """InputError where an option of one of Hydra's own groups is not installed."""
    options = known.plugins(group)
    if name in options:
        return
    if extra := PLUGINS[group].get(name):
        raise InputError(
            f'{group}={name} is not installed: give pip install "halobench[{extra}]"'
            ' (in a clone, pip install -e ".[' + extra + ']")'
        )
    raise InputError(f'{group}="{name}" is not known{did_you_mean(name, {*options, *PLUGINS[group]})}')


def _searched(args: argparse.Namespace, parsed: list[Override]) -> list[str]:
    """The places that the arguments add to the config's search path. InputError where a yaml there is beyond
    limits."""
    own = [f"file://{Path(args.config_dir).resolve()}"] if args.config_dir else []
    places = [o.value() for o in parsed if o.key_or_group == SEARCHPATH]
    found = own + [
        str(place) for given in places for place in (given if isinstance(given, list) else [given])
    ]
    for place in found:
        if place.startswith("file://"):
            yaml_text.check_folder(Path(place.removeprefix("file://")))
    return found


def parts(arguments: list[str], conf: str) -> list[list[str]]:
    """The sweeps, one after another, that the arguments ask for, each as its arguments. It is one sweep
    unless some options of a swept group lack a key that is given inside the group. In `system=vanilla,sancus
    system.bound=1,2` vanilla has no bound: it becomes a sweep of its own, without that key, and runs once."""
    args = parse(arguments)
    if not args.multirun:
        return [arguments]
    parsed = {word: refused.parsed(word) for word in args.overrides}
    known = _Known(conf, _searched(args, list(parsed.values())))
    made = [arguments]
    for word, group in parsed.items():
        name = group.key_or_group
        if not (group.is_sweep_override() and known.is_group(name)):
            continue
        inside = {w: o.key_or_group for w, o in parsed.items() if _is_key_of(o, name)}
        # Options that lack the same keys stay together, in the order in which they are given.
        alike: dict[tuple[str, ...], list[str]] = {}
        for value in _values(group) if inside else []:
            composed = known.compose([f"{name}={value}"])
            lacking = tuple(w for w, key in inside.items() if _lacks(key, composed))
            alike.setdefault(lacking, []).append(value)
        if any(alike):
            made = [
                [f"{name}={','.join(values)}" if w == word else w for w in words if w not in lacking]
                for words in made
                for lacking, values in alike.items()
            ]
    return made


def composed(arguments: list[str], conf: str) -> tuple[DictConfig, dict[str, list[str]]]:
    """The config that the arguments make, without those that list several values; and the options of each
    group, by its name. InputError where the arguments make no config."""
    args = parse(arguments)
    parsed = [refused.parsed(word) for word in args.overrides]
    words = [_line(o) for o in parsed if not o.is_sweep_override() and o.key_or_group != SEARCHPATH]
    check([word for word in arguments if word not in ("-h", "--help")], conf)
    known = _Known(conf, _searched(args, parsed))
    made = known.compose(words)
    return made, {str(key): known.options(str(key)) for key in made if known.is_group(str(key))}


def options(group: str, arguments: list[str], conf: str) -> list[str]:
    """The options of a group, with those in folders below it; empty where there is no such group. InputError
    as in `parse`."""
    return sorted(_Known(conf, _searched(parse(arguments), [])).options(group))


def settings(arguments: list[str], conf: str) -> DictConfig:
    """The config that a whole sweep has in common: Hydra's own settings (under `hydra`), `results` and
    `objective`, composed without the keys of its runs. InputError where the arguments make none."""
    args = parse(arguments)
    parsed = [refused.parsed(word) for word in args.overrides]
    common = [
        str(o.input_line)
        for o in parsed
        if (o.key_or_group.startswith("hydra") or o.key_or_group in ("results", "objective") or o.is_add())
        and o.key_or_group != SEARCHPATH
        and not (o.is_sweep_override() and not o.key_or_group.startswith("hydra"))
    ]
    try:
        return _Known(conf, _searched(args, parsed)).compose(common, hydra=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(str(error).splitlines()[0]) from None


def swept(arguments: list[str]) -> dict[str, list[str] | None]:
    """The keys that the arguments give several values, each with its values as written. The values are None
    where something else decides them: a pattern of options, or a sweeper that draws from an interval."""
    found: dict[str, list[str] | None] = {}
    for override in map(refused.parsed, parse(arguments).overrides):
        if override.is_sweep_override() and not override.key_or_group.startswith("hydra"):
            decided = override.value_type == ValueType.GLOB_CHOICE_SWEEP or override.is_interval_sweep()
            found[override.get_key_element()] = (
                None if decided else [str(value) for value in override.sweep_string_iterator()]
            )
    return found


def _is_key_of(override: Override, group: str) -> bool:
    """Whether an override sets a key inside a group that has to exist: it neither adds nor deletes it."""
    added = override.is_add() or override.is_force_add() or override.is_delete()
    return not added and override.key_or_group.startswith(f"{group}.")


def for_hydra(arguments: list[str], conf: str) -> list[str]:
    """The arguments as Hydra's own sweeper needs them.

    Hydra's sweeper first composes one config for the whole sweep, without the swept overrides. So in
    `system=digest,digest_a system.interval=5` it would look for the interval in the default system. A key of
    a swept group is therefore given as a sweep over one value."""
    args = parse(arguments)
    if not args.multirun:
        return arguments
    parsed, known = {word: refused.parsed(word) for word in args.overrides}, _Known(conf, [])
    swept = tuple(
        f"{o.key_or_group}."
        for o in parsed.values()
        if o.is_sweep_override() and known.is_group(o.key_or_group)
    )
    inside = {word: o for word, o in parsed.items() if swept and o.key_or_group.startswith(swept)}
    alone = {word for word, o in inside.items() if not o.is_sweep_override() and not o.is_delete()}
    return ["{}=choice({})".format(*key_value(word)) if word in alone else word for word in arguments]


class _Known:
    """The groups and keys that exist on the repository's own config path and in the places `searched`, which
    the arguments add."""

    def __init__(self, conf: str, searched: list[str]):
        self.conf, self.searched = conf, searched
        self.folders = [
            Path(conf),
            *(Path(s.removeprefix("file://")) for s in searched if s.startswith("file://")),
        ]
        self.complete = len(self.folders) == 1 + len(searched)  # options inside packages are not listed

    def is_group(self, key: str) -> bool:
        return any((folder / key).is_dir() for folder in self.folders)

    def options(self, group: str) -> list[str]:
        roots = [folder / group for folder in self.folders]
        return [
            p.relative_to(root).with_suffix("").as_posix() for root in roots for p in root.rglob("*.yaml")
        ]

    def plugins(self, group: str) -> list[str]:
        """The options of one of Hydra's own groups, whoever installed them."""
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(self.conf, version_base="1.3"):
                return GlobalHydra.instance().config_loader().get_group_options(group)
        finally:
            GlobalHydra.instance().clear()

    def compose(self, overrides: list[str], hydra: bool = False) -> DictConfig:
        places = [f"{SEARCHPATH}=[{','.join(self.searched)}]"] if self.searched else []
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(self.conf, version_base="1.3"):
                return compose("config", overrides=[*places, *overrides], return_hydra_config=hydra)
        finally:
            GlobalHydra.instance().clear()

    def named(self, block: str, overrides: list[str]) -> str:
        """A block's name with the option that these overrides choose for it, as `system=vanilla`."""
        if not self.is_group(block):
            return block
        choices = self.compose(overrides, hydra=True).hydra.runtime.choices
        return f"{block}={choices[block]}" if choices.get(block) else block

    def made(self, overrides: list[Override]) -> DictConfig | str:
        """The config that the overrides make, or one sentence that says why they make none."""
        # Options before the keys inside them, so that the first override without which a config could be
        # made is the one to blame.
        ordered = sorted(overrides, key=lambda o: not self.is_group(o.key_or_group))
        words = [_line(override) for override in ordered]
        made = self._tried(words)
        if isinstance(made, DictConfig):
            return made
        for number, override in enumerate(ordered, 1):
            error = self._tried(words[:number])
            if isinstance(error, HydraException):
                group = self.is_group(override.key_or_group)
                return refused.unusable(override, group, str(error).splitlines()[0])
            if isinstance(error, OmegaConfBaseException):
                return refused.unresolved(_line(override))
        return str(made).splitlines()[0]

    def _tried(self, words: list[str]) -> DictConfig | HydraException | OmegaConfBaseException:
        try:
            made = self.compose(words)
            OmegaConf.resolve(made)
        except (HydraException, OmegaConfBaseException) as error:
            return error
        return made


def _explain(overrides: list[Override], known: _Known) -> None:
    """InputError with the nearest name at the first option or key that does not exist."""
    groups = [o for o in overrides if known.is_group(o.key_or_group)]
    for override in groups:
        for value in _values(override):
            options = known.options(override.key_or_group)
            if known.complete and value not in options:
                raise InputError(refused.unknown(override.key_or_group, value, options))
    keys = [o for o in overrides if o not in groups and not o.is_add() and not o.is_force_add()]
    first = {o.key_or_group: _values(o)[0] for o in groups}
    # Each option is composed once, with the first option of every other group.
    others = [{**first, o.key_or_group: value} for o in groups for value in _values(o)[1:]]
    made = [
        (chosen, known.compose([f"{group}={value}" for group, value in chosen.items()]))
        for chosen in ([first, *others] if keys else [])
    ]
    for override in keys:
        key = override.key_or_group
        # A key inside a swept group has to exist in one of the group's options; any other key in all configs.
        of = next((g for g in groups if g.is_sweep_override() and _is_key_of(override, g.key_or_group)), None)
        if of is None or len(_values(of)) == 1:
            for chosen, composed in made:
                words = [f"{group}={value}" for group, value in chosen.items()]
                _check_key(key, composed, partial(known.named, overrides=words))
            continue
        there = {chosen[of.key_or_group]: composed for chosen, composed in made}
        if all(_lacks(key, composed) for composed in there.values()):
            *above, last = key.split(".")
            nodes = [OmegaConf.select(composed, ".".join(above)) for composed in there.values()]
            named = {str(name) for node in nodes if isinstance(node, DictConfig) for name in node}
            named.discard("_target_")
            raise InputError(f"{key} is a key of none of {', '.join(there)}{did_you_mean(last, named)}")


def _line(override: Override) -> str:
    """The word that an override was parsed from."""
    assert override.input_line is not None
    return override.input_line


def _values(override: Override) -> list[str]:
    value = override.value()
    if isinstance(value, ChoiceSweep):
        return [str(v) for v in value.list]
    if isinstance(value, list):  # several options of one group
        return [str(v) for v in value]
    return [str(value)]


def _lacks(key: str, composed: DictConfig) -> bool:
    try:
        _check_key(key, composed)
    except InputError:
        return True
    return False


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


def _check_key(key: str, composed: DictConfig, named: Callable[[str], str] = str) -> None:
    """InputError where a config has no such key; `named` gives a block's name in the sentence."""
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
                mend = refused.in_papers(part, known)
            mend = mend or did_you_mean(part, known)
            block = named(".".join(walked)) if walked else "the config"
            raise InputError(f"{key} is not a key of {block}{mend}{_preset_with(part, block)}")
        walked.append(part)
        here = here._get_node(part)
