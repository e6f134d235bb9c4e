"""From a dataset block to a validated Graph, and the fingerprint under which it may be cached."""

from __future__ import annotations

import dataclasses
import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from harness.check import InputError
from harness.graph import npz, real, splits
from harness.graph.config import USED_BY, DatasetConfig
from harness.graph.graph import Graph, validate
from harness.graph.raw import Raw

FORMAT = 1  # raise it when a reader, a split or a normalisation begins to give another graph
HASHED = 64 << 20  # bytes up to which a file is known by its content; beyond, by size and time of change


def load(config: DatasetConfig, data_dir: Path, seed: int) -> Graph:
    """The graph `config` names, split (by `seed` where the split is drawn) and validated.

    Real data sets are looked for in `data_dir` and downloaded there where they are missing. Raises InputError
    with one sentence wherever that, a file or the graph in it is not usable.
    """
    _warn(config)
    if config.source == "twin":
        from harness.graph import twin

        graph, own_split = twin.generate(config.name, scale=config.scale, seed=config.generator_seed), True
    else:
        if config.source == "npz":
            raw = npz.read(Path(config.path).expanduser(), config.symmetrise)
        else:
            raw = real.read(
                config.name,
                real.find(config.name, Path(data_dir).expanduser()),
                config.symmetrise is not False,
            )
        graph, own_split = _graph(config, raw), raw.masks is not None
    if config.split == "low_label":
        graph = _with_split(graph, splits.low_label(graph.labels, graph.num_classes, seed))
    elif config.split == "random" or not own_split:
        graph = _with_split(graph, splits.random(graph.labels, seed))
    # Checked before features are touched: a NaN must be named, not spread over its row.
    validate(graph)
    if config.normalise_features:
        _normalise(graph)
    return graph


def fingerprint(config: DatasetConfig, data_dir: Path, seed: int) -> dict[str, Any]:
    """Everything that determines what `load` returns, as plain values without absolute paths.

    A missing real data set is downloaded (or reported) here, as in `load`.
    """
    _warn(config)
    read = {f.name for f in dataclasses.fields(config)} - {"path"}
    read -= {key for key, sources in USED_BY.items() if config.source not in sources}
    if config.split != "own":
        read -= {"mask"}
    found: dict[str, Any] = {"format": FORMAT, **{key: getattr(config, key) for key in sorted(read)}}
    own_split = True
    if config.source == "twin":
        from harness.graph import twin

        # The generator is the data: it is known by its code and this twin's calibration.
        found["generator"] = twin.identity(config.name)
        files = []
    elif config.source == "npz":
        files = [Path(config.path).expanduser()]
        own_split = npz.has_split(files[0])
        if npz.is_weighted(files[0]):
            found["weights"] = True  # earlier versions read the same file without them
    else:
        files = real.find(config.name, Path(data_dir).expanduser())
        own_split = real.DATASETS[config.name].own_split
    found["files"] = {path.name: _identity(path) for path in files}
    if config.split != "own" or not own_split:
        found["seed"] = seed
    return found


def _warn(config: DatasetConfig) -> None:
    for sentence in config.ignored():
        warnings.warn(sentence, stacklevel=3)


def _identity(path: Path) -> dict[str, Any]:
    status = path.stat()
    if status.st_size > HASHED:
        return {"size": status.st_size, "changed_ns": status.st_mtime_ns}
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _graph(config: DatasetConfig, raw: Raw) -> Graph:
    """`raw` with the split it brings; with empty ones where it brings none."""
    if raw.masks is None:
        train = val = test = np.zeros(len(raw.features), bool)
        if config.mask:
            raise InputError(
                f"dataset.mask={config.mask} chooses among own splits, but {config.name} has none: leave it"
                " at 0"
            )
    else:
        known = len(raw.masks[0])
        if config.split == "own" and config.mask >= known:
            raise InputError(
                f"dataset.mask={config.mask} is out of range: {config.name} has {known} own "
                f"split{'s' * (known > 1)}, give 0 to {known - 1}"
            )
        train, val, test = (masks[min(config.mask, known - 1)] for masks in raw.masks)
    indptr, indices, symmetric, weights = raw.edges
    return Graph(
        name=config.name,
        indptr=indptr,
        indices=indices,
        features=raw.features,
        labels=raw.labels,
        num_classes=raw.num_classes,
        train=train,
        val=val,
        test=test,
        symmetric=symmetric,
        weights=weights,
    )


def _with_split(graph: Graph, masks: splits.Masks) -> Graph:
    return graph.replace(train=masks[0], val=masks[1], test=masks[2])


def _normalise(graph: Graph) -> None:
    """Divide every row of features by its sum, in place; a row of zeros stays."""
    features = graph.features
    lowest = np.unravel_index(np.argmin(features), features.shape)
    if features[lowest] < 0:
        raise InputError(
            f"dataset.normalise_features=true divides by the sum of features of 0 or more, but {graph.name} "
            f"has {features[lowest]} at "
            f"vertex {lowest[0]}: leave it false"
        )
    sums = features.sum(axis=1, keepdims=True)
    sums[sums == 0] = 1
    features /= sums
