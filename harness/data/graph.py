"""The one graph every system trains on: CSR of in-edges, features, labels, splits; validated once."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from harness.base.errors import InputError
from harness.data import csr
from harness.data.partition.shard import Csr, Table

CLASSES = 1 << 16  # that a graph of fewer vertices may have all the same


@dataclass(frozen=True)
class Graph:
    """A vertex-classification graph.

    name         what tables call it; a twin's begins with "twin/"
    indptr       [V+1] int32 (int64 from 2^31 edges on): row v of the CSR holds v's in-neighbours
    indices      [E] int32, ascending and without repeats inside a row; edge u -> v is `u` in row v.
                 Self-loops may be present: the propagation operator drops them and adds each vertex once.
    features     [V, F] float32; as compressed rows where few values are not 0 and the table is large
    labels       [V] int32, -1 where a vertex has none; or [V, C] uint8 of 0 and 1 (multi-label)
    num_classes  C
    train, val, test   [V] bool, disjoint
    symmetric    edge u -> v present, with the same weight, exactly when v -> u is (an undirected graph holds
                 both)
    weights      [E] float32 of 0 or more, one per entry of indices; None where all are 1. A self-loop is
                 dropped with its weight: the one that GCN adds weighs 1
    """

    name: str
    indptr: np.ndarray
    indices: np.ndarray
    features: Table
    labels: np.ndarray
    num_classes: int
    train: np.ndarray
    val: np.ndarray
    test: np.ndarray
    symmetric: bool
    weights: np.ndarray | None = None

    @property
    def num_vertices(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Directed edges: an undirected edge counts twice."""
        return len(self.indices)

    @property
    def num_features(self) -> int:
        return self.features.shape[1]

    @property
    def multilabel(self) -> bool:
        return self.labels.ndim == 2

    def in_degrees(self) -> np.ndarray:
        """[V] in-degrees without self-loops, int64; with weights the sums of the in-edges' weights, float64.

        This is the degree every normalisation here is built on."""
        rows = np.repeat(np.arange(self.num_vertices, dtype=np.int32), np.diff(self.indptr))
        if self.weights is not None:
            weights = np.where(rows == self.indices, 0, self.weights)
            return np.bincount(rows, weights=weights, minlength=self.num_vertices)
        loops = np.bincount(rows[rows == self.indices], minlength=self.num_vertices)
        return np.diff(self.indptr).astype(np.int64) - loops

    def replace(self, **changes) -> Graph:
        return dataclasses.replace(self, **changes)


def validate(graph: Graph) -> Graph:
    """Raise InputError with one sentence at the first thing wrong; return the graph when nothing is."""
    n, name = graph.num_vertices, graph.name
    if n < 1:
        raise InputError(f"{name}: the graph has no vertices")
    if graph.indptr[0] != 0 or graph.indptr[-1] != graph.num_edges or np.any(np.diff(graph.indptr) < 0):
        raise InputError(f"{name}: indptr must rise from 0 to the number of edges ({graph.num_edges})")
    if graph.num_edges and (graph.indices.min() < 0 or graph.indices.max() >= n):
        bad = graph.indices[(graph.indices < 0) | (graph.indices >= n)][0]
        raise InputError(f"{name}: edge endpoint {bad} is not a vertex; vertices are 0 to {n - 1}")
    if not csr.rows_ascend(graph.indptr, graph.indices):
        raise InputError(
            f"{name}: the in-neighbours of a vertex are out of order or repeated; build the rows with"
            " harness.data.csr"
        )
    weights = graph.weights
    if weights is not None and (weights.shape != (graph.num_edges,) or weights.dtype != np.float32):
        raise InputError(
            f"{name}: weights has type {weights.dtype} and shape {weights.shape}; give one float32 per edge"
            f" ({graph.num_edges})"
        )
    if weights is not None and not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(
            f"{name}: weights hold NaN, infinity or numbers below 0; give finite ones of 0 or more"
        )
    for field in ("features", "labels", "train", "val", "test"):
        if len(getattr(graph, field)) != n:
            raise InputError(
                f"{name}: {field} has {len(getattr(graph, field))} rows for {n} vertices; give one per vertex"
            )
    if len(graph.features.shape) != 2 or graph.features.shape[1] < 1:
        raise InputError(f"{name}: features has shape {graph.features.shape}; give [vertices, dimension]")
    label_type = np.uint8 if graph.multilabel else np.int32
    for field, dtype in (
        ("features", np.float32),
        ("labels", label_type),
        ("train", np.bool_),
        ("val", np.bool_),
        ("test", np.bool_),
    ):
        if getattr(graph, field).dtype != dtype:
            raise InputError(
                f"{name}: {field} holds {getattr(graph, field).dtype}; convert it to {np.dtype(dtype)}"
            )
    if isinstance(graph.features, Csr) and not _ascends(graph.features):
        raise InputError(
            f"{name}: features are no compressed rows of columns 0 to {graph.num_features - 1}, each row"
            " ascending; build them with harness.data.csr.sparse_rows"
        )
    bad = _not_finite(graph.features)
    if bad is not None:
        raise InputError(f"{name}: features of vertex {bad} hold NaN or infinity; clean them first")
    if graph.num_classes > max(n, CLASSES):
        raise InputError(
            f"{name}: num_classes={graph.num_classes} for {n} vertices costs a column of weights each; give"
            " one more than the largest label"
        )
    if graph.num_classes < 2:
        raise InputError(f"{name}: num_classes={graph.num_classes}; classification needs 2 or more")
    if graph.multilabel:
        if graph.labels.shape[1] != graph.num_classes or graph.labels.max(initial=0) > 1:
            raise InputError(f"{name}: multi-label labels must be 0 or 1 in [vertices, {graph.num_classes}]")
    else:
        low, high = int(graph.labels.min()), int(graph.labels.max())
        if low < -1 or high >= graph.num_classes:
            raise InputError(
                f"{name}: label {low if low < -1 else high} is out of range; classes are 0 to "
                f"{graph.num_classes - 1}, -1 for none"
            )
    overlap = (graph.train & graph.val) | (graph.train & graph.test) | (graph.val & graph.test)
    if overlap.any():
        raise InputError(
            f"{name}: vertex {int(np.argmax(overlap))} is in two of train, val and test; give each vertex one"
            " split"
        )
    if not graph.train.any():
        raise InputError(f"{name}: no vertex is in train; mark at least one")
    split = graph.train | graph.val | graph.test
    if not graph.multilabel and (graph.labels[split] < 0).any():
        vertex = int(np.flatnonzero(split & (graph.labels < 0))[0])
        raise InputError(
            f"{name}: vertex {vertex} is in a split but has no label; leave it out of train, val and test"
        )
    return graph


def _ascends(rows: Csr) -> bool:
    """Whether these are compressed rows, each of ascending columns that there are."""
    indptr, indices = rows.indptr, rows.indices
    fits = (
        indptr[0] == 0 and indptr[-1] == len(indices) == len(rows.entries()) and (np.diff(indptr) >= 0).all()
    )
    within = fits and (not len(indices) or 0 <= indices.min() <= indices.max() < rows.num_columns)
    return bool(within) and csr.rows_ascend(indptr, indices)


def _not_finite(features: Table) -> int | None:
    """The first vertex whose features are not all finite numbers."""
    if isinstance(features, Csr):
        finite = np.isfinite(features.entries())
        bad = int(np.argmin(finite)) if not finite.all() else None
        return None if bad is None else int(np.searchsorted(features.indptr, bad, side="right")) - 1
    # A blockwise look keeps the temporary small on graphs whose features fill half the memory.
    for start in range(0, len(features), 65536):
        finite = np.isfinite(features[start : start + 65536]).all(axis=1)
        if not finite.all():
            return start + int(np.argmin(finite))
    return None
