"""Readers of Reddit (GraphSAGE's, as DGL and torch_geometric store it) and of GraphSAINT's four files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.data.csr import from_csr, from_edges
from harness.data.raw import (
    Raw,
    array,
    arrays,
    check_square,
    class_count,
    damaged,
    features_of,
    json_object,
    mask_of,
    reading,
    single_labels,
)


def read_reddit(data: Path, graph: Path, *, symmetrise: bool) -> Raw:
    """`data`: feature [V, F], label [V], node_types [V] (1 train, 2 val, 3 test); `graph`: a scipy COO."""
    parts = arrays(data, ("feature", "label", "node_types"))
    with reading(data):
        features = features_of(parts.pop("feature"))
        labels = single_labels(parts["label"])
        kinds = parts["node_types"]
        num_classes = class_count(labels)
        if kinds.shape != (len(features),):
            raise damaged(f"node_types has shape {kinds.shape} for {len(features)} vertices")
    ends = arrays(graph, ("row", "col"))
    with reading(graph):
        edges = from_edges(ends["row"], ends["col"], len(features), symmetrise=symmetrise)
    return Raw(edges, features, labels, num_classes, tuple((kinds == kind)[None] for kind in (1, 2, 3)))


def read_saint(adjacency: Path, feats: Path, class_map: Path, role: Path, *, symmetrise: bool) -> Raw:
    """adj_full.npz (scipy CSR parts), feats.npy [V, F], class_map.json (vertex -> class or 0/1 list),
    role.json."""
    parts = arrays(adjacency, ("indptr", "indices", "shape"))
    with reading(adjacency):
        check_square(parts["shape"], parts["indptr"])
        edges = from_csr(parts["indptr"], parts["indices"], symmetrise=symmetrise, where="adjacency")
    del parts
    features = array(feats)
    with reading(feats):
        features = features_of(features)
        vertices = len(edges.indptr) - 1
        if len(features) != vertices:
            raise damaged(
                f"features has {len(features)} rows for the {vertices} vertices of {adjacency.name}"
            )
    labels, num_classes = _labels(class_map, len(features))
    roles = json_object(role)
    with reading(role):
        if missing := {"tr", "va", "te"} - roles.keys():
            raise damaged(f"role {sorted(missing)[0]} is missing")
        train, val, test = (
            mask_of(np.array(roles[key]), len(features), f"role {key}")[None] for key in ("tr", "va", "te")
        )
    return Raw(edges, features, labels, num_classes, (train, val, test))


def _labels(path: Path, num_vertices: int) -> tuple[np.ndarray, int]:
    """(labels, number of classes)."""
    classes = json_object(path)
    with reading(path):
        vertices = np.fromiter(map(int, classes), np.int64, len(classes))
        labelled = mask_of(vertices, num_vertices, "class_map")
        values = np.array(list(classes.values()))
        if values.ndim == 2 and values.dtype.kind in "iub" and set(np.unique(values)) <= {0, 1}:
            labels: np.ndarray = np.zeros((num_vertices, values.shape[1]), np.uint8)
            labels[vertices] = values
        elif values.ndim == 1:
            labels = np.full(num_vertices, -1, np.int32)
            labels[vertices] = single_labels(values)
        else:
            raise damaged(
                f"classes of type {values.dtype} and shape {values.shape} are neither numbers nor lists of 0 "
                "and 1"
            )
        if not labelled.all() or len(vertices) > num_vertices:
            what = "lists a vertex twice" if labelled.all() else f"lacks vertex {int(np.argmin(labelled))}"
            raise damaged(f"class_map {what}")
        return labels, class_count(labels)
