"""The typed schema of a whole run: the top-level keys here, each block's schema beside the code that
uses it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.base.code import code_of
from harness.check import InputError, at_least, choice, did_you_mean, typed
from harness.check.target import make, target_class, target_of
from harness.cluster.config import Cluster
from harness.comm.comm import WIRES
from harness.comm.transport import TRANSPORTS
from harness.core.architectures import model_class
from harness.core.config import EvaluateConfig, ModelConfig
from harness.core.counted import Score
from harness.core.kernels import KERNELS
from harness.core.optimisers import Adam, Optimiser
from harness.core.schedules import Constant, Schedule
from harness.core.system import System
from harness.graph.config import DatasetConfig
from harness.partition.config import PartitionConfig
from harness.trace.identity import fingerprint, identity

BLOCKS = {
    "dataset": DatasetConfig,
    "partition": PartitionConfig,
    "evaluate": EvaluateConfig,
    "cluster": Cluster,
}
# Blocks that name their class with `_target_`, and how the class is found; of a block without one, as those
# of before 0.2 are, it is the default.
CHOSEN: dict[str, Callable[[dict[str, Any]], type]] = {
    "model": model_class,
    "optimiser": lambda block: target_class({"_target_": target_of(Adam), **block}, Optimiser, "optimiser"),
    "schedule": lambda block: target_class({"_target_": target_of(Constant), **block}, Schedule, "schedule"),
}


@dataclass
class RunConfig:
    """Top-level keys.

    gpus      workers: one a GPU, GPUs shared where there are fewer; on the CPU the name stays and means
              workers
    epochs, seed, label (what tables call the run; null: the system's name)
    device    "auto", "cpu" or "cuda"; threads: CPU threads a worker (null: cores / workers, at least 1)
    kernel    sparse kernel: "auto", "dgl", "numba" or "torch"
    transport "memory", which the workers of one Linux host share, or "sockets" (gloo); "auto": memory where
    it can be. Workers with a GPU
              each use NCCL
    wire      "float32", or "bfloat16": rows of exchanges and broadcasts are rounded on their way, in both
              directions; sums (weights, batch norm) and evaluation are not
    data_dir  raw data sets; results: where run folders go; cache: graphs and shards
    run_dir   this run's folder (null: named by content under `results`)
    checkpoint_every   epochs between checkpoints, 0 for none
    fresh     start anew where the same run has finished or stopped before (its folder is kept beside)
    stale     "show" a run that other code computed, and say so, or "rerun" it (its folder is kept beside)
    diverged  "stop" a run whose loss is no longer a finite number, or "go_on"
    launch    "local", or "prepare" to write the run folder and print the torchrun command
    progress  "auto" (on a terminal), true or false
    """

    gpus: int = 1
    epochs: int = 200
    seed: int = 1
    label: str | None = None
    device: str = "auto"
    threads: int | None = None
    kernel: str = "auto"
    transport: str = "auto"
    wire: str = "float32"
    data_dir: str = "data"
    results: str = "results"
    cache: str = "results/cache"
    run_dir: str | None = None
    checkpoint_every: int = 20
    fresh: bool = False
    stale: str = "show"
    diverged: str = "stop"
    launch: str = "local"
    progress: str = "auto"

    def __post_init__(self) -> None:
        at_least("gpus", self.gpus, 1)
        at_least("epochs", self.epochs, 1)
        at_least("seed", self.seed, 0)
        choice("device", self.device, ("auto", "cpu", "cuda"))
        choice("kernel", self.kernel, KERNELS)
        choice("transport", self.transport, TRANSPORTS)
        choice("wire", self.wire, WIRES)
        if self.threads is not None:
            at_least("threads", self.threads, 1)
        at_least("checkpoint_every", self.checkpoint_every, 0)
        choice("stale", self.stale, ("show", "rerun"))
        choice("diverged", self.diverged, ("stop", "go_on"))
        choice("launch", self.launch, ("local", "prepare"))
        choice("progress", str(self.progress).lower(), ("auto", "true", "false"))


@dataclass
class Run:
    """A composed config, every block checked and typed."""

    settings: RunConfig
    dataset: DatasetConfig
    partition: PartitionConfig
    model: ModelConfig
    optimiser: Optimiser
    schedule: Schedule
    evaluate: EvaluateConfig
    cluster: Cluster
    system: System
    scores: dict[str, Score]
    composed: dict[str, Any] = field(repr=False)

    @cached_property
    def directory(self) -> Path:
        """The run's folder: the same for the same run, so that a sweep started again runs only what is
        missing.

        Its name is a hash of the config. A version with other keys gave it another name, under which it is
        still found.
        """
        if self.settings.run_dir:
            return Path(self.settings.run_dir)
        folder = Path(self.settings.results) / file_name(self.graph_name)
        begin = file_name(f"{self.system_name}-{self.settings.gpus}w-seed{self.settings.seed}-")
        named = folder / f"{begin}{self.fingerprint[:8]}"
        if named.exists():
            return named
        return next((path for path in sorted(folder.glob(f"{begin}????????")) if self.is_in(path)), named)

    def is_in(self, run_dir: Path) -> bool:
        """Whether a folder was made for this run, by whatever version."""
        try:
            return completed(stored(run_dir)) == completed(self.composed)
        except InputError:
            return False

    @property
    def system_name(self) -> str:
        return self.settings.label or type(self.system).__module__.rpartition(".")[2]

    @property
    def graph_name(self) -> str:
        return f"twin/{self.dataset.name}" if self.dataset.source == "twin" else self.dataset.name

    @property
    def code(self) -> str:
        """A hash of the code that this program would compute the run with."""
        named = (self.system, self.model, self.optimiser, self.schedule, *self.scores.values())
        return code_of("harness.run.worker", *(type(each).__module__ for each in named))

    @property
    def scheduled(self) -> bool:
        """Whether the learning rate differs between epochs."""
        epochs = self.settings.epochs
        return any(self.schedule.factor(epoch, epochs) != 1.0 for epoch in range(epochs))

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.composed, self.system.asynchronous)


def completed(composed: dict[str, Any]) -> dict[str, Any]:
    """What is run, with the keys that the config's version did not know at the values that do what it did."""
    config, asynchronous = dict(composed), True
    with contextlib.suppress(InputError):  # of a system that is not here, keys are compared as they stand
        cls = system_class(config["system"])
        config["system"] = {**_defaults(cls), **cls.since, **config["system"]}
        asynchronous = cls.asynchronous
    for name, cls in BLOCKS.items():
        config[name] = {**_defaults(cls), **config.get(name, {})}
    for name in CHOSEN:
        block = config.get(name, {})
        with contextlib.suppress(InputError):
            cls = CHOSEN[name](block)
            block = {"_target_": target_of(cls), **_defaults(cls), **block}
        config[name] = block
    config.setdefault("score", {})
    return identity({**_defaults(RunConfig), **config}, asynchronous)


def _defaults(cls: type) -> dict[str, Any]:
    """The values of a dataclass's fields that have one."""
    made = {
        f.name: f.default if f.default is not MISSING else f.default_factory()
        for f in dataclasses.fields(cls)
        if f.init and (f.default is not MISSING or f.default_factory is not MISSING)
    }
    return OmegaConf.to_container(OmegaConf.create(made))


def file_name(text: str) -> str:
    return re.sub(r"[^\w.-]+", "-", text)


def check(config: DictConfig | dict[str, Any]) -> Run:
    """Check a composed config block by block; InputError with one sentence at the first thing wrong."""
    if isinstance(config, DictConfig):
        try:
            missing = sorted(OmegaConf.missing_keys(config))
            config = OmegaConf.to_container(config, resolve=True)
        except OmegaConfBaseException as error:
            raise InputError(f"{error.full_key} cannot be resolved: {str(error).splitlines()[0]}") from None
        if missing:
            raise InputError(f"{missing[0]} is not given: add {missing[0]}=VALUE to the command")
    blocks = {name: typed(cls, _block(config, name), name) for name, cls in BLOCKS.items()}
    for name in CHOSEN:
        blocks[name] = make_chosen(name, _block({name: {}, **config}, name))
    blocks["scores"] = make_scores(_block({"score": {}, **config}, "score"))
    named = (*BLOCKS, *CHOSEN, "score", "system")
    top = {k: v for k, v in config.items() if k not in named}
    known = [*RunConfig.__dataclass_fields__, *named]
    for key in top:
        if key not in known:
            raise InputError(f"{key} is not a key of the config{did_you_mean(key, known)}")
    try:
        settings = typed(RunConfig, {**top, "progress": str(top.get("progress", "auto"))}, "config")
    except InputError as error:
        raise InputError(str(error).removeprefix("config.")) from None
    blocks["cluster"].check_workers(settings.gpus)
    return Run(settings=settings, system=make_system(_block(config, "system")), composed=config, **blocks)


def make_chosen(name: str, block: dict[str, Any]) -> Any:
    """What a block of CHOSEN describes: the class its `_target_` names, built from its other keys."""
    return make(CHOSEN[name](block), block, name)


def make_scores(block: dict[str, Any]) -> dict[str, Score]:
    """The scores of a block `score`, by name, each the class its own `_target_` names."""
    for name in block:
        if name in ("acc", "auc", "balanced"):
            raise InputError(f"score.{name} has the name of a score that every run has; give it another")
    return {
        name: make(target_class(_block(block, name), Score, f"score.{name}"), block[name], f"score.{name}")
        for name in block
    }


def make_system(block: dict[str, Any]) -> System:
    """The system its `_target_` names, built from the block's other keys."""
    return make(system_class(block), block, "system")


def system_class(block: dict[str, Any]) -> type[System]:
    """The class that a block's `_target_` names. InputError where there is none, or it does not say what a
    system must.
    """
    cls = target_class(block, System, "system")
    if lacking := cls.lacks():
        raise InputError(
            f'system._target_="{block["_target_"]}" lacks the method {lacking}; define it as'
            " harness/core/system.py says"
        )
    return cls


def configured() -> dict[str, dict[str, Any]]:
    """Every system of `conf/system/` by name, and its block there."""
    found = sorted(path for path in (files("conf") / "system").iterdir() if path.name.endswith(".yaml"))
    return {path.name.removesuffix(".yaml"): yaml.safe_load(path.read_text()) for path in found}


def of_file(block: dict[str, Any]) -> System:
    """The system of a block as it stands in `conf/system/`, with Hydra's own keys."""
    return make_system({key: value for key, value in block.items() if key != "defaults"})


def brings_partition(block: dict[str, Any]) -> bool:
    """Whether a system, given by its block of `conf/system/`, is over a vertex-cut, whose partitions are no
    other system's.
    """
    return of_file(block).cut == "vertex"


def load(run_dir: Path) -> Run:
    """The run a folder was made for. InputError where the folder is none or its config is damaged."""
    return check(stored(run_dir))


def stored(run_dir: Path) -> dict[str, Any]:
    """The composed config in a run folder, unchecked. InputError where there is none or it is damaged."""
    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise InputError(
            f'RUN_DIR="{run_dir}" holds no config.yaml; prepare one with python -m harness ... launch=prepare'
        )
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(
            f"{path} is damaged ({str(error).splitlines()[0]}); give fresh=true to start the run anew"
        ) from None
    if not isinstance(config, dict) or "system" not in config:
        raise InputError(f"{path} is damaged (it names no system); give fresh=true to start the run anew")
    for name in (*BLOCKS, *CHOSEN, "score", "system"):
        if not isinstance(config.get(name, {}), dict):
            raise InputError(
                f"{path} is damaged ({name} is no block of keys); give fresh=true to start the run anew"
            )
    return config


def shard_folder(run_dir: Path) -> Path:
    """Where the shards of a prepared run folder stand. InputError where the folder does not say."""
    path = Path(run_dir) / "shards.json"
    try:
        return Path(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is missing or damaged ({error}); prepare the run again with python -m harness"
        ) from None


def _block(config: dict[str, Any], name: str) -> dict[str, Any]:
    block = config.get(name)
    if not isinstance(block, dict):
        raise InputError(f"{name}={block!r} is not a block of keys; choose one with {name}=NAME")
    return block
