"""Measurements of a run's products before it starts: the fastest tilings of sparse products, and what sparse
and dense products cost. The process that prepares makes them once per machine and keeps them in the cache."""

import json
from pathlib import Path
from typing import Any

import torch

from harness.base.heap import keep_freed_memory
from harness.core.kernels.spmm import make_kernel
from harness.core.kernels.tiling import shape_class
from harness.core.kernels.tiling_measured import tilings_for
from harness.core.order_measured import LEAST_ENTRIES, classes, costs_for
from harness.data.partition import io
from harness.data.partition.cache import Cache
from harness.data.partition.shard import Csr
from harness.run import config as configs
from harness.run.config import Run

TILED = ("auto", "numba")  # kernels whose products have tilings


def measured(run: Run, cache: Cache, shards: Path, machine: str, begun: bool) -> dict[str, Any]:
    """`tilings` and `costs` for shards.json: those that the run began with, else those of this machine, which
    are measured now where the cache lacks them.

    On a GPU, and for products so small that no choice pays, there are none.

    begun   whether the run has traced an epoch
    """
    on_gpu = run.settings.device != "cpu" and torch.cuda.is_available()
    return {
        "tilings": _tilings(run, cache, shards, machine, on_gpu),
        "costs": _costs(run, cache, shards, machine, on_gpu, begun),
    }


def _tilings(run: Run, cache: Cache, shards: Path, machine: str, on_gpu: bool) -> dict[str, list[dict]]:
    """Tilings for the shapes of the run's shards; empty where no product is tiled."""
    if began := configs.measured(run.directory)["tilings"]:
        return began
    if on_gpu or run.settings.kernel not in TILED:
        return {}
    loaded = (io.load(shards, rank) for rank in range(run.settings.workers))
    blocks = [value for shard in loaded for value in vars(shard).values() if isinstance(value, Csr)]
    shapes = [(block.num_rows, block.num_columns, block.num_entries) for block in blocks]
    shapes += [(columns, rows, entries) for rows, columns, entries in shapes]  # of the backward pass
    classes = {name for shape in shapes if (name := shape_class(*shape))}
    return tilings_for(cache, machine, classes).as_json()


def _costs(run: Run, cache: Cache, shards: Path, machine: str, on_gpu: bool, begun: bool) -> dict | None:
    """Costs of products. None where the order of products is not chosen by them, or no choice pays: the fixed
    table then stands in. A run that has begun keeps what it has, since other costs could give other bits."""
    if (began := configs.measured(run.directory)["costs"]) is not None or begun:
        return began
    settings = run.settings
    if settings.order != "auto" or on_gpu or not run.model.matrix:
        return None
    stats = json.loads((shards / "stats.json").read_text())
    if stats["edges"] < LEAST_ENTRIES * settings.workers:
        return None
    keep_freed_memory()  # as workers do: pages that are faulted in again would be part of every product
    tilings = tilings_for(cache, machine, classes()) if settings.kernel in TILED else None
    return costs_for(cache, machine, make_kernel(settings.kernel, "cpu", tilings)).as_json()
