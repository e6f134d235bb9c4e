"""Checks and types a composed config: the top-level keys (`harness.run.settings`) and every block, each by
the schema that stands beside the code that uses it. Reads the config that a run folder holds, too."""

import contextlib
import dataclasses
import re
from dataclasses import MISSING, dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base.code import code_of
from harness.base.errors import InputError, as_given, check_text, did_you_mean, typed
from harness.base.machine import check_machine
from harness.base.target import KEY, check_trusted, made, target_class, target_of, trust
from harness.base.terminal import OF_A_LINE
from harness.core.architectures import model_class
from harness.core.cluster import Cluster
from harness.core.combine import Combine
from harness.core.config import EvaluateConfig, ModelConfig
from harness.core.counted import Score
from harness.core.kernels.tiling import Tilings
from harness.core.masked_labels import MaskedLabels
from harness.core.mixins import AsynchronousSystem
from harness.core.optimisers import Adam, Optimiser
from harness.core.order import Costs
from harness.core.schedules import Constant, Schedule
from harness.core.straggler import Straggler
from harness.core.system import System
from harness.data.dataset import Dataset
from harness.data.partition.config import Partitioner
from harness.results import files, kinds, objective
from harness.results.identity import WORKERS, canonical, fingerprint, identity
from harness.run.refused import unresolved
from harness.run.settings import RunConfig

# The classes of blocks that have no `_target_`.
BLOCKS: dict[str, type[Any]] = {
    "evaluate": EvaluateConfig,
    "cluster": Cluster,
    "straggler": Straggler,
    "labels": MaskedLabels,
}
# Blocks whose `_target_` names a class derived from these. A model may be named by `model.name` instead.
TARGETS: dict[str, type[Any]] = {
    "dataset": Dataset,
    "partition": Partitioner,
    "optimiser": Optimiser,
    "schedule": Schedule,
    "system": System,
    "model": ModelConfig,
    "combine": Combine,
}
# The class of a block without a `_target_`: the tree's datasets have none, and a block may be left out.
BUILT_IN = {
    "dataset": "harness.data.sources.Source",
    "optimiser": target_of(Adam),
    "schedule": target_of(Constant),
}
NULL = ("combine", "straggler", "labels")  # blocks that most runs have not
# Blocks that may be left out.
EMPTY: dict[str, dict[str, Any]] = {name: {} for name in ("model", "optimiser", "schedule", "score", *NULL)}
NEEDED = [name for name in TARGETS if name not in EMPTY]  # blocks that every config has
NAME_BYTES = 200  # of the 255 that a file system allows; a run's folder gets a number behind it
ALL = (*BLOCKS, *TARGETS, "score")


@dataclass
class Run:
    """A composed config, every block checked and typed."""

    settings: RunConfig
    dataset: Dataset
    partition: Partitioner
    model: ModelConfig
    optimiser: Optimiser
    schedule: Schedule
    evaluate: EvaluateConfig
    cluster: Cluster
    system: System
    scores: dict[str, Score]
    combine: Combine | None
    straggler: Straggler | None
    labels: MaskedLabels | None
    composed: dict[str, Any] = field(repr=False)

    @cached_property
    def directory(self) -> Path:
        """The run's folder: the same for the same run, so that a sweep started again runs only what it lacks.

        Its name ends in a hash of the config (`fingerprint`). A folder from before some key existed has
        another hash in its name; it is still found, by its config."""
        if self.settings.run_dir:
            return Path(self.settings.run_dir)
        folder = Path(self.settings.results) / graph_folder(self.dataset)
        begin = file_name(f"{self.system_name}-{self.settings.workers}w-seed{self.settings.seed}-", "label")
        named = folder / f"{begin}{self.fingerprint[:8]}"
        if named.exists():
            return named
        return next(filter(self.is_in, sorted(folder.glob(f"{begin}????????"))), named)

    def is_in(self, run_dir: Path) -> bool:
        """Whether a folder was made for this run; keys that its config lacks count at their defaults."""
        path = Path(run_dir) / "config.yaml"
        try:
            return _made_for(path, path.stat().st_mtime_ns) == self._asked_for
        except (OSError, InputError):
            return False

    @cached_property
    def _asked_for(self) -> dict[str, Any]:
        return completed(self.composed)

    @property
    def system_name(self) -> str:
        return self.settings.label or type(self.system).__module__.rpartition(".")[2]

    @property
    def graph_name(self) -> str:
        return self.dataset.label

    @property
    def code(self) -> str:
        """A hash of the code that this program would compute the run with."""
        pieces = [*filter(None, (getattr(self, name) for name in TARGETS)), *self.scores.values()]
        kernel = [self.settings.kernel.rpartition(".")[0]] if "." in self.settings.kernel else []
        return code_of("harness.run.train", *(type(piece).__module__ for piece in pieces), *kernel)

    @property
    def facts(self) -> dict[str, Any]:
        """What the run's system says of itself, by the keys of resolved.json."""
        traits = self.system.traits()
        return {
            "role": self.system.role,
            "asynchronous": isinstance(self.system, AsynchronousSystem),
            "devices": traits.devices,
            "overlaps": traits.overlaps,
            "combine": str(self.combine or traits.combine),
        }

    @property
    def follows_epochs(self) -> bool:
        """Whether what an epoch does depends on how many the whole run has."""
        return self.system.traits().follows_epochs or self.schedule.follows_epochs()

    @property
    def scheduled(self) -> bool:
        """Whether the learning rate differs between epochs."""
        epochs = self.settings.epochs
        return any(self.schedule.factor(epoch, epochs) != 1.0 for epoch in range(epochs))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.composed, isinstance(self.system, AsynchronousSystem))


@lru_cache(maxsize=4096)
def _made_for(path: Path, _changed: int) -> dict[str, Any]:
    """`completed` of the config at `path`, kept until the file changes: a sweep looks at the same folders
    once for each run that it lacks."""
    return completed(stored(path.parent))


def completed(composed: dict[str, Any]) -> dict[str, Any]:
    """The `identity` of a config, with keys that the config lacks at their defaults."""
    config, asynchronous = {**EMPTY, **canonical(composed)}, True
    for name in (*TARGETS, *BLOCKS):
        block = _named(config.get(name, {}), name)
        if name in NULL and not block:
            continue
        # Where the class cannot be imported here or is not trusted, keys are compared as they stand.
        with contextlib.suppress(InputError):
            check_trusted({name: block}, "a run")
            cls = _class_of(name, block)
            target = {} if name in BLOCKS else {KEY: target_of(cls)}
            block = {**target, **_defaults(cls), **block}
            if issubclass(cls, System):
                asynchronous = issubclass(cls, AsynchronousSystem)
        config[name] = block
    return identity({**_defaults(RunConfig), **config}, asynchronous)


def _defaults(cls: type) -> dict[str, Any]:
    """The values of a dataclass's fields that have one."""
    made: dict[str, Any] = {}
    for f in dataclasses.fields(cls):
        if f.init and f.default is not MISSING:
            made[f.name] = f.default
        elif f.init and f.default_factory is not MISSING:
            made[f.name] = f.default_factory()
    return _plain(OmegaConf.create(made))


def _plain(config: DictConfig, resolve: bool = False) -> dict[str, Any]:
    """A config's values in dicts and lists."""
    values = OmegaConf.to_container(config, resolve=resolve)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def file_name(text: str, key: str) -> str:
    """A text as part of a folder's name. InputError, which names its key, where it is too long."""
    name = re.sub(r"[^\w.-]+", "-", text)
    if len(name.encode()) > NAME_BYTES:
        raise InputError(
            f"{key} is too long for the name of a folder: give {NAME_BYTES - 50} letters or fewer"
        )
    return name


def check(config: DictConfig | dict[str, Any]) -> Run:
    """Check a composed config block by block; InputError with one sentence at the first thing wrong.

    Modules that the config names are trusted from then on, since the user gave it. So a config from a run
    folder, which may be somebody else's, goes through `load`."""
    if isinstance(config, DictConfig):
        try:
            missing = sorted(OmegaConf.missing_keys(config))
            config = _plain(config, resolve=True)
        except OmegaConfBaseException as error:
            raise InputError(unresolved(str(error.full_key or "a value"))) from None
        if missing:
            raise InputError(f"{missing[0]} is not given: add {missing[0]}=VALUE to the command")
    check_text(config, held=OF_A_LINE)
    trust(config)
    # A checked config always has the number of workers.
    config = {WORKERS: RunConfig.workers, **kinds.as_text(canonical(config))}
    whole = {**EMPTY, **config}
    blocks: dict[str, Any] = {name: make(name, _block(whole, name)) for name in (*BLOCKS, *TARGETS)}
    scores = make_scores(_block(whole, "score"))
    top = {k: v for k, v in config.items() if k not in ALL}
    known = [*RunConfig.__dataclass_fields__, *ALL]
    for key in top:
        if key not in known:
            raise InputError(f"{key} is not a key of the config{did_you_mean(key, known)}")
    settings = typed(RunConfig, {**top, "progress": as_given(top.get("progress", "auto"))}, "")
    blocks["cluster"].check_workers(settings.workers)
    straggler = blocks["straggler"]
    if straggler is not None and straggler.rank >= settings.workers:
        raise InputError(
            f"straggler.rank={straggler.rank} is not a worker of {settings.workers}; give 0 to"
            f" {settings.workers - 1}"
        )
    objective.direction(settings.objective, scores)
    return Run(settings=settings, scores=scores, composed=config, **blocks)


def make(name: str, block: dict[str, Any]) -> Any:
    """What the block `name`, one of BLOCKS and TARGETS, describes; None for an empty one of NULL."""
    if name in NULL and not block:
        return None
    given = block if name in BLOCKS else {k: v for k, v in block.items() if k != KEY}
    return typed(_class_of(name, block), given, name)


def make_system(block: dict[str, Any]) -> System:
    """The system that a block describes."""
    return made(block, "system", System)


def make_scores(block: dict[str, Any]) -> dict[str, Score]:
    """The scores of a block `score`, by name, each the class its own `_target_` names."""
    for name in block:
        said = name in ("acc", "auc", "balanced", "balanced_acc", "majority")
        if said or name.startswith(("train_", "val_", "test_", "best_", "last_")):
            raise InputError(f"score.{name} has the name of a score that every run has; give it another")
    return {name: made(_block(block, name), f"score.{name}", Score) for name in block}


def _class_of(name: str, block: dict[str, Any]) -> type[Any]:
    """The class of the block `name`, one of BLOCKS and TARGETS. InputError as `target_class`."""
    if name == "model":
        return model_class(block)
    return BLOCKS.get(name) or target_class(_named(block, name), name, TARGETS[name])


def load(run_dir: Path) -> Run:
    """The run that a folder was made for. InputError where it is not a run folder, or where its config is
    damaged or names a class in a module that is not trusted (`harness.base.target`)."""
    config, path = stored(run_dir), Path(run_dir) / "config.yaml"
    check_trusted(config, path)
    try:
        return check(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def stored(run_dir: Path) -> dict[str, Any]:
    """The composed config in a run folder, unchecked. InputError where there is none or it is damaged."""
    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise InputError(
            f"{run_dir} is no folder of a run, which holds a config.yaml: `halobench runs list` names those"
            " there are, and `halobench prepare` makes one"
        )
    try:
        config: Any = OmegaConf.to_container(OmegaConf.create(files.read_yaml_text(path)))
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException, RecursionError) as error:
        check_machine(error, path)
        raise InputError(
            f"{path} is damaged ({str(error).splitlines()[0]}); start the run anew with fresh=true"
        ) from None
    except AssertionError:  # omegaconf's own, of a text that is neither a block nor a list
        config = None
    for name in NEEDED:
        if not isinstance(config, dict) or name not in config:
            raise InputError(f"{path} is damaged (it names no {name}); start the run anew with fresh=true")
    kinds.check(path, config, "start the run anew with fresh=true")
    return canonical(config)


def graph_folder(dataset: Dataset) -> str:
    """The name of the folder that a graph's runs stand in, below `results`. InputError where the graph's name
    is too long for one."""
    return file_name(dataset.label, "dataset.name")


def shard_folder(run_dir: Path) -> Path:
    """The folder of a prepared run's shards. InputError where the run folder does not say which it is."""
    path = Path(run_dir) / "shards.json"
    try:
        return Path(files.read_json(path)["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        check_machine(error, path)
        raise InputError(
            f"{path} is missing or damaged ({error}); prepare the run again with halobench prepare"
        ) from None


def measured(run_dir: Path) -> dict[str, Any]:
    """`tilings` and `costs` of a prepared run's products, as `harness.run.products.measured` gave them; empty
    and None where the run folder does not say. InputError where it holds something else in their place."""
    path = Path(run_dir) / "shards.json"
    found: dict[str, Any] = {"tilings": {}, "costs": None}
    with contextlib.suppress(OSError, ValueError, TypeError):
        found |= files.read_json(path)
    kinds.check(path, found, "prepare the run anew with fresh=true")
    try:
        Tilings.of_json(found["tilings"])
        if found["costs"] is not None:
            Costs.of_json(found["costs"]).check()
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise InputError(
            f"{path} is damaged: what it says of products was not measured by this program; prepare the run"
            " anew with fresh=true"
        ) from None
    return found


def _named(block: dict[str, Any], name: str) -> dict[str, Any]:
    """The block; where it has no `_target_`, with that of BUILT_IN."""
    return {"_target_": BUILT_IN[name], **block} if name in BUILT_IN else block


def _block(config: dict[str, Any], name: str) -> dict[str, Any]:
    block = config.get(name)
    if not isinstance(block, dict):
        given = f"{name}.KEY=VALUE" if name == "evaluate" else f"{name}=NAME"
        raise InputError(f"{name}={as_given(block)} is not a block of keys: give {given}")
    return block
