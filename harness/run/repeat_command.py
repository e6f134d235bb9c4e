"""The command that makes a run again, from the config that its folder holds."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from harness.base import yaml_text
from harness.base.errors import InputError
from harness.base.places import CONF, command_line, own_config, own_config_option
from harness.base.words import written
from harness.results.report.groups import flatten
from harness.run import config as configs
from harness.run import runner
from harness.run.settings import RunConfig

GROUPS = ("system", "dataset", "partition", "model", "optimiser", "schedule", "cluster")
# By group, the key that identifies its options beside `_target_`: an option with another value there is not
# the one sought.
OWN = {"dataset": "source", "model": "name"}
# Defaults of the top-level keys, which a command need not give. They matter for the keys that a config has
# where its system cannot be imported here: it then counts as asynchronous, and its MEETING_KEYS as part of
# the run.
DEFAULTS = dataclasses.asdict(RunConfig())


def command(stored: Sequence[Mapping[str, Any]], results: Path | None = None) -> str:
    """`halobench run ...` for runs whose configs differ in their seed alone: a sweep over their seeds.

    stored    their configs, as their folders hold them (`harness.run.config.stored`)
    results   the folder of results that they are in, where the command finds finished runs again

    Raises InputError where a block names a class that no yaml of this tree, or of the user's own folder of
    configs, has."""
    seeds = sorted({config.get("seed", 1) for config in stored})
    chosen = words(stored[0])
    own = any(not (Path(CONF) / f"{word.replace('=', '/')}.yaml").exists() for word in chosen[:2])
    given = [*(own_config_option() if own else []), *chosen, *_places(stored[0], results)]
    if len(seeds) > 1:
        given = [word for word in given if not word.startswith("seed=")]
        return command_line(["halobench", "run", "-m", *given], own) + f" seed={','.join(map(str, seeds))}"
    return command_line(["halobench", "run", *given], own)


def words(stored: Mapping[str, Any]) -> list[str]:
    """Overrides that make this config: the nearest option of each group, then the keys that differ from those
    of the options."""
    wanted = configs.completed(dict(stored))
    chosen = [f"{group}={option(group, wanted[group])}" for group in GROUPS[:2]]
    usual = _base(tuple(chosen))
    nearest = {group: option(group, wanted[group]) for group in GROUPS[2:]}
    chosen += [f"{group}={name}" for group, name in nearest.items() if name != option(group, usual[group])]
    known, asked = {**DEFAULTS, **flatten(_base(tuple(chosen)))}, flatten(wanted)
    more = [
        f"{'' if key in known else '+'}{key}={written(value)}"
        for key, value in asked.items()
        if key not in known or known[key] != value
    ]
    return [*chosen, *more]


def _places(stored: Mapping[str, Any], results: Path | None) -> list[str]:
    """Overrides for the folders of raw data and of results, where they are not the defaults. `words` leaves
    them out, since they are no part of what is run."""
    folder = stored.get("data_dir", RunConfig.data_dir)
    real = stored["dataset"].get("source", "real") == "real"
    words = [f"data_dir={written(folder)}"] if real and folder != RunConfig.data_dir else []
    if results is not None and str(results) != RunConfig.results and not stored.get("run_dir"):
        words.append(f"results={written(str(results))}")
    return words


@cache
def _base(chosen: tuple[str, ...]) -> dict[str, Any]:
    """The completed config of a command with these options alone."""
    with_path = [*chosen, *(["dataset.path=none"] if "dataset=npz" in chosen else [])]
    return configs.completed(runner.composed([with_path])[0].composed)


@cache
def _options(group: str, folder: Path) -> dict[str, dict[str, Any]]:
    """The options of a group in a folder of configs, by name; those in subfolders of the group come last."""
    root = folder / group
    paths = sorted(root.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    return {
        path.relative_to(root).with_suffix("").as_posix(): yaml_text.parsed(path.read_text())
        for path in paths
    }


def option(group: str, block: Mapping[str, Any]) -> str:
    """The option of a group that differs from `block` in the fewest keys; one with the block's `name` goes
    first. InputError where no option names the block's class."""

    def apart(one: dict[str, Any]) -> tuple[bool, int]:
        differing = [key for key, value in one.items() if key != "defaults" and block.get(key) != value]
        return "name" in differing, len(differing)

    known = _options(group, Path(CONF))
    if (folder := own_config()) is not None:
        known = {**known, **_options(group, folder)}
    own = {key: block.get(key) for key in ("_target_", OWN.get(group, "_target_"))}
    found = {
        name: one
        for name, one in known.items()
        if all(one.get(key, value) == value for key, value in own.items())
    }
    if not found:
        raise InputError(
            f"{group}._target_={own['_target_']} is none of this tree's: give the folder of its yaml with"
            " --config-dir, and that of its module with PYTHONPATH"
        )
    return min(found, key=lambda name: apart(found[name]))
