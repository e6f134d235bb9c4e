"""Shards and graphs on disk: one safetensors file each, mapped into memory rather than read.

The format holds named arrays and a small JSON of scalars; nothing in it can run."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from harness.base.errors import InputError
from harness.base.machine import check_machine
from harness.data.graph import Graph
from harness.data.partition.shard import Csr, ReplicaShard, Shard

SHARDS = {kind.cut: kind for kind in (Shard, ReplicaShard)}


def save(shard: Shard | ReplicaShard, folder: Path) -> Path:
    """Write worker `shard.rank`'s file into `folder`; InputError where it cannot be written."""
    path = _path(folder, shard.rank)
    _write(shard, {"cut": shard.cut}, path)
    return path


def load(folder: Path, rank: int) -> Shard | ReplicaShard:
    """Map one worker's file, copy-on-write. Raises InputError where it is missing, is no such file, or lacks
    a field.

    Its numbers are not looked at, and compiled loops use its indices unchecked: a run's files are read once
    their checksums have been compared (`Cache.get_or_make`, `check_file`)."""
    path = _path(folder, rank)
    arrays, scalars = _read(path)
    kind = SHARDS.get(str(scalars.pop("cut", None)))
    if kind is None:
        raise _damaged(path, "it is of no known cut")
    values = _values(kind, arrays, scalars)
    _check_whole(values, path, lambda name: values["symmetric"] is True and name.startswith("out_"))
    if values["rank"] != rank:
        raise _damaged(path, f"it is worker {values['rank']}'s")
    return kind(**values)


def shard_name(rank: int) -> str:
    """The name of a worker's file in the folder of shards."""
    return f"worker-{rank}.safetensors"


def save_graph(graph: Graph, path: Path) -> None:
    """Write a whole graph; InputError where it cannot be written."""
    _write(graph, {}, path)


def load_graph(path: Path) -> Graph:
    """Map a graph that was valid when it was written, copy-on-write. Raises InputError where its file is
    missing, is no such file, or lacks a field."""
    values = _values(Graph, *_read(path))
    _check_whole(values, path, lambda name: name == "weights")
    return Graph(**values)


def _check_whole(values: dict[str, Any], path: Path, optional: Callable[[str], bool]) -> None:
    """Raise InputError where a field has no value and is not `optional`."""
    for name, value in values.items():
        if value is None and not optional(name):
            raise _damaged(path, f"it holds no {name}")


def _path(folder: Path, rank: int) -> Path:
    return Path(folder) / shard_name(rank)


def _write(held: Graph | Shard | ReplicaShard, scalars: dict[str, object], path: Path) -> None:
    """Write every field of a dataclass, and `scalars` beside them."""
    arrays: dict[str, np.ndarray] = {}
    for field in dataclasses.fields(held):
        value = getattr(held, field.name)
        if isinstance(value, Csr):
            arrays[f"{field.name}.indptr"], arrays[f"{field.name}.indices"] = value.indptr, value.indices
            scalars[f"{field.name}.num_columns"] = value.num_columns
            if value.values is not None:
                arrays[f"{field.name}.values"] = value.values
        elif isinstance(value, np.ndarray):
            arrays[field.name] = value
        elif value is not None:
            scalars[field.name] = value
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    scalars = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in scalars.items()
    }
    try:
        path.touch()
        mode = path.stat().st_mode
        save_file(arrays, path, metadata={"scalars": json.dumps(scalars)})
        path.chmod(mode)  # safetensors makes files that no other user of the cache could read
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{path} cannot be written ({error}); give cache=FOLDER on a disk with room"
        ) from None


def _values(kind: type, arrays: dict[str, np.ndarray], scalars: dict[str, Any]) -> dict[str, Any]:
    """The value of each field of `kind` that `_write` wrote; None for a field that is not there."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        name = field.name
        if f"{name}.indptr" in arrays:
            indices, columns = arrays.get(f"{name}.indices"), scalars.get(f"{name}.num_columns")
            values[name] = None
            if indices is not None and columns is not None:
                values[name] = Csr(arrays[f"{name}.indptr"], indices, columns, arrays.get(f"{name}.values"))
        else:
            values[name] = arrays.get(name, scalars.get(name))
    return values


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    if not path.is_file():
        raise InputError(f"{path} is missing; delete the folder {path.parent} and run again to rebuild it")
    try:
        # torch maps the file; numpy's reader would copy it.
        with safe_open(path, framework="pt") as file:
            scalars = json.loads(file.metadata()["scalars"])
            arrays = {name: file.get_tensor(name).numpy() for name in file.keys()}  # noqa: SIM118 -- no dict
        if not isinstance(scalars, dict):
            raise TypeError("its scalars are no object")
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RuntimeError) as error:
        check_machine(error, path)
        raise _damaged(path, error) from None
    return arrays, scalars


def _damaged(path: Path, reason: object) -> InputError:
    said = (str(reason).splitlines() or [""])[0]
    return InputError(
        f"{path} is damaged ({said}); delete the folder {path.parent} and run again to rebuild it"
    )
