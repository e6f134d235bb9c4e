"""Readers of the one-file npz formats: Coauthor, Amazon, CitationFull (Shchur et al. 2018),
HeterophilousGraphDataset.

Conventions are torch_geometric's. In Coauthor, Amazon and CitationFull a feature above 0 becomes 1 (Coauthor
has word counts, DBLP TF-IDF weights) and self-loops are dropped; HeterophilousGraphDataset keeps both as they
are stored."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from harness.base.errors import InputError
from harness.data import npz, raw
from harness.data.partition.shard import Csr
from harness.data.real_set import RealSet

ATTRIBUTED = {
    "indptr": "adj_indptr", "indices": "adj_indices", "labels": "labels",
    **{name: name for name in raw.SPARSE},
}  # fmt: skip
HETEROPHILOUS = {
    "edges": "edges", "features": "node_features", "labels": "node_labels",
    "train": "train_masks", "val": "val_masks", "test": "test_masks",
}  # fmt: skip


def read_attributed(path: Path, *, symmetrise: bool) -> raw.Raw:
    """Read an npz with a sparse adjacency `adj_*`, sparse features `attr_*` and `labels` [V]; no splits."""
    stored = raw.arrays(path, (*ATTRIBUTED.values(), "adj_shape"))
    with raw.reading(path):
        vertices = len(stored["labels"])
        raw.check_square(stored["adj_shape"], vertices)
        _check(stored, labels=(vertices,), adj_indptr=(vertices + 1,), attr_indptr=(vertices + 1,))
        found = _renamed(stored, path, ATTRIBUTED, symmetrise, self_loops=False)
    counted = found.features.entries() if isinstance(found.features, Csr) else found.features
    counted[counted > 0] = 1
    return found


def read_heterophilous(path: Path, *, symmetrise: bool) -> raw.Raw:
    """Read an npz with `node_features` [V, F], `node_labels` [V], `edges` [E, 2] in one direction, and
    `train_masks`, `val_masks` and `test_masks`, [K, V] each for K alternative splits."""
    stored = raw.arrays(path, tuple(HETEROPHILOUS.values()))
    with raw.reading(path):
        vertices, splits = len(stored["node_features"]), len(stored["train_masks"])
        _check(stored, edges=(len(stored["edges"]), 2), node_labels=(vertices,))
        _check(stored, **{f"{name}_masks": (splits, vertices) for name in npz.SPLITS})
        return _renamed(stored, path, HETEROPHILOUS, symmetrise, self_loops=True)


def _check(stored: Mapping[str, np.ndarray], **shapes: tuple[int, ...]) -> None:
    """Raise InputError where an array has another shape than `shapes` says."""
    for name, wanted in shapes.items():
        if stored[name].shape != wanted:
            raise raw.damaged(f"{name} has shape {stored[name].shape} where {wanted} is wanted")


def _renamed(
    stored: Mapping[str, np.ndarray], path: Path, names: Mapping[str, str], symmetrise: bool, self_loops: bool
) -> raw.Raw:
    """The graph in the arrays `names.values()` of those `stored` in `path`, which are those of one's own npz
    under its `names`. Every error says to fetch the file again."""
    parts = {name: stored[key] for name, key in names.items()}
    try:
        return npz.graph_of(parts, path, symmetrise, self_loops=self_loops)
    except InputError as error:
        mend = "" if raw.FETCH in str(error) else f", or {raw.FETCH}"
        raise InputError(f"{error}{mend}") from None


def shchur_set(name: str, collection: str, file: str, sha256: str, **known: Any) -> RealSet:
    """A data set of Shchur et al. Its folder `name` may also lie inside the folder `collection`. `file` is
    its only file, whose hash is `sha256`. `known` are further fields of `RealSet`."""
    return RealSet(
        'Shchur et al., "Pitfalls of Graph Neural Network Evaluation", 2018.',
        folders=(name, f"{collection}/{name}"),
        files=(f"raw/{file}",),
        read=read_attributed,
        own_split=False,
        sha256={file: sha256},
        url="https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
        licence="MIT",
        **known,
    )
