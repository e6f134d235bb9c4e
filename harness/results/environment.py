"""The machine and the software a run was measured on; nothing that names the machine or its user."""

import functools
import importlib.metadata
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from harness import __version__
from harness.base.machine import cpu_field
from harness.base.places import ROOT
from harness.comm.recorder import cpu_count
from harness.results.schema import SCHEMA_VERSION

VERSIONED = (
    "torch", "numpy", "numba", "scipy", "dgl", "torch_geometric", "ogb", "pyarrow", "pymetis", "hydra-core",
)  # fmt: skip
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def environment() -> dict[str, Any]:
    """environment.json: processor, cores this process may use, models of the GPUs it may use, memory in
    bytes, package versions (null: not installed), the revision of this repository (null outside one), and the
    thread settings found in the process's environment."""
    return {
        "schema": SCHEMA_VERSION,
        "halobench": __version__,
        "revision": revision(ROOT),
        "python": platform.python_version(),
        "system": platform.system(),
        "kernel": platform.release(),
        "processor": cpu_field("model name") or platform.processor(),
        "cores": cpu_count(),
        "gpus": _gpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "packages": {name: _version(name) for name in VERSIONED},
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
    }


def of_hosts(found: Sequence[dict[str, Any]], workers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """environment.json of a run on several hosts, made of what `environment()` gave on each. Cores, GPUs and
    memory are those of all hosts together, all else is the first host's; `hosts` lists what each host gave,
    with the ranks of its `workers`.

    found     of each host what `environment()` gave there
    workers   of each host the ranks of its workers
    """
    if len(found) == 1:
        return dict(found[0])
    return {
        **found[0],
        "cores": sum(each["cores"] for each in found),
        "gpus": [gpu for each in found for gpu in each["gpus"]],
        "memory_bytes": sum(each["memory_bytes"] for each in found),
        "hosts": [{"workers": list(ranks), **each} for ranks, each in zip(workers, found)],
    }


@functools.cache
def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    """The models of the GPUs that CUDA sees, read from the driver's files: asking CUDA for them would make a
    context in the launcher, which forks."""
    count = torch.cuda.device_count()
    models = [
        line.split(":", 1)[1].strip()
        for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in path.read_text().splitlines()
        if line.startswith("Model:")
    ]
    return (models + ["unknown"] * count)[:count]


def revision(here: Path) -> str | None:
    """What git calls the revision of the checkout `here`, "-dirty" where files differ; None without git."""
    if not (here / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:
        return None  # no git on this machine
    return answer.stdout.strip() or None
