"""Readers of Reddit (GraphSAGE's, as DGL and torch_geometric store it) and of GraphSAINT's four files."""

from pathlib import Path
from typing import Any

import numpy as np

from harness.data import raw
from harness.data.csr import from_csr, from_edges
from harness.data.real_set import RealSet


def read_reddit(data: Path, graph: Path, *, symmetrise: bool) -> raw.Raw:
    """Read Reddit's two npz files. `data` holds feature [V, F], label [V] and node_types [V] (1 train, 2 val,
    3 test); `graph` holds row and col [E] of a scipy COO matrix, for the edges row[i] -> col[i]."""
    parts = raw.arrays(data, ("feature", "label", "node_types"))
    with raw.reading(data):
        features = raw.features_of(parts.pop("feature"))
        labels = raw.single_labels(parts["label"])
        kinds = parts["node_types"]
        num_classes = raw.class_count(labels)
        if kinds.shape != (len(features),):
            raise raw.damaged(f"node_types has shape {kinds.shape} for {len(features)} vertices")
    ends = raw.arrays(graph, ("row", "col"))
    with raw.reading(graph):
        edges = from_edges(ends["row"], ends["col"], len(features), symmetrise=symmetrise)
    return raw.Raw(edges, features, labels, num_classes, tuple((kinds == kind)[None] for kind in (1, 2, 3)))


def read_saint(adjacency: Path, feats: Path, class_map: Path, role: Path, *, symmetrise: bool) -> raw.Raw:
    """Read GraphSAINT's four files: adj_full.npz (scipy CSR parts), feats.npy [V, F], class_map.json (of each
    vertex its class, or its list of 0 and 1), role.json (the vertices of "tr", "va" and "te")."""
    parts = raw.arrays(adjacency, ("indptr", "indices", "shape"))
    with raw.reading(adjacency):
        raw.check_square(parts["shape"], len(parts["indptr"]) - 1)
        edges = from_csr(parts["indptr"], parts["indices"], symmetrise=symmetrise, where="adjacency")
    del parts
    features = raw.array(feats)
    with raw.reading(feats):
        features = raw.features_of(features)
        vertices = len(edges.indptr) - 1
        if len(features) != vertices:
            raise raw.damaged(
                f"features has {len(features)} rows for the {vertices} vertices of {adjacency.name}"
            )
    labels, num_classes = _labels(class_map, len(features))
    roles = raw.json_object(role)
    with raw.reading(role):
        if missing := {"tr", "va", "te"} - roles.keys():
            raise raw.damaged(f"role {sorted(missing)[0]} is missing")
        train, val, test = (
            raw.mask_of(np.array(roles[key]), len(features), f"role {key}")[None]
            for key in ("tr", "va", "te")
        )
    return raw.Raw(edges, features, labels, num_classes, (train, val, test))


def _labels(path: Path, num_vertices: int) -> tuple[np.ndarray, int]:
    """(labels, number of classes); the labels are [V] int32, or [V, C] uint8 where the file has lists."""
    classes = raw.json_object(path)
    with raw.reading(path):
        vertices = np.fromiter(map(int, classes), np.int64, len(classes))
        labelled = raw.mask_of(vertices, num_vertices, "class_map")
        if not labelled.all() or len(vertices) > num_vertices:
            what = "lists a vertex twice" if labelled.all() else f"lacks vertex {int(np.argmin(labelled))}"
            raise raw.damaged(f"class_map {what}")
        values = np.array(list(classes.values()))[np.argsort(vertices)]  # by vertex
        if values.ndim == 2 and values.dtype.kind in "iub" and set(np.unique(values)) <= {0, 1}:
            labels = values.astype(np.uint8)
        elif values.ndim == 1:
            labels = raw.single_labels(values)
        else:
            raise raw.damaged(
                f"classes of type {values.dtype} and shape {values.shape} are neither numbers nor lists of 0 "
                "and 1"
            )
        return labels, raw.class_count(labels)


def saint_set(name: str, *folders: str, **known: Any) -> RealSet:
    """A data set of GraphSAINT's authors. `name` is its class in torch_geometric.datasets and its folder;
    `folders` are other folders where it may lie; `known` are fields of `RealSet`."""
    return RealSet(
        'Zeng et al., "GraphSAINT: Graph Sampling Based Inductive Learning Method", ICLR 2020.',
        folders=(name, *folders),
        files=("raw/adj_full.npz", "raw/feats.npy", "raw/class_map.json", "raw/role.json"),
        read=read_saint,
        library=name,
        origin="Google Drive",
        **known,
    )
