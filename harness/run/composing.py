"""Hydra's composition of a config, done once for runs that choose the same options of groups."""

import contextlib
import functools
import os
import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import hydra
import yaml
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base import yaml_text
from harness.base.places import CONF

SEARCHPATH = "hydra.searchpath"
OPTION = re.compile(r"[\w-]+(/[\w-]+)*")


@contextlib.contextmanager
def hydra_initialised() -> Iterator[None]:
    """While this is open, Hydra's `compose` knows the configs of this repository, and nothing of before."""
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(CONF, version_base="1.3"):
            yield
    finally:
        GlobalHydra.instance().clear()


def compose(overrides: Sequence[str], whole: bool = False) -> DictConfig:
    """The config that these overrides make, with the errors of `hydra.compose`. The caller may change it.

    whole   with Hydra's own settings, under `hydra`

    Composing takes a tenth of a second, nearly all of it for the options of groups. So the config without
    overrides is composed and kept, and in a copy each option that is a file and nothing else takes the place
    of the default. Where one chooses more (`_files`), Hydra composes the options, which is kept. All other
    overrides are set in a copy, as Hydra would set them. Where a yaml file has changed since, all is read
    again."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    places = searched(parsed)
    folders = [Path(CONF), *(Path(place.removeprefix("file://")) for place in places)]
    packages = not all(place.startswith("file://") for place in places)  # whose files have no stamps here
    if whole or packages or any(each.is_sweep_override() for each in parsed):
        return _by_hydra(overrides, whole)
    stamps = {path: (time, size) for folder in folders for path, time, size in _stamps(folder)}
    chosen: list[Override] = []
    left: list[Override] = []
    for each in parsed:
        (chosen if _chooses(each, folders) else left).append(each)
    own = _files([each for each in chosen if not _is_hydras(each)], folders, stamps)
    words = tuple(str(each.input_line) for each in chosen if each.key_or_group not in own)
    config = pickle.loads(_kept(words, tuple((path, *stamp) for path, stamp in stamps.items())))
    for group, option in own.items():
        config[group] = option
    ConfigLoaderImpl._apply_overrides_to_config(left, config)
    return config


def searched(parsed: Iterable[Override]) -> list[str]:
    """The places that overrides add to Hydra's search path."""
    places: list[str] = []
    for value in (each.value() for each in parsed if each.key_or_group == SEARCHPATH):
        places += map(str, value if isinstance(value, list) else [value])
    return places


def is_group(key: str, folders: Iterable[Path]) -> bool:
    """Whether a key is a group of options in one of these folders of configs."""
    return any((folder / key).is_dir() for folder in folders)


@functools.lru_cache(maxsize=1000)
def _kept(words: tuple[str, ...], stamps: tuple[tuple[str, int, int], ...]) -> bytes:
    """The pickled config that these overrides make of yaml files with these stamps (`_stamps`)."""
    made = _by_hydra(words)
    OmegaConf.clear_cache(made)  # of the time that Hydra read
    return pickle.dumps(made)


def _files(
    chosen: Sequence[Override], folders: Sequence[Path], stamps: Mapping[str, tuple[int, int]]
) -> dict[str, DictConfig]:
    """What the file of each chosen option holds, by group. Empty where Hydra has to compose them: where a
    file has defaults or a package of its own, a group has none by default, or one is added or taken away."""
    found: dict[str, DictConfig] = {}
    main = os.path.join(CONF, "config.yaml")
    with_default = _with_default(main, stamps[main])
    for each in chosen:
        group, option = each.key_or_group, each.value()
        changes = each.type is OverrideType.CHANGE and each.package is None and group in with_default
        if not changes or group in found or not (isinstance(option, str) and OPTION.fullmatch(option)):
            return {}
        paths = (os.path.join(folder, group, f"{option}.yaml") for folder in folders)
        path = next((path for path in paths if path in stamps), None)
        held = _alone(path, stamps[path]) if path else None
        if held is None:
            return {}
        found[group] = held
    return found


@functools.lru_cache(maxsize=8)
def _with_default(path: str, _stamp: tuple[int, int]) -> set[str]:
    """The groups of which the config at `path` chooses an option, and says nothing more."""
    main = yaml_text.parsed(Path(path).read_text())
    chosen = [each for each in main["defaults"] if isinstance(each, dict)]
    return {group for each in chosen for group, option in each.items() if option and group not in main}


@functools.lru_cache(maxsize=1000)
def _alone(path: str, _stamp: tuple[int, int]) -> DictConfig | None:
    """What the file of an option holds, as Hydra reads it; None where that is not all that it brings, and
    where it cannot be read."""
    try:
        held, text = OmegaConf.load(path), Path(path).read_text()
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException):
        return None
    if not isinstance(held, DictConfig) or "defaults" in held or "@package" in text:
        return None
    return held


def _by_hydra(overrides: Sequence[str], whole: bool = False) -> DictConfig:
    with hydra_initialised():
        return hydra.compose("config", overrides=list(overrides), return_hydra_config=whole)


def _chooses(override: Override, folders: Sequence[Path]) -> bool:
    """Whether an override chooses an option of a group, or is one of Hydra's own settings."""
    if _is_hydras(override):
        return True
    return not isinstance(override.value(), dict) and is_group(override.key_or_group, folders)


def _is_hydras(override: Override) -> bool:
    return override.key_or_group.partition(".")[0].partition("/")[0] == "hydra"


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Each yaml file below a folder, with the time of its last change in ns and its size in bytes."""
    for above, _, names in os.walk(folder):
        for path in (os.path.join(above, name) for name in names if name.endswith(".yaml")):
            with contextlib.suppress(OSError):  # a link to nothing, as some editors lock a file
                stat = os.stat(path)
                yield path, stat.st_mtime_ns, stat.st_size
