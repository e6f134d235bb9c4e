"""Hydra's composition of a config, done once for runs that choose the same options of groups."""

import contextlib
import functools
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import hydra
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from harness.base.places import CONF

SEARCHPATH = "hydra.searchpath"


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

    Composing takes a tenth of a second, nearly all of it for the options of groups. So a config is composed
    by these alone, and kept; all other overrides are set in a copy, as Hydra would set them. Where a yaml
    file has changed since, the config is composed again."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    places = searched(parsed)
    folders = [Path(CONF), *(Path(place.removeprefix("file://")) for place in places)]
    packages = not all(place.startswith("file://") for place in places)  # whose files have no stamps here
    if whole or packages or any(each.is_sweep_override() for each in parsed):
        return _by_hydra(overrides, whole)
    words = tuple(str(each.input_line) for each in parsed if _chooses(each, folders))
    config = pickle.loads(_kept(words, tuple(stamp for folder in folders for stamp in _stamps(folder))))
    left = [each for each in parsed if not _chooses(each, folders)]
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


def _by_hydra(overrides: Sequence[str], whole: bool = False) -> DictConfig:
    with hydra_initialised():
        return hydra.compose("config", overrides=list(overrides), return_hydra_config=whole)


def _chooses(override: Override, folders: Sequence[Path]) -> bool:
    """Whether an override chooses an option of a group, or is one of Hydra's own settings."""
    key = override.key_or_group
    if key.partition(".")[0].partition("/")[0] == "hydra":
        return True
    return not isinstance(override.value(), dict) and is_group(key, folders)


def _stamps(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Each yaml file below a folder, with the time of its last change in ns and its size in bytes."""
    for above, _, names in os.walk(folder):
        for path in (os.path.join(above, name) for name in names if name.endswith(".yaml")):
            stat = os.stat(path)
            yield path, stat.st_mtime_ns, stat.st_size
