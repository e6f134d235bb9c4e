"""Readers of the Open Graph Benchmark's vertex data sets: csv.gz tables (arxiv, products; proteins, whose
features are those of edges) and one npz (papers100M)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.data.csr import from_edges
from harness.data.raw import (
    Masks,
    Raw,
    arrays,
    class_count,
    damaged,
    features_of,
    mask_of,
    reading,
    single_labels,
    table,
)


def read_tables(
    edge: Path, node_feat: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> Raw:
    """edge.csv.gz (source, target), node-feat.csv.gz, node-label.csv.gz, and the vertices of three splits."""
    features = table(node_feat, np.float32)
    with reading(node_feat):
        features = features_of(features)
    pairs = _pairs(edge)
    with reading(edge):
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(features), symmetrise=symmetrise)
    del pairs
    labels = table(node_label, np.float64)
    with reading(node_label):
        labels = single_labels(labels)
        num_classes = class_count(labels)
    return Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(features)))


def read_edge_features(
    edge: Path, edge_feat: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> Raw:
    """edge.csv.gz, which has an undirected edge once, edge-feat.csv.gz with a row per line of it, and
    node-label.csv.gz with a column of 0 and 1 per label.

    A vertex has no features of its own: it gets the mean of those of its edges, as OGB's examples give it; 0
    without an edge."""
    labels = table(node_label, np.int64)
    with reading(node_label):
        if labels.shape[1] < 2 or labels.min(initial=0) < 0 or labels.max(initial=0) > 1:
            raise damaged(
                f"labels of shape {list(labels.shape)} from {labels.min(initial=0)} to "
                f"{labels.max(initial=0)}, where two or more columns of 0 and 1 are wanted"
            )
        labels = labels.astype(np.uint8)
        num_classes = class_count(labels)
    pairs = _pairs(edge)
    with reading(edge):
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(labels), symmetrise=symmetrise)
    given = table(edge_feat, np.float32)
    with reading(edge_feat):
        given = features_of(given)
        if len(given) != len(pairs):
            raise damaged(f"it has {len(given)} lines for the {len(pairs)} edges of {edge.name}")
    features = _means(pairs, given, len(labels))
    return Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(labels)))


def _means(pairs: np.ndarray, given: np.ndarray, num_vertices: int) -> np.ndarray:
    """[V, F] float32: for each vertex the mean of the features [E, F] of its edges, of those [E, 2]."""
    first, second = pairs.T
    degree = np.bincount(first, minlength=num_vertices) + np.bincount(second, minlength=num_vertices)
    means = np.empty((num_vertices, given.shape[1]), np.float32)
    # A column at a time, so that only one of them is held in double precision.
    for column, values in enumerate(given.T):
        total = np.bincount(first, values, num_vertices) + np.bincount(second, values, num_vertices)
        means[:, column] = total / np.maximum(degree, 1)
    return means


def _pairs(edge: Path) -> np.ndarray:
    """[E, 2] int64, sources and targets."""
    pairs = table(edge, np.int64)
    with reading(edge):
        if pairs.shape[1] != 2:
            raise damaged(f"a line holds {pairs.shape[1]} numbers where source and target are wanted")
    return pairs


def read_binary(
    data: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> Raw:
    """data.npz with edge_index [2, E] and node_feat [V, F]; node-label.npz with node_label [V, 1], NaN for
    none."""
    parts = arrays(data, ("edge_index", "node_feat"))
    with reading(data):
        pairs, features = parts.pop("edge_index"), features_of(parts.pop("node_feat"))
        if pairs.ndim != 2 or len(pairs) != 2:
            raise damaged(f"edge_index has shape {pairs.shape} where [2, edges] is wanted")
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
