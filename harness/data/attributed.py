"""Readers of the one-file npz formats: Coauthor, Amazon, CitationFull (Shchur et al. 2018),
HeterophilousGraphDataset.

Conventions are torch_geometric's. In Coauthor, Amazon and CitationFull a feature above 0 becomes 1 (Coauthor
has word counts, DBLP TF-IDF weights) and self-loops are dropped; HeterophilousGraphDataset keeps both as they
are stored."""

from pathlib import Path
from typing import Any

import numpy as np

from harness.data import raw
from harness.data.csr import from_csr, from_edges
from harness.data.partition.shard import Csr
from harness.data.sets import RealSet


def read_attributed(path: Path, *, symmetrise: bool) -> raw.Raw:
    """Read an npz with a sparse adjacency `adj_*`, sparse features `attr_*` and `labels` [V]; no splits."""
    keys = (
        "adj_indptr", "adj_indices", "adj_shape", "attr_data", "attr_indices", "attr_indptr", "attr_shape",
        "labels",
    )  # fmt: skip
    parts = raw.arrays(path, keys)
    with raw.reading(path):
        raw.check_square(parts["adj_shape"], parts["adj_indptr"])
        edges = from_csr(
            parts["adj_indptr"],
            parts["adj_indices"],
            symmetrise=symmetrise,
            self_loops=False,
            where="adjacency",
        )
        features = raw.sparse_features(parts, path)
        counted = features.entries() if isinstance(features, Csr) else features
        counted[counted > 0] = 1
        labels = raw.single_labels(parts["labels"])
        num_classes = raw.class_count(labels)
    return raw.Raw(edges, features, labels, num_classes, None)


def read_heterophilous(path: Path, *, symmetrise: bool) -> raw.Raw:
    """Read an npz with `node_features` [V, F], `node_labels` [V], `edges` [E, 2] in one direction, and
    `train_masks`, `val_masks` and `test_masks`, [K, V] each for K alternative splits."""
    masks = ("train_masks", "val_masks", "test_masks")
    parts = raw.arrays(path, ("node_features", "node_labels", "edges", *masks))
    with raw.reading(path):
        pairs = parts["edges"]
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            raise raw.damaged(f"edges has shape {pairs.shape} where [edges, 2] is wanted")
        features = raw.features_of(parts["node_features"])
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(features), symmetrise=symmetrise)
        labels = raw.single_labels(parts["node_labels"])
        num_classes = raw.class_count(labels)
        for key in masks:
            if parts[key].dtype != np.bool_ or parts[key].shape != (len(parts[masks[0]]), len(features)):
                raise raw.damaged(
                    f"{key} of type {parts[key].dtype} and shape {parts[key].shape} is not one bool per "
                    "vertex"
                )
    train, val, test = (parts[key] for key in masks)
    return raw.Raw(edges, features, labels, num_classes, (train, val, test))


def shchur_set(name: str, collection: str, file: str, sha256: str, **known: Any) -> RealSet:
    """A data set of Shchur et al. Its folder `name` may also lie inside the folder `collection`. `file` is
    its only file, whose hash is `sha256`. `known` are further fields of `RealSet`."""
    return RealSet(
        folders=(name, f"{collection}/{name}"),
        files=(f"raw/{file}",),
        read=read_attributed,
        own_split=False,
        sha256={file: sha256},
        url="https://github.com/shchur/gnn-benchmark/raw/master/data/npz/",
        licence="MIT",
        **known,
    )
