"""The typed schema of a whole run: the top-level keys here, each block's schema beside the code that uses it."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.check import InputError, at_least, choice, did_you_mean, typed
from harness.cluster.config import Cluster
from harness.comm.transport import TRANSPORTS
from harness.core.config import EvaluateConfig, ModelConfig, OptimiserConfig
from harness.core.kernels import KERNELS
from harness.core.system import System
from harness.graph.config import DatasetConfig
from harness.partition.config import PartitionConfig

BLOCKS = {"dataset": DatasetConfig, "partition": PartitionConfig, "model": ModelConfig, "optimiser": OptimiserConfig,
          "evaluate": EvaluateConfig, "cluster": Cluster}
# Keys that say where and how to run, not what: two runs that differ only here are the same run.
PLACE_KEYS = ("data_dir", "results", "cache", "device", "threads", "transport", "checkpoint_every", "fresh", "launch", "progress", "run_dir")


@dataclass
class RunConfig:
    """Top-level keys.

    gpus      workers: one a GPU, GPUs shared where there are fewer; on the CPU the name stays and means workers
    epochs, seed, label (what tables call the run; null: the system's name)
    device    "auto", "cpu" or "cuda"; threads: CPU threads a worker (null: cores / workers, at least 1)
    kernel    sparse kernel: "auto", "dgl", "numba" or "torch"
    transport "memory", which the workers of one Linux host share, or "sockets" (gloo); "auto": memory where it can be. Workers with a GPU
              each use NCCL
    data_dir  raw data sets; results: where run folders go; cache: graphs and shards
    run_dir   this run's folder (null: named by content under `results`)
    checkpoint_every   epochs between checkpoints, 0 for none
    fresh     start anew where the same run has finished or stopped before (its folder is kept beside)
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
    data_dir: str = "data"
    results: str = "results"
    cache: str = "results/cache"
    run_dir: str | None = None
    checkpoint_every: int = 20
    fresh: bool = False
    launch: str = "local"
    progress: str = "auto"

    def __post_init__(self) -> None:
        at_least("gpus", self.gpus, 1)
        at_least("epochs", self.epochs, 1)
        at_least("seed", self.seed, 0)
        choice("device", self.device, ("auto", "cpu", "cuda"))
        choice("kernel", self.kernel, KERNELS)
        choice("transport", self.transport, TRANSPORTS)
        if self.threads is not None:
            at_least("threads", self.threads, 1)
        at_least("checkpoint_every", self.checkpoint_every, 0)
        choice("launch", self.launch, ("local", "prepare"))
        choice("progress", str(self.progress).lower(), ("auto", "true", "false"))


@dataclass
class Run:
    """A composed config, every block checked and typed."""

    settings: RunConfig
    dataset: DatasetConfig
    partition: PartitionConfig
    model: ModelConfig
    optimiser: OptimiserConfig
    evaluate: EvaluateConfig
    cluster: Cluster
    system: System
    composed: dict[str, Any] = field(repr=False)

    @property
    def directory(self) -> Path:
        """The run's folder: the same for the same run, so that a sweep started again runs only what is missing."""
        if self.settings.run_dir:
            return Path(self.settings.run_dir)
        system = f"{self.system_name}-{self.settings.gpus}w-seed{self.settings.seed}-{self.fingerprint[:8]}"
        return Path(self.settings.results) / file_name(self.graph_name) / file_name(system)

    @property
    def system_name(self) -> str:
        return self.settings.label or type(self.system).__module__.rpartition(".")[2]

    @property
    def graph_name(self) -> str:
        return f"twin/{self.dataset.name}" if self.dataset.source == "twin" else self.dataset.name

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.composed)


def fingerprint(composed: dict[str, Any]) -> str:
    """A hash of everything in a composed config but where and how to run it."""
    what = {k: v for k, v in composed.items() if k not in PLACE_KEYS}
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


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
    top = {k: v for k, v in config.items() if k not in BLOCKS and k != "system"}
    known = [*RunConfig.__dataclass_fields__, *BLOCKS, "system"]
    for key in top:
        if key not in known:
            raise InputError(f'{key} is not a key of the config{did_you_mean(key, known)}')
    try:
        settings = typed(RunConfig, {**top, "progress": str(top.get("progress", "auto"))}, "config")
    except InputError as error:
        raise InputError(str(error).removeprefix("config.")) from None
    blocks["cluster"].check_workers(settings.gpus)
    return Run(settings=settings, system=make_system(_block(config, "system")), composed=config, **blocks)


def make_system(block: dict[str, Any]) -> System:
    """The system its `_target_` names, built from the block's other keys."""
    target = str(block.get("_target_", ""))
    module, _, name = target.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(f'system._target_="{target}" cannot be imported: {error}; is its module on the Python path?') from None
    if not (isinstance(cls, type) and issubclass(cls, System)):
        raise InputError(f'system._target_="{target}" is not a System; derive the class from harness.core.system.System')
    return typed(cls, {k: v for k, v in block.items() if k != "_target_"}, "system")


def configured() -> dict[str, dict[str, Any]]:
    """Every system of `conf/system/` by name, and its block there."""
    found = sorted(path for path in (files("conf") / "system").iterdir() if path.name.endswith(".yaml"))
    return {path.name.removesuffix(".yaml"): yaml.safe_load(path.read_text()) for path in found}


def brings_partition(block: dict[str, Any]) -> bool:
    """Whether a system, given by its block of `conf/system/`, is over a vertex-cut, whose partitions are no other system's."""
    return make_system({key: value for key, value in block.items() if key != "defaults"}).cut == "vertex"


def load(run_dir: Path) -> Run:
    """The run a folder was made for. InputError where the folder is none or its config is damaged."""
    return check(stored(run_dir))


def stored(run_dir: Path) -> dict[str, Any]:
    """The composed config in a run folder, unchecked. InputError where there is none or it is damaged."""
    path = Path(run_dir) / "config.yaml"
    if not path.is_file():
        raise InputError(f'RUN_DIR="{run_dir}" holds no config.yaml; prepare one with python -m harness ... launch=prepare')
    try:
        config = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}); give fresh=true to start the run anew") from None
    if not isinstance(config, dict) or "system" not in config:
        raise InputError(f"{path} is damaged (it names no system); give fresh=true to start the run anew")
    return config


def shard_folder(run_dir: Path) -> Path:
    """Where the shards of a prepared run folder stand. InputError where the folder does not say."""
    path = Path(run_dir) / "shards.json"
    try:
        return Path(json.loads(path.read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is missing or damaged ({error}); prepare the run again with python -m harness") from None


def _block(config: dict[str, Any], name: str) -> dict[str, Any]:
    block = config.get(name)
    if not isinstance(block, dict):
        raise InputError(f'{name}={block!r} is not a block of keys; choose one with {name}=NAME')
    return block
