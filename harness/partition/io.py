"""Shards and graphs on disk: one safetensors file each, mapped into memory rather than read.

The format holds named arrays and a small JSON of scalars; nothing in it can run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from harness.check import InputError
from harness.graph.graph import Graph
from harness.partition.shard import Csr, Shard

_CSR_FIELDS = ("inner_edges", "halo_edges", "out_inner_edges", "out_halo_edges")


def save(shard: Shard, folder: Path) -> Path:
    """Write worker `shard.rank`'s file into `folder`."""
    arrays: dict[str, np.ndarray] = {}
    scalars: dict[str, object] = {}
    for field in dataclasses.fields(Shard):
        value = getattr(shard, field.name)
        if isinstance(value, Csr):
            arrays[f"{field.name}.indptr"], arrays[f"{field.name}.indices"] = value.indptr, value.indices
            scalars[f"{field.name}.num_columns"] = value.num_columns
        elif isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif value is not None:
            scalars[field.name] = value
    path = _path(folder, shard.rank)
    _write(arrays, scalars, path)
    return path


def load(folder: Path, rank: int) -> Shard:
    """Read one worker's file; InputError where it is missing or damaged."""
    arrays, scalars = _read(_path(folder, rank))
    values: dict[str, object] = {}
    for field in dataclasses.fields(Shard):
        name = field.name
        if f"{name}.indptr" in arrays:
            values[name] = Csr(arrays[f"{name}.indptr"], arrays[f"{name}.indices"], scalars[f"{name}.num_columns"])
        else:
            values[name] = arrays.get(name, scalars.get(name))
    return Shard(**values)


def save_graph(graph: Graph, path: Path) -> None:
    arrays = {f.name: getattr(graph, f.name) for f in dataclasses.fields(Graph)
              if isinstance(getattr(graph, f.name), np.ndarray)}
    _write(arrays, {"name": graph.name, "num_classes": graph.num_classes, "symmetric": graph.symmetric}, path)


def load_graph(path: Path) -> Graph:
    arrays, scalars = _read(path)
    return Graph(**arrays, **scalars)


def _path(folder: Path, rank: int) -> Path:
    return Path(folder) / f"worker-{rank}.safetensors"


def _write(arrays: dict[str, np.ndarray], scalars: dict[str, object], path: Path) -> None:
    part = path.with_suffix(".part")
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    scalars = {k: v.item() if isinstance(v, np.generic) else v for k, v in scalars.items()}
    save_file(contiguous, part, metadata={"scalars": json.dumps(scalars)})
    os.replace(part, path)


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    if not path.is_file():
        raise InputError(f"{path} is missing; delete the folder {path.parent} and run again to rebuild it")
    try:
        # torch maps the file; numpy's reader would copy it.
        with safe_open(path, framework="pt") as file:
            scalars = json.loads(file.metadata()["scalars"])
            arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}); delete the folder {path.parent} and run again to rebuild it") from None
    return arrays, scalars
