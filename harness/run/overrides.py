"""Checks overrides before Hydra does, and refuses a mistyped one with the nearest key or name instead of a
parser's message. Also lets a sweep over a group set keys of the group's options."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import yaml
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
from harness.base.words import key_of, key_value, written
from harness.run import refused
from harness.run.composing import SEARCHPATH, compose, hydra_initialised, is_group, searched

# Options with which words are left to Hydra, unchecked.
UNCHECKED = ("help", "hydra_help", "shell_completion", "info", "config_name", "config_path")
SHARED = ("results", "objective")  # keys that all runs of a sweep have in common
# Hydra's own groups, and for some of their options the extra of this project that brings them.
PLUGINS = {
    "hydra/launcher": {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit"},
    "hydra/sweeper": {"optuna": "optuna"},
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The words as Hydra's own parser reads them, options and overrides in any order. Where they name no
    --config-dir, it is the folder that the environment names (`own_config`). InputError where they cannot be
    read."""

    def refuse(message: str) -> NoReturn:
        raise InputError(f"{message}; halobench run --help says more")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    check_options(arguments, parser, keys=True)
    args = parser.parse_intermixed_args(arguments)
    if not args.config_dir and (own := own_config()):
        args.config_dir = str(own)
    return args


def check(arguments: list[str], beside: Sequence[str] = ()) -> DictConfig | None:
    """The config of the single run that the arguments ask for; None for a sweep, and where they hold an
    option that only Hydra can follow. InputError at the first override that cannot be read, or whose group
    option or key does not exist.

    beside   keys that the command takes beside those of a run: an error may suggest them

    Keys behind a `+` are left to `harness.run.config.check`, which knows every block's schema."""
    args = parse(arguments)
    if any(getattr(args, option) for option in UNCHECKED):
        return None
    parsed = [refused.parsed(word) for word in args.overrides]
    ours = [o for o in parsed if not _is_hydras(o) and not o.is_delete()]
    for override in ours:
        if override.is_sweep_override() and not args.multirun:
            raise InputError(f"{override.input_line} lists several values: add -m to run them all")
        if override.value_type == ValueType.GLOB_CHOICE_SWEEP:
            key = override.key_or_group
            raise InputError(f"{override.input_line} is a pattern: list what it stands for, as {key}=A,B")
    refused.check_runs(ours)
    known = _Known(_searched(args, parsed), beside)
    for override in parsed:
        if override.key_or_group in PLUGINS:
            _check_plugin(override.key_or_group, str(override.value()), known)
    for override in ours:
        group = override.key_or_group
        if known.is_group(group) and override.value() is None:
            raise InputError(f"{override.input_line} names no option{did_you_mean('', known.options(group))}")
    if args.multirun:  # a sweep is composed job by job
        _explain(ours, known)
        return None
    # Where a config is only looked at, what it refers to need not be there.
    made = known.made([o for o in parsed if o.key_or_group != SEARCHPATH], not args.cfg or args.resolve)
    if isinstance(made, str):
        _explain(ours, known)
        raise InputError(made)  # _explain found nothing better to say
    given = {option for option, value in vars(args).items() if value}
    return made if given <= {"overrides", "run", "multirun", "config_dir"} else None


def _is_hydras(override: Override) -> bool:
    return override.key_or_group.startswith("hydra")


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


def _searched(args: argparse.Namespace, parsed: Iterable[Override]) -> list[str]:
    """The places that the arguments add to the config's search path. InputError where one is no folder, or a
    yaml there is beyond limits."""
    if args.config_dir and not Path(args.config_dir).is_dir():
        raise InputError(
            f'--config-dir="{args.config_dir}" is not a folder: give the one that system/NAME.yaml is in'
        )
    places = [f"file://{Path(args.config_dir).resolve()}"] if args.config_dir else []
    places += searched(parsed)
    for place in places:
        if place.startswith("file://"):
            folder = Path(place.removeprefix("file://"))
            if not folder.is_dir():
                raise InputError(f'{SEARCHPATH}="{place}" is not a folder: give file://FOLDER')
            yaml_text.check_folder(folder)
    return places


def _read(arguments: list[str]) -> tuple[list[Override], _Known]:
    """What each word of the arguments means, and what is known where they look."""
    args = parse(arguments)
    parsed = [refused.parsed(word) for word in args.overrides]
    return parsed, _Known(_searched(args, parsed))


def expand(arguments: list[str]) -> list[list[str]]:
    """The runs of a sweep in the command's order, each as its overrides. A run leaves out the keys inside a
    swept group that its option lacks: in `system=vanilla,sancus system.bound=1,2` vanilla has no bound, and
    runs once. InputError where a sweeper would have to choose values."""
    parsed, known = _read(arguments)
    lacking = _lacking(parsed, known)
    choices = [
        [f"{o.get_key_element()}={v}" for v in _each(o)] if o.is_sweep_override() else [str(o.input_line)]
        for o in parsed
    ]
    runs = []
    for run in itertools.product(*choices):
        left_out = {key for word in run for key in lacking.get(word, ())}
        runs.append(tuple(word for word in run if key_of(word) not in left_out))
    return [list(run) for run in dict.fromkeys(runs)]


def _each(override: Override) -> list[str]:
    """The values of a swept key, as written. InputError where a sweeper would have to choose them."""
    if override.is_interval_sweep():
        raise InputError(
            f"{override.input_line} lists no values: give KEY=A,B, or hydra/sweeper=optuna for it to choose"
        )
    return [*map(str, override.sweep_string_iterator())]


def _lacking(parsed: list[Override], known: _Known) -> dict[str, list[str]]:
    """The keys among the arguments that an option of a swept group lacks, by the option, as
    `system=vanilla`; of groups inside which a key is given."""
    found = {}
    for group in parsed:
        name = group.key_or_group
        if group.is_sweep_override() and known.is_group(name):
            inside = [o.key_or_group for o in parsed if _is_key_of(o, name)]
            for value in _each(group) if inside else []:
                composed = known.compose([f"{name}={value}"])
                found[f"{name}={value}"] = [key for key in inside if _lacks(key, composed)]
    return found


def composed(arguments: list[str]) -> tuple[DictConfig, dict[str, list[str]]]:
    """The config that the arguments make, without those that list several values and the keys inside groups
    that do; and the options of each group, by its name. InputError where the arguments make no config."""
    check([word for word in arguments if word not in ("-h", "--help")])
    parsed, known = _read(arguments)
    lists = [o.key_or_group for o in parsed if o.is_sweep_override()]
    inside = [o for o in parsed if any(_is_key_of(o, group) for group in lists)]
    single = [o for o in parsed if o.key_or_group not in (*lists, SEARCHPATH) and o not in inside]
    made = known.made(single, False)
    if isinstance(made, str):
        raise InputError(made)
    return made, {str(key): known.options(str(key)) for key in made if known.is_group(str(key))}


def options(group: str, arguments: list[str]) -> list[str]:
    """The options of a group, with those in folders below it; empty where there is no such group. InputError
    as in `parse`."""
    return sorted(_Known(_searched(parse(arguments), [])).options(group))


def searchpath(arguments: list[str]) -> list[str]:
    """The override that adds the places that the arguments name to Hydra's search path; [] where none."""
    return _read(arguments)[1].places


def settings(arguments: list[str]) -> DictConfig:
    """The config that a whole sweep has in common: Hydra's own settings (under `hydra`), `results` and
    `objective`, composed without the keys of its runs. InputError where the arguments make none."""
    parsed, known = _read(arguments)
    common = [
        str(o.input_line)
        for o in parsed
        if o.key_or_group != SEARCHPATH
        and (_is_hydras(o) or ((o.key_or_group in SHARED or o.is_add()) and not o.is_sweep_override()))
    ]
    try:
        return known.compose(common, whole=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(str(error).splitlines()[0]) from None


def swept(arguments: list[str]) -> list[str]:
    """The keys that the arguments give several values."""
    parsed = map(refused.parsed, parse(arguments).overrides)
    return [o.get_key_element() for o in parsed if o.is_sweep_override() and not _is_hydras(o)]


def _is_key_of(override: Override, group: str) -> bool:
    """Whether an override sets a key inside a group that has to exist: it neither adds nor deletes it."""
    added = override.is_add() or override.is_force_add() or override.is_delete()
    return not added and override.key_or_group.startswith(f"{group}.")


def for_sweeper(arguments: list[str]) -> list[str]:
    """The arguments as Hydra's sweeper needs them. InputError where not all options of a swept group
    have a key that is given inside it.

    Hydra first composes one config for the whole sweep, without the swept overrides. So in
    `system=digest,digest_a system.interval=5` it would look for the interval in the default system. A key of
    a swept group is therefore given as a sweep over one value."""
    parsed, known = _read(arguments)
    lacking = _lacking(parsed, known)
    if lacked := {key for keys in lacking.values() for key in keys}:
        words = [str(o.input_line) for o in parsed if o.key_or_group in lacked]
        raise InputError(
            f"{' '.join(words)}: not every option has the key, and a sweeper that optimises, or a config of"
            " another name, needs one space of values; give options that all have it"
        )
    groups = {option.partition("=")[0] for option in lacking}
    alone = {
        o.input_line
        for o in parsed
        if not o.is_sweep_override() and any(_is_key_of(o, group) for group in groups)
    }
    return ["{}=choice({})".format(*key_value(word)) if word in alone else word for word in arguments]


class _Known:
    """The groups and keys that exist on the repository's own config path and in the places `searched`, which
    the arguments add; `beside` as `check` takes it."""

    def __init__(self, searched: list[str], beside: Sequence[str] = ()):
        self.beside = beside
        self.places = [f"{SEARCHPATH}={written(searched)}"] if searched else []
        own = [Path(s.removeprefix("file://")) for s in searched if s.startswith("file://")]
        self.folders = [Path(CONF), *own]
        self.complete = len(own) == len(searched)  # options inside packages are not listed

    def is_group(self, key: str) -> bool:
        return is_group(key, self.folders)

    def options(self, group: str) -> list[str]:
        roots = [folder / group for folder in self.folders]
        return [
            p.relative_to(root).with_suffix("").as_posix() for root in roots for p in root.rglob("*.yaml")
        ]

    def plugins(self, group: str) -> list[str]:
        """The options of one of Hydra's own groups, whoever installed them."""
        with hydra_initialised():
            return GlobalHydra.instance().config_loader().get_group_options(group)

    def compose(self, overrides: list[str], whole: bool = False) -> DictConfig:
        """The config that these overrides make; `whole` as `compose` takes it. InputError where a file of it
        is no yaml."""
        try:
            return compose([*self.places, *overrides], whole)
        except yaml.YAMLError as error:
            said = " ".join(str(error).split())
            raise InputError(f"a file of the config is no yaml: {said}; mend it") from None

    def chosen(self, options: Mapping[str, str]) -> DictConfig:
        """The config with these options, by group. InputError where there is none, as one of a package may
        turn out not to be there."""
        words = [f"{group}={value}" for group, value in options.items()]
        try:
            return self.compose(words)
        except HydraException as error:
            raise InputError(f"{' '.join(words)} cannot be used: {str(error).splitlines()[0]}") from None

    def named(self, block: str, overrides: list[str]) -> str:
        """A block's name with the option that these overrides choose for it, as `system=vanilla`."""
        if not self.is_group(block):
            return block
        choices = self.compose(overrides, whole=True).hydra.runtime.choices
        return f"{block}={choices[block]}" if choices.get(block) else block

    def made(self, overrides: list[Override], resolve: bool) -> DictConfig | str:
        """The config that the overrides make, or one sentence that says why they make none. What it refers to
        has to be there with `resolve`."""
        # Options before the keys inside them, so that the first override without which a config could be
        # made is the one to blame.
        ordered = sorted(overrides, key=lambda o: not self.is_group(o.key_or_group))
        words = [str(override.input_line) for override in ordered]
        made = self._tried(words, resolve)
        if isinstance(made, DictConfig):
            return made
        for number, override in enumerate(ordered, 1):
            error = self._tried(words[:number], resolve)
            if isinstance(error, HydraException):
                group = self.is_group(override.key_or_group)
                return refused.unusable(override, group, str(error).splitlines()[0])
            if isinstance(error, OmegaConfBaseException):
                return refused.unresolved(str(override.input_line))
        return str(made).splitlines()[0]

    def _tried(self, words: list[str], resolve: bool) -> DictConfig | HydraException | OmegaConfBaseException:
        try:
            made = self.compose(words)
            if resolve:
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
    made = [(chosen, known.chosen(chosen)) for chosen in ([first, *others] if keys else [])]
    for override in keys:
        key = override.key_or_group
        # A key inside a swept group has to exist in one of the group's options; any other key in all configs.
        of = next((g for g in groups if g.is_sweep_override() and _is_key_of(override, g.key_or_group)), None)
        if of is None or len(_values(of)) == 1:
            for chosen, composed in made:
                words = [f"{group}={value}" for group, value in chosen.items()]
                refused.check_key(key, composed, partial(known.named, overrides=words), known.beside)
            continue
        there = {chosen[of.key_or_group]: composed for chosen, composed in made}
        if all(_lacks(key, composed) for composed in there.values()):
            *above, last = key.split(".")
            nodes = [OmegaConf.select(composed, ".".join(above)) for composed in there.values()]
            named = {str(name) for node in nodes if isinstance(node, DictConfig) for name in node}
            named.discard("_target_")
            raise InputError(f"{key} is a key of none of {', '.join(there)}{did_you_mean(last, named)}")


def _values(override: Override) -> list[str]:
    value = override.value()
    if isinstance(value, ChoiceSweep):
        value = value.list
    return [*map(str, value)] if isinstance(value, list) else [str(value)]  # a list: options of one group


def _lacks(key: str, composed: DictConfig) -> bool:
    try:
        refused.check_key(key, composed)
    except InputError:
        return True
    return False
