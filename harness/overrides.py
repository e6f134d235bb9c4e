"""Refuse a mistyped override before Hydra does, with the nearest key or name instead of a parser's message."""

from __future__ import annotations

from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from harness.check import InputError, did_you_mean


def check(arguments: list[str], conf: str) -> None:
    """InputError at the first override whose group option or key does not exist.

    Keys behind a `+` are left to `harness.config.check`, which knows every block's schema.
    """
    words = [a for a in arguments if "=" in a and not a.startswith("-")]
    try:
        parsed = OverridesParser.create().parse_overrides(words)
    except HydraException as error:
        raise InputError(f"an override cannot be read: {str(error).splitlines()[0]}") from None
    parsed = [o for o in parsed if not o.key_or_group.startswith("hydra") and not o.is_delete()]
    searched = any(a.startswith("hydra.searchpath") for a in arguments) or any(a.startswith("--config") for a in arguments)
    if searched:
        return  # groups from elsewhere: Hydra itself knows what they hold
    groups = [o for o in parsed if (Path(conf) / o.key_or_group).is_dir()]
    for override in groups:
        for value in _values(override):
            _check_option(override.key_or_group, value, Path(conf))
    keys = [o for o in parsed if o not in groups and not o.is_add() and not o.is_force_add()]
    if not keys:
        return
    chosen = [f"{o.key_or_group}={_values(o)[0]}" for o in groups]
    GlobalHydra.instance().clear()
    with initialize_config_dir(conf, version_base="1.3"):
        composed = compose("config", overrides=chosen)
    GlobalHydra.instance().clear()
    for override in keys:
        _check_key(override.key_or_group, composed)


def _values(override: Override) -> list[str]:
    value = override.value()
    if override.is_sweep_override() and hasattr(value, "list"):
        return [str(v) for v in value.list]
    return [str(value)]


def _check_option(group: str, value: str, conf: Path) -> None:
    folder = conf / group
    if (folder / f"{value}.yaml").is_file():
        return
    known = [p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.yaml")]
    raise InputError(f'{group}="{value}" is not known{did_you_mean(value, known)}')


def _check_key(key: str, composed: DictConfig) -> None:
    here, walked = composed, []
    for part in key.split("."):
        known = list(here) if isinstance(here, DictConfig) else []
        if part not in known:
            raise InputError(f'{key} is not a key of {".".join(walked) or "the config"}{did_you_mean(part, known)}')
        walked.append(part)
        here = here._get_node(part)
