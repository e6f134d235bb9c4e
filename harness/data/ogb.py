"""Readers of the Open Graph Benchmark's vertex data sets: csv.gz tables (arxiv, products; proteins, whose
features are those of edges) and one npz (papers100M)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from harness.data import raw
from harness.data.csr import from_edges
from harness.data.real_set import RealSet


def files(split: str, *tables: str) -> tuple[str, ...]:
    """The files of the named tables and of the three parts of `split`, relative to the data set's folder."""
    parts = (f"split/{split}/{part}" for part in ("train", "valid", "test"))
    return tuple(f"{name}.csv.gz" for name in (*(f"raw/{table}" for table in tables), *parts))


def read_tables(
    edge: Path, node_feat: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> raw.Raw:
    """Read edge.csv.gz (a source and a target per line), node-feat.csv.gz [V, F], node-label.csv.gz [V, 1],
    and three files that list the vertices of train, valid and test."""
    features = raw.table(node_feat, np.float32)
    with raw.reading(node_feat):
        features = raw.features_of(features)
    pairs = _pairs(edge)
    with raw.reading(edge):
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(features), symmetrise=symmetrise)
    del pairs
    labels = raw.table(node_label, np.float64)
    with raw.reading(node_label):
        labels = raw.single_labels(labels)
        num_classes = raw.class_count(labels)
    return raw.Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(features)))


def read_edge_features(
    edge: Path, edge_feat: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> raw.Raw:
    """Read edge.csv.gz, which lists every undirected edge once, edge-feat.csv.gz with a row per listed edge,
    node-label.csv.gz with a column of 0 and 1 per label, and three files that list the vertices of a split.

    A vertex has no features of its own: it gets the mean of its edges' features, as in OGB's examples, or
    zeros where it has no edge."""
    labels = raw.table(node_label, np.int64)
    with raw.reading(node_label):
        if labels.shape[1] < 2 or labels.min(initial=0) < 0 or labels.max(initial=0) > 1:
            raise raw.damaged(
                f"labels of shape {list(labels.shape)} from {labels.min(initial=0)} to "
                f"{labels.max(initial=0)}, where two or more columns of 0 and 1 are wanted"
            )
        labels = labels.astype(np.uint8)
        num_classes = raw.class_count(labels)
    pairs = _pairs(edge)
    with raw.reading(edge):
        edges = from_edges(pairs[:, 0], pairs[:, 1], len(labels), symmetrise=symmetrise)
    given = raw.table(edge_feat, np.float32)
    with raw.reading(edge_feat):
        given = raw.features_of(given)
        if len(given) != len(pairs):
            raise raw.damaged(f"it has {len(given)} lines for the {len(pairs)} edges of {edge.name}")
    features = _means(pairs, given, len(labels))
    return raw.Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(labels)))


def _means(pairs: np.ndarray, given: np.ndarray, num_vertices: int) -> np.ndarray:
    """[V, F] float32: for each vertex the mean of `given` [E, F] over its edges among `pairs` [E, 2]."""
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
    pairs = raw.table(edge, np.int64)
    with raw.reading(edge):
        if pairs.shape[1] != 2:
            raise raw.damaged(f"a line holds {pairs.shape[1]} numbers where source and target are wanted")
    return pairs


def read_binary(
    data: Path, node_label: Path, train: Path, valid: Path, test: Path, *, symmetrise: bool
) -> raw.Raw:
    """Read data.npz with edge_index [2, E] and node_feat [V, F], node-label.npz with node_label [V, 1] (NaN
    where a vertex has no label), and three files that list the vertices of train, valid and test."""
    parts = raw.arrays(data, ("edge_index", "node_feat"))
    with raw.reading(data):
        pairs, features = parts.pop("edge_index"), raw.features_of(parts.pop("node_feat"))
        if pairs.ndim != 2 or len(pairs) != 2:
            raise raw.damaged(f"edge_index has shape {pairs.shape} where [2, edges] is wanted")
        edges = from_edges(pairs[0], pairs[1], len(features), symmetrise=symmetrise)
    del pairs
    found = raw.arrays(node_label, ("node_label",))
    with raw.reading(node_label):
        labels = raw.single_labels(found["node_label"], unlabelled=True)
        num_classes = raw.class_count(labels)
    return raw.Raw(edges, features, labels, num_classes, _masks((train, valid, test), len(features)))


def _masks(paths: tuple[Path, Path, Path], num_vertices: int) -> raw.Masks:
    masks = []
    for path in paths:
        listed = raw.table(path, np.int64)
        with raw.reading(path):
            masks.append(raw.mask_of(listed[:, 0], num_vertices, "split")[None])
    train, val, test = masks
    return train, val, test


def ogb_set(
    name: str, archive: str, files: tuple[str, ...], read: Callable[..., raw.Raw], **known: Any
) -> RealSet:
    """A data set of OGB, which calls it ogbn-`name` and keeps it in `archive`.zip. `known` are further fields
    of `RealSet`."""
    return RealSet(
        'Hu et al., "Open Graph Benchmark: Datasets for Machine Learning on Graphs", NeurIPS 2020.',
        folders=tuple(f"{parent}ogbn{mark}{name}" for parent in ("", "ogb/") for mark in "_-"),
        files=files,
        read=read,
        library="ogb",
        origin=f"http://snap.stanford.edu/ogb/data/nodeproppred/{archive}.zip",
        **known,
    )
