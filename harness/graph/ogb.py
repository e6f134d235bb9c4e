"""Readers of the Open Graph Benchmark's vertex data sets: csv.gz tables (arxiv, products) and one npz
(papers100M).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.check import InputError
from harness.graph.csr import from_edges
from harness.graph.raw import (
    Masks,
    Raw,
    arrays,
    class_count,
    features_of,
    mask_of,
    reading,
    single_labels,
    table,
)


def read_tables(
    edge: Path, node_feat: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> Raw:
    """edge.csv.gz (source, target), node-feat.csv.gz, node-label.csv.gz and the vertices of the three
    splits.
    """
    features = table(node_feat, np.float32)
    with reading(node_feat):
        features = features_of(features)
    pairs = table(edge, np.int64)
    with reading(edge):
        if pairs.shape[1] != 2:
            raise InputError(
                f"a line holds {pairs.shape[1]} numbers where source and target are wanted: fetch the file"
                " again"
            )
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(features), symmetrise=symmetrise)
    del pairs
    labels = table(node_label, np.float64)
    with reading(node_label):
        labels = single_labels(labels)
        num_classes = class_count(labels)
    return Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(features)))


def read_binary(
    data: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> Raw:
    """data.npz with edge_index [2, E] and node_feat [V, F]; node-label.npz with node_label [V, 1], NaN for
    none.
    """
    parts = arrays(data, ("edge_index", "node_feat"))
    with reading(data):
        pairs, features = parts.pop("edge_index"), features_of(parts.pop("node_feat"))
        if pairs.ndim != 2 or len(pairs) != 2:
            raise InputError(
                f"edge_index has shape {pairs.shape} where [2, edges] is wanted: fetch the file again"
            )
        edges = from_edges(pairs[0], pairs[1], len(features), symmetrise=symmetrise)
    del pairs
    found = arrays(node_label, ("node_label",))
    with reading(node_label):
        labels = single_labels(found["node_label"], unlabelled=True)
        num_classes = class_count(labels)
    return Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(features)))


def _masks(paths: tuple[Path, Path, Path], num_vertices: int) -> Masks:
    masks = []
    for path in paths:
        listed = table(path, np.int64)
        with reading(path):
            masks.append(mask_of(listed[:, 0], num_vertices, "split")[None])
    train, val, test = masks
    return train, val, test
